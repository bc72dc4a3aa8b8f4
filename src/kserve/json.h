#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

// JSON (RFC 8259) without a tree: values are read in the order in which they are written. Strict:
// UTF-8, escapes, numbers and nesting are checked, and a key may occur once in an object.

namespace divvy::kserve {

enum class JsonKind { kObject, kArray, kString, kNumber, kBool, kNull, kNothing };

// What stands between the quotes of a string.
struct JsonString {
  std::string_view raw;
  bool escaped = false;  // Some of it is written with a backslash.

  // Appends the text that is meant.
  void AppendTo(std::string& text) const;
  [[nodiscard]] std::string Text() const;
};

// A number as it is written. Conversions give nothing for what the type cannot hold; 1.0 and 1e3
// are not whole.
struct JsonNumber {
  std::string_view text;
  bool whole = false;

  [[nodiscard]] std::optional<std::int64_t> Int() const;
  [[nodiscard]] std::optional<std::uint64_t> Uint() const;
  // The nearest value; what is too small becomes zero.
  [[nodiscard]] std::optional<double> Double() const;
  [[nodiscard]] std::optional<float> Float() const;
};

// Reads a text from front to back:
//
//   reader.BeginObject();
//   while (const auto key = reader.Key()) {
//     if (*key == "n") n = reader.Number().Int(); else reader.Skip();
//   }
//   reader.End();
//   if (!reader.ok()) return Fail(reader.error());
//
// The first mistake stays: from then on Key() and Item() say that nothing follows, and the other
// calls give empty values. Allocates only for keys. Not thread-safe; `text` must outlive it.
class JsonReader {
 public:
  // Containers inside each other that are accepted.
  static constexpr int kDeepest = 64;

  explicit JsonReader(std::string_view text) : text_(text) {}

  // What the next value is, to judge by its first character.
  JsonKind Peek();

  void BeginObject();
  // The next member's key; nothing behind the last one, which also leaves the object. After a key,
  // the value must be read. The view is good for as long as the reader is.
  std::optional<std::string_view> Key();

  void BeginArray();
  // Whether another item follows; false also leaves the array.
  bool Item();

  JsonString String();
  JsonNumber Number();
  bool Bool();
  // Any value, passed over in one pass; its text.
  std::string_view Skip();

  // Only space may follow.
  void End();

  // Says what is wrong with what was just read. The first complaint counts.
  void Complain(std::string_view what);

  bool ok() const { return ok_; }
  // kInvalidArgument, with the byte's place. REQUIRES: !ok().
  [[nodiscard]] Error error() const;

 private:
  char Next();  // The next character that is not space; 0 at the end.
  bool Expect(char wanted, std::string_view name);
  void Missing(std::string_view name);  // Complains that something else stands there.
  void Begin(char bracket, std::string_view name);
  bool NextMember(char closing);
  void CloseObject();
  bool ScanString(JsonString& string);
  bool ScanEscape();
  bool ScanHex4(std::uint32_t& code);
  bool ScanDigits();
  bool ScanWord(std::string_view word);
  void SkipItems();

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
  bool fresh_ = false;  // A container was begun and nothing of it read.
  bool ok_ = true;
  std::string problem_;
  std::vector<std::string_view> keys_;   // Of all open objects, the outermost first.
  std::vector<std::size_t> first_keys_;  // Where those of each open object begin.
  std::deque<std::string>
      escaped_keys_;  // What views of keys_ point to where the text has escapes.
};

}  // namespace divvy::kserve
