#include "kserve/wire.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "kserve/utf8.h"

namespace divvy::kserve {
namespace {

static_assert(std::endian::native == std::endian::little, "protobuf's fixed values are too");

// Takes a varint off the front of `rest`; nothing if it is cut off or has more than 64 bits.
std::optional<std::uint64_t> TakeVarint(std::string_view& rest) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < rest.size() && i < 10; ++i) {
    const auto byte = static_cast<unsigned char>(rest[i]);
    if (i == 9 && byte > 1) return std::nullopt;
    value |= std::uint64_t{byte & 0x7Fu} << (7 * i);
    if (byte < 0x80) {
      rest.remove_prefix(i + 1);
      return value;
    }
  }
  return std::nullopt;
}

std::optional<std::uint64_t> TakeFixed(std::string_view& rest, std::size_t size) {
  if (rest.size() < size) return std::nullopt;
  std::uint64_t value = 0;
  std::memcpy(&value, rest.data(), size);
  rest.remove_prefix(size);
  return value;
}

std::optional<std::uint64_t> TakeScalar(std::string_view& rest, WireType type) {
  switch (type) {
    case WireType::kVarint:
      return TakeVarint(rest);
    case WireType::kFixed64:
      return TakeFixed(rest, 8);
    case WireType::kFixed32:
      return TakeFixed(rest, 4);
    case WireType::kBytes:
      break;
  }
  return std::nullopt;
}

}  // namespace

void WireReader::Complain(std::string_view what) {
  if (!ok_) return;
  ok_ = false;
  problem_ = fmt::format("{}: {}", name_, what);
}

void WireReader::Complain(const WireReader& other) {
  if (!ok_ || other.ok_) return;
  ok_ = false;
  problem_ = other.problem_;
}

std::optional<WireField> WireReader::Next() {
  if (!ok_ || rest_.empty()) return std::nullopt;
  const auto tag = TakeVarint(rest_);
  // 29 bits of number and 3 of type.
  if (!tag || *tag >> 32 != 0 || *tag >> 3 == 0) {
    Complain("not a protobuf message: a field has no number");
    return std::nullopt;
  }
  WireField field{.number = static_cast<std::uint32_t>(*tag >> 3),
                  .type = static_cast<WireType>(*tag & 7)};
  std::optional<std::uint64_t> value;
  switch (field.type) {
    case WireType::kVarint:
    case WireType::kFixed64:
    case WireType::kFixed32:
      value = TakeScalar(rest_, field.type);
      break;
    case WireType::kBytes:
      value = TakeVarint(rest_);
      if (value && *value <= rest_.size()) {
        field.bytes = rest_.substr(0, *value);
        rest_.remove_prefix(*value);
        return field;
      }
      value.reset();
      break;
    default:
      Complain(
          fmt::format("field {} has wire type {}, which is not accepted", field.number, *tag & 7));
      return std::nullopt;
  }
  if (!value) {
    Complain(fmt::format("field {} is cut off", field.number));
    return std::nullopt;
  }
  field.value = *value;
  return field;
}

bool WireReader::Expect(const WireField& field, WireType type) {
  if (field.type == type) return ok_;
  Complain(fmt::format("field {} has wire type {}, it must be {}", field.number,
                       static_cast<int>(field.type), static_cast<int>(type)));
  return false;
}

std::string_view WireReader::Bytes(const WireField& field) {
  return Expect(field, WireType::kBytes) ? field.bytes : std::string_view();
}

std::string_view WireReader::Text(const WireField& field) {
  if (!Expect(field, WireType::kBytes)) return {};
  if (!IsUtf8(field.bytes)) Complain(fmt::format("field {} is not UTF-8 text", field.number));
  return field.bytes;
}

std::uint64_t WireReader::Varint(const WireField& field) {
  return Expect(field, WireType::kVarint) ? field.value : 0;
}

double WireReader::Double(const WireField& field) {
  return Expect(field, WireType::kFixed64) ? std::bit_cast<double>(field.value) : 0;
}

WireScalars::WireScalars(WireReader& reader, const WireField& field, WireType type)
    : reader_(reader), type_(type) {
  if (field.type == WireType::kBytes) {
    packed_ = field.bytes;
  } else if (field.type == type) {
    single_ = field.value;
  } else {
    reader_.Complain(fmt::format("field {} has wire type {}, it must be 2 or {}", field.number,
                                 static_cast<int>(field.type), static_cast<int>(type)));
  }
}

std::optional<std::uint64_t> WireScalars::Next() {
  if (!reader_.ok()) return std::nullopt;
  if (single_) return std::exchange(single_, std::nullopt);
  if (packed_.empty()) return std::nullopt;
  const auto value = TakeScalar(packed_, type_);
  if (!value) reader_.Complain("packed numbers are cut off");
  return value;
}

void WireWriter::Raw(std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) text_ += static_cast<char>((value & 0x7F) | 0x80);
  text_ += static_cast<char>(value);
}

void WireWriter::DoubleAlways(std::uint32_t number, double value) {
  Tag(number, WireType::kFixed64);
  text_.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace divvy::kserve
