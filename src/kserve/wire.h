#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

// Protobuf's wire format: fields of a number and a value, one behind the other.

namespace divvy::kserve {

enum class WireType : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct WireField {
  std::uint32_t number = 0;
  WireType type = WireType::kVarint;
  std::uint64_t value = 0;      // Of all but kBytes.
  std::string_view bytes = {};  // Of kBytes: a text, a message, or scalars packed.
};

// Reads a message's fields in the order in which they come:
//
//   WireReader reader(message, "ModelReadyRequest");
//   while (const auto field = reader.Next()) {
//     if (field->number == 1) name = reader.Text(*field);  // Others are passed over.
//   }
//   if (!reader.ok()) return Fail(reader.error());
//
// The first mistake stays: from then on nothing follows, and conversions give empty values. Groups,
// which nobody has written for years, are refused. Not thread-safe; views point into the message.
class WireReader {
 public:
  WireReader(std::string_view message, std::string_view name) : rest_(message), name_(name) {}

  std::optional<WireField> Next();

  // A field's value; another wire type than it must have is a mistake.
  std::string_view Bytes(const WireField& field);
  std::string_view Text(const WireField& field);  // Which must be UTF-8.
  std::uint64_t Varint(const WireField& field);
  bool Bool(const WireField& field) { return Varint(field) != 0; }
  double Double(const WireField& field);

  // Says what is wrong. The first complaint counts.
  void Complain(std::string_view what);
  // Takes over another reader's mistake, if it made one.
  void Complain(const WireReader& other);

  bool ok() const { return ok_; }
  // kInvalidArgument, with the message's name. REQUIRES: !ok().
  [[nodiscard]] Error error() const { return {ErrorCode::kInvalidArgument, problem_}; }

 private:
  bool Expect(const WireField& field, WireType type);

  std::string_view rest_;
  std::string_view name_;
  bool ok_ = true;
  std::string problem_;
};

// Scalars of a repeated field, from one occurrence of it: one value, or many packed.
//   WireScalars scalars(reader, field, WireType::kVarint);
//   while (const auto value = scalars.Next()) ...
class WireScalars {
 public:
  WireScalars(WireReader& reader, const WireField& field, WireType type);
  std::optional<std::uint64_t> Next();

 private:
  WireReader& reader_;
  WireType type_;
  std::string_view packed_;
  std::optional<std::uint64_t> single_;
};

// Appends fields to a message. Values that are a field's default are left out, as protobuf does,
// where the name does not say otherwise.
class WireWriter {
 public:
  void Text(std::uint32_t number, std::string_view text) {
    if (!text.empty()) Bytes(number, text);
  }
  // Even if it is empty: a message, or one of several.
  void Bytes(std::uint32_t number, std::string_view bytes) {
    Length(number, bytes.size());
    text_ += bytes;
  }
  // What begins a field of `size` bytes that somebody else sends.
  void Length(std::uint32_t number, std::size_t size) {
    Tag(number, WireType::kBytes);
    Raw(size);
  }
  void Varint(std::uint32_t number, std::uint64_t value) {
    if (value != 0) VarintAlways(number, value);
  }
  void VarintAlways(std::uint32_t number, std::uint64_t value) {
    Tag(number, WireType::kVarint);
    Raw(value);
  }
  void DoubleAlways(std::uint32_t number, double value);
  // Whole numbers of a repeated field, packed.
  template <typename List>
  void Packed(std::uint32_t number, const List& values) {
    if (values.empty()) return;
    WireWriter packed;
    // Negative numbers are of 64 bits on the wire, those of int32 too.
    for (const auto value : values) packed.Raw(static_cast<std::uint64_t>(std::int64_t{value}));
    Bytes(number, packed.text_);
  }

  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] std::string Take() { return std::move(text_); }

 private:
  void Tag(std::uint32_t number, WireType type) {
    Raw(std::uint64_t{number} << 3 | static_cast<std::uint64_t>(type));
  }
  void Raw(std::uint64_t value);

  std::string text_;
};

}  // namespace divvy::kserve
