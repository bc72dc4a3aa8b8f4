#include "engine/classify.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

namespace divvy::engine {
namespace {

using kserve::DataType;

template <typename Number>
Number Read(const char* from) {
  Number number;
  std::memcpy(&number, from, sizeof number);
  return number;
}

float FromHalf(std::uint16_t half) {
  const int exponent = half >> 10 & 31;
  const auto fraction = static_cast<float>(half & 0x3ff);
  float size = std::ldexp(exponent == 0 ? fraction : fraction + 1024, std::max(exponent, 1) - 25);
  if (exponent == 31) size = fraction == 0 ? INFINITY : NAN;
  return (half & 0x8000) != 0 ? -size : size;
}

// 64-bit whole numbers beyond 2^53 are ordered by what a double says of them.
double Element(DataType type, const char* from) {
  switch (type) {
    case DataType::kBool:
    case DataType::kUint8:
      return Read<std::uint8_t>(from);
    case DataType::kUint16:
      return Read<std::uint16_t>(from);
    case DataType::kUint32:
      return Read<std::uint32_t>(from);
    case DataType::kUint64:
      return static_cast<double>(Read<std::uint64_t>(from));
    case DataType::kInt8:
      return Read<std::int8_t>(from);
    case DataType::kInt16:
      return Read<std::int16_t>(from);
    case DataType::kInt32:
      return Read<std::int32_t>(from);
    case DataType::kInt64:
      return static_cast<double>(Read<std::int64_t>(from));
    case DataType::kFp16:
      return FromHalf(Read<std::uint16_t>(from));
    case DataType::kBf16:
      return std::bit_cast<float>(static_cast<std::uint32_t>(Read<std::uint16_t>(from)) << 16);
    case DataType::kFp32:
      return Read<float>(from);
    case DataType::kFp64:
      return Read<double>(from);
    case DataType::kBytes:
      break;
  }
  return 0;
}

std::string Text(DataType type, double value, std::size_t index) {
  const bool real = type == DataType::kFp16 || type == DataType::kBf16 || type == DataType::kFp32 ||
                    type == DataType::kFp64;
  return real ? fmt::format("{:f}:{}", value, index) : fmt::format("{:.0f}:{}", value, index);
}

void AppendLargest(std::string& to, DataType type, const char* item, std::size_t count,
                   std::size_t most) {
  const std::size_t size = kserve::SizeOf(type);
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = Element(type, item + i * size);
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  // What is no number goes last: an order in which it equals everything would be none.
  const auto key = [&](std::size_t i) { return std::isnan(values[i]) ? -INFINITY : values[i]; };
  std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(most), order.end(),
      [&](std::size_t a, std::size_t b) { return key(a) != key(b) ? key(a) > key(b) : a < b; });
  for (std::size_t i = 0; i < most; ++i) {
    const std::string text = Text(type, values[order[i]], order[i]);
    const auto length = static_cast<std::uint32_t>(text.size());
    char bytes[sizeof length];
    std::memcpy(bytes, &length, sizeof length);
    to.append(bytes, sizeof length).append(text);
  }
}

}  // namespace

Result<Output> Classify(const Output& scores, std::size_t most, bool batched) {
  const kserve::Tensor& tensor = scores.tensor;
  if (tensor.type == DataType::kBytes) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("output '{}' is of texts, which cannot be classified", tensor.name));
  }
  const bool split = batched && !tensor.shape.empty();
  const std::size_t items = split ? static_cast<std::size_t>(tensor.shape.front()) : 1;
  const std::size_t size = kserve::SizeOf(tensor.type);
  const std::size_t count = items == 0 ? 0 : tensor.bytes.size() / size / items;
  most = std::min(most, count);
  std::string texts;
  for (std::size_t i = 0; i < items; ++i) {
    AppendLargest(texts, tensor.type, tensor.bytes.data() + i * count * size, count, most);
  }
  const std::shared_ptr<char[]> room = AllocateBytes(texts.size());
  std::copy(texts.begin(), texts.end(), room.get());
  kserve::Shape shape;
  if (split) shape.push_back(tensor.shape.front());
  shape.push_back(static_cast<std::int64_t>(most));
  return Output{.tensor = {.name = tensor.name,
                           .type = DataType::kBytes,
                           .shape = std::move(shape),
                           .bytes = {room.get(), texts.size()}},
                .storage = room};
}

}  // namespace divvy::engine
