#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace divvy::kserve {

// Writes JSON, commas included, to the end of a text.
class JsonWriter {
 public:
  JsonWriter() = default;
  explicit JsonWriter(std::size_t expected_bytes) { text_.reserve(expected_bytes); }

  void BeginObject() { Open('{'); }
  void EndObject() { text_ += '}'; }
  void BeginArray() { Open('['); }
  void EndArray() { text_ += ']'; }
  void Key(std::string_view key);
  // What is not UTF-8 becomes U+FFFD.
  void String(std::string_view text);
  void Int(std::int64_t number);
  void Uint(std::uint64_t number);
  // With a point or an exponent, in the fewest digits that read back as the same value; null for
  // what is not finite, which JSON cannot say.
  void Double(double number);
  void Float(float number);
  void Bool(bool value);

  [[nodiscard]] std::string Take() { return std::move(text_); }

 private:
  void Open(char bracket);
  // Puts a comma where a value or a key follows another one.
  void Separate();
  void Quote(std::string_view text);

  std::string text_;
};

}  // namespace divvy::kserve
