#include "kserve/json_tensor.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/text_safety.h"
#include "kserve/json.h"
#include "kserve/utf8.h"

namespace divvy::kserve {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors' bytes are little-endian");

// Reads an array's elements in the order in which they are written.
class ArrayReader {
 public:
  ArrayReader(std::string_view array, DataType type, std::size_t count, std::string& bytes)
      : reader_(array), type_(type), count_(count), bytes_(bytes) {}

  // REQUIRES: T is the element type of `type`; std::string_view for BYTES.
  template <typename T>
  Result<void> Read() {
    ReadArray<T>();
    reader_.End();
    if (!reader_.ok()) return Fail(reader_.error());
    if (read_ == count_) return {};
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} elements, but the shape takes {}", read_, count_));
  }

 private:
  template <typename T>
  void ReadArray() {
    reader_.BeginArray();
    while (reader_.Item()) {
      if (reader_.Peek() == JsonKind::kArray) {
        ReadArray<T>();
      } else if (read_ == count_) {
        reader_.Complain(fmt::format("more elements than the {} that the shape takes", count_));
      } else {
        ReadElement<T>();
        ++read_;
      }
    }
  }

  template <typename T>
  void ReadElement() {
    if constexpr (std::is_same_v<T, bool>) {
      ReadBool();
    } else if constexpr (std::is_same_v<T, std::string_view>) {
      ReadText();
    } else {
      const JsonNumber number = reader_.Number();
      if (!reader_.ok()) return;
      const std::optional<T> value = Convert<T>(number);
      if (value) return Append(*value);
      reader_.Complain(fmt::format("element {} is {}, which {} cannot hold", read_,
                                   number.text.substr(0, 40), Name(type_)));
    }
  }

  template <typename T>
  static std::optional<T> Convert(const JsonNumber& number) {
    if constexpr (std::is_same_v<T, float>) {
      return number.Float();
    } else if constexpr (std::is_same_v<T, double>) {
      return number.Double();
    } else {
      const auto wide = [&] {
        if constexpr (std::is_signed_v<T>) return number.Int();
        if constexpr (!std::is_signed_v<T>) return number.Uint();
      }();
      if (!wide || !std::in_range<T>(*wide)) return std::nullopt;
      return static_cast<T>(*wide);
    }
  }

  void ReadBool() {
    if (reader_.Peek() == JsonKind::kBool) return Append(reader_.Bool());
    const JsonNumber number = reader_.Number();
    if (!reader_.ok()) return;
    if (number.text != "0" && number.text != "1") {
      reader_.Complain(fmt::format("element {} is {}; BOOL takes true, false, 1 and 0", read_,
                                   number.text.substr(0, 40)));
    }
    Append(number.text == "1");
  }

  void ReadText() {
    const JsonString text = reader_.String();
    const std::size_t at = bytes_.size();
    Append(std::uint32_t{0});
    text.AppendTo(bytes_);
    const std::size_t length = bytes_.size() - at - sizeof(std::uint32_t);
    if (length > std::numeric_limits<std::uint32_t>::max())
      reader_.Complain("a string is too long");
    const auto written = static_cast<std::uint32_t>(length);
    std::memcpy(bytes_.data() + at, &written, sizeof written);
  }

  template <typename T>
  void Append(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }

  JsonReader reader_;
  DataType type_;
  std::size_t count_;
  std::size_t read_ = 0;
  std::string& bytes_;
};

Result<void> ReadData(DataType type, ArrayReader reader) {
  switch (type) {
    case DataType::kBool:
      return reader.Read<bool>();
    case DataType::kUint8:
      return reader.Read<std::uint8_t>();
    case DataType::kUint16:
      return reader.Read<std::uint16_t>();
    case DataType::kUint32:
      return reader.Read<std::uint32_t>();
    case DataType::kUint64:
      return reader.Read<std::uint64_t>();
    case DataType::kInt8:
      return reader.Read<std::int8_t>();
    case DataType::kInt16:
      return reader.Read<std::int16_t>();
    case DataType::kInt32:
      return reader.Read<std::int32_t>();
    case DataType::kInt64:
      return reader.Read<std::int64_t>();
    case DataType::kFp32:
      return reader.Read<float>();
    case DataType::kFp64:
      return reader.Read<double>();
    case DataType::kBytes:
      return reader.Read<std::string_view>();
    case DataType::kFp16:
    case DataType::kBf16:
      break;
  }
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{} cannot travel in JSON; send it in binary", Name(type)));
}

