#include "kserve/typed_contents.h"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <utility>

#include "kserve/wire.h"

namespace divvy::kserve {
namespace {

// Which list of InferTensorContents a type's elements are in. The numbers are those of the
// protocol's .proto; some of its documents shift those from int64_contents on by one.
enum class Contents : std::uint32_t {
  kNone = 0,
  kBool = 1,
  kInt = 2,  // INT8, INT16, INT32
  kInt64 = 3,
  kUint = 4,  // UINT8, UINT16, UINT32
  kUint64 = 5,
  kFp32 = 6,
  kFp64 = 7,
  kBytes = 8,
};

Contents ContentsOf(DataType type) {
  switch (type) {
    case DataType::kBool:
      return Contents::kBool;
    case DataType::kInt8:
    case DataType::kInt16:
    case DataType::kInt32:
      return Contents::kInt;
    case DataType::kInt64:
      return Contents::kInt64;
    case DataType::kUint8:
    case DataType::kUint16:
    case DataType::kUint32:
      return Contents::kUint;
    case DataType::kUint64:
      return Contents::kUint64;
    case DataType::kFp32:
      return Contents::kFp32;
    case DataType::kFp64:
      return Contents::kFp64;
    case DataType::kBytes:
      return Contents::kBytes;
    case DataType::kFp16:
    case DataType::kBf16:
      break;
  }
  return Contents::kNone;
}

template <typename T>
void Append(T value, std::string& bytes) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// On the wire numbers of 32 bits are longer; as in protobuf, the upper bits mean nothing.
template <typename Wide, typename T>
void AppendNumbers(WireReader& reader, const WireField& field, std::string& bytes) {
  WireScalars scalars(reader, field, WireType::kVarint);
  while (const auto value = scalars.Next()) {
    const Wide wide = static_cast<Wide>(*value);
    if (!std::in_range<T>(wide)) {
      return reader.Complain(fmt::format("{} does not fit the tensor's type, which holds {} to {}",
                                         wide, std::numeric_limits<T>::min(),
                                         std::numeric_limits<T>::max()));
    }
    Append(static_cast<T>(wide), bytes);
  }
}

void AppendBools(WireReader& reader, const WireField& field, std::string& bytes) {
  WireScalars scalars(reader, field, WireType::kVarint);
  while (const auto value = scalars.Next()) bytes += static_cast<char>(*value != 0);
}

// Packed, they are the tensor's bytes already.
void AppendFixed(WireReader& reader, const WireField& field, WireType type, std::string& bytes) {
  const std::size_t size = type == WireType::kFixed32 ? 4 : 8;
  if (field.type == WireType::kBytes && field.bytes.size() % size != 0) {
    reader.Complain("packed numbers are cut off");
  } else if (field.type == WireType::kBytes) {
    bytes += field.bytes;
  } else {
    WireScalars scalars(reader, field, type);
    while (const auto value = scalars.Next()) {
      bytes.append(reinterpret_cast<const char*>(&*value), size);
    }
  }
}

void AppendElement(WireReader& reader, const WireField& field, std::string& bytes) {
  const std::string_view element = reader.Bytes(field);
  if (element.size() > std::numeric_limits<std::uint32_t>::max()) {
    return reader.Complain("an element is too long");
  }
  Append(static_cast<std::uint32_t>(element.size()), bytes);
  bytes += element;
}

void AppendField(WireReader& reader, const WireField& field, DataType type, std::string& bytes) {
  switch (type) {
    case DataType::kBool:
      return AppendBools(reader, field, bytes);
    case DataType::kInt8:
      return AppendNumbers<std::int32_t, std::int8_t>(reader, field, bytes);
    case DataType::kInt16:
      return AppendNumbers<std::int32_t, std::int16_t>(reader, field, bytes);
    case DataType::kInt32:
      return AppendNumbers<std::int32_t, std::int32_t>(reader, field, bytes);
    case DataType::kInt64:
      return AppendNumbers<std::int64_t, std::int64_t>(reader, field, bytes);
    case DataType::kUint8:
      return AppendNumbers<std::uint32_t, std::uint8_t>(reader, field, bytes);
    case DataType::kUint16:
      return AppendNumbers<std::uint32_t, std::uint16_t>(reader, field, bytes);
    case DataType::kUint32:
      return AppendNumbers<std::uint32_t, std::uint32_t>(reader, field, bytes);
    case DataType::kUint64:
      return AppendNumbers<std::uint64_t, std::uint64_t>(reader, field, bytes);
    case DataType::kFp32:
      return AppendFixed(reader, field, WireType::kFixed32, bytes);
    case DataType::kFp64:
      return AppendFixed(reader, field, WireType::kFixed64, bytes);
    case DataType::kBytes:
      return AppendElement(reader, field, bytes);
    case DataType::kFp16:
    case DataType::kBf16:
      break;
  }
}

}  // namespace

Result<void> AppendTypedContents(std::string_view message, DataType type, std::string& bytes) {
  const auto wanted = static_cast<std::uint32_t>(ContentsOf(type));
  constexpr auto kLast = static_cast<std::uint32_t>(Contents::kBytes);
  if (wanted == 0) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} only travels in raw contents", Name(type)));
  }
  WireReader reader(message, "InferTensorContents");
  while (const auto field = reader.Next()) {
    if (field->number == wanted) {
      AppendField(reader, *field, type, bytes);
    } else if (field->number <= kLast) {
      reader.Complain(fmt::format("field {} is filled, but {} takes field {}", field->number,
                                  Name(type), wanted));
    }
  }
  if (!reader.ok()) return Fail(reader.error());
  return {};
}

}  // namespace divvy::kserve