void WriteValue(bool value, JsonWriter& writer) { writer.Bool(value); }
void WriteValue(double value, JsonWriter& writer) { writer.Double(value); }
void WriteValue(float value, JsonWriter& writer) { writer.Float(value); }
template <typename T>
void WriteValue(T value, JsonWriter& writer) {
  if constexpr (std::is_signed_v<T>) writer.Int(value);
  if constexpr (!std::is_signed_v<T>) writer.Uint(value);
}

template <typename T>
Result<void> WriteElements(std::string_view bytes, JsonWriter& writer) {
  // A byte of a BOOL may be anything.
  using Stored = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(Stored)) {
    Stored value{};
    std::memcpy(&value, bytes.data() + at, sizeof value);
    if constexpr (std::is_floating_point_v<T>) {
      if (!std::isfinite(value)) {
        return Fail(ErrorCode::kInvalidArgument,
                    fmt::format("element {} is {}, which JSON cannot say; ask for it in binary",
                                at / sizeof value, value));
      }
    }
    if constexpr (std::is_same_v<T, bool>) WriteValue(value != 0, writer);
    if constexpr (!std::is_same_v<T, bool>) WriteValue(value, writer);
  }
  return {};
}

// REQUIRES: CheckBytes().
template <>
Result<void> WriteElements<std::string_view>(std::string_view bytes, JsonWriter& writer) {
  for (std::size_t at = 0; at < bytes.size();) {
    std::uint32_t length = 0;
    std::memcpy(&length, bytes.data() + at, sizeof length);
    at += sizeof length;
    const std::string_view text = bytes.substr(at, length);
    if (!IsUtf8(text)) {
      return Fail(ErrorCode::kInvalidArgument,
                  "an element is not UTF-8 text, which JSON cannot say; ask for it in binary");
    }
    writer.String(text);
    at += length;
  }
  return {};
}

Result<void> WriteBytes(DataType type, std::string_view bytes, JsonWriter& writer) {
  switch (type) {
    case DataType::kBool:
      return WriteElements<bool>(bytes, writer);
    case DataType::kUint8:
      return WriteElements<std::uint8_t>(bytes, writer);
    case DataType::kUint16:
      return WriteElements<std::uint16_t>(bytes, writer);
    case DataType::kUint32:
      return WriteElements<std::uint32_t>(bytes, writer);
    case DataType::kUint64:
      return WriteElements<std::uint64_t>(bytes, writer);
    case DataType::kInt8:
      return WriteElements<std::int8_t>(bytes, writer);
    case DataType::kInt16:
      return WriteElements<std::int16_t>(bytes, writer);
    case DataType::kInt32:
      return WriteElements<std::int32_t>(bytes, writer);
    case DataType::kInt64:
      return WriteElements<std::int64_t>(bytes, writer);
    case DataType::kFp32:
      return WriteElements<float>(bytes, writer);
    case DataType::kFp64:
      return WriteElements<double>(bytes, writer);
    case DataType::kBytes:
      return WriteElements<std::string_view>(bytes, writer);
    case DataType::kFp16:
    case DataType::kBf16:
      break;
  }
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{} cannot travel in JSON; ask for it in binary", Name(type)));
}

Result<void> OfTensor(std::string_view name, Result<void> result) {
  if (result) return result;
  return Fail(result.error().code,
              fmt::format("tensor {}: {}", Quoted(name), result.error().message));
}

}  // namespace

Result<void> AppendJsonData(std::string_view array, DataType type, std::size_t count,
                            std::string_view tensor_name, std::string& bytes) {
  return OfTensor(tensor_name, ReadData(type, ArrayReader(array, type, count, bytes)));
}

Result<void> WriteJsonData(const Tensor& tensor, JsonWriter& writer) {
  if (auto fine = CheckBytes(tensor.type, tensor.shape, tensor.bytes, tensor.name); !fine) {
    return fine;
  }
  writer.BeginArray();
  auto written = WriteBytes(tensor.type, tensor.bytes, writer);
  writer.EndArray();
  return OfTensor(tensor.name, std::move(written));
}

}  // namespace divvy::kserve
