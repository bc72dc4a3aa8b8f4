#include "engine/synthetic.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <numeric>
#include <string_view>

namespace divvy::engine {
namespace {

using kserve::DataType;

constexpr std::size_t kPeriod = 101;

template <typename Number>
void Append(std::string& to, Number number) {
  char bytes[sizeof number];
  std::memcpy(bytes, &number, sizeof number);
  to.append(bytes, sizeof number);
}

// Exact for the whole numbers below kPeriod.
std::uint16_t Half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (bits == 0) return 0;
  return static_cast<std::uint16_t>(((bits >> 23) - 127 + 15) << 10 | (bits >> 13 & 0x3ff));
}

void AppendElement(std::string& to, DataType type, std::size_t value) {
  const auto real = static_cast<float>(value);
  switch (type) {
    case DataType::kBool:
      return Append(to, static_cast<std::uint8_t>(value % 2));
    case DataType::kUint8:
    case DataType::kInt8:
      return Append(to, static_cast<std::uint8_t>(value));
    case DataType::kUint16:
    case DataType::kInt16:
      return Append(to, static_cast<std::uint16_t>(value));
    case DataType::kUint32:
    case DataType::kInt32:
      return Append(to, static_cast<std::uint32_t>(value));
    case DataType::kUint64:
    case DataType::kInt64:
      return Append(to, static_cast<std::uint64_t>(value));
    case DataType::kFp16:
      return Append(to, Half(real));
    case DataType::kBf16:
      return Append(to, static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(real) >> 16));
    case DataType::kFp32:
      return Append(to, real);
    case DataType::kFp64:
      return Append(to, static_cast<double>(value));
    case DataType::kBytes:  // Of one size, so that an item is found by its number.
      Append(to, std::uint32_t{3});
      to += fmt::format("{:03}", value);
      return;
  }
}

std::size_t ElementSize(DataType type) {
  return type == DataType::kBytes ? sizeof(std::uint32_t) + 3 : kserve::SizeOf(type);
}

// Where the answer for an item begins to count.
std::size_t StartOf(std::string_view item) {
  const std::string_view first = item.substr(0, 16);
  return std::accumulate(
             first.begin(), first.end(), std::size_t{0},
             [](std::size_t sum, char c) { return sum * 31 + static_cast<unsigned char>(c); }) %
         kPeriod;
}

}  // namespace

Result<std::unique_ptr<SyntheticEngine>> SyntheticEngine::Make(const EngineConfig& config,
                                                               ServiceTimes times) {
  if (config.inputs.empty() || config.outputs.empty()) {
    return Fail(
        ErrorCode::kInvalidArgument,
        "a synthetic model needs its inputs and outputs declared, with --input and --output");
  }
  Description description{
      .metadata = {.name = config.model,
                   .platform = "divvy_synthetic",
                   .max_batch = config.max_batch,
                   .inputs = config.inputs,
                   .outputs = config.outputs},
      .backend = "synthetic",
      .parameters = {{"divvy_synthetic", "not a real model: takes time, computes nothing"}}};
  for (auto* tensors : {&description.metadata.inputs, &description.metadata.outputs}) {
    for (kserve::TensorMetadata& tensor : *tensors) {
      tensor.shape = WithBatch(tensor.shape, config.max_batch);
    }
  }
  std::vector<std::string> patterns;
  for (const kserve::TensorMetadata& output : config.outputs) {
    const Result<std::size_t> count = kserve::CountOf(output.shape);
    if (!count) {
      return Fail(ErrorCode::kInvalidArgument, fmt::format("output '{}' of a synthetic model: {}",
                                                           output.name, count.error().message));
    }
    std::string& pattern = patterns.emplace_back();
    for (std::size_t i = 0; i < *count + kPeriod; ++i) {
      AppendElement(pattern, output.type, i % kPeriod);
    }
  }
  std::unique_ptr<SyntheticEngine> engine(
      new SyntheticEngine(std::move(description), std::move(times)));
  engine->patterns_ = std::move(patterns);
  return engine;
}

Result<std::vector<Output>> SyntheticEngine::Run(std::span<const kserve::Tensor> inputs) {
  const kserve::Tensor& input = inputs.front();
  const bool batched = description_.metadata.max_batch > 0;
  const std::size_t items = batched ? static_cast<std::size_t>(input.shape.front()) : 1;
  const std::size_t input_bytes = input.bytes.size() / items;

  std::vector<Output> outputs;
  for (std::size_t o = 0; o < patterns_.size(); ++o) {
    const kserve::TensorMetadata& declared = description_.metadata.outputs[o];
    const std::size_t element = ElementSize(declared.type);
    const std::size_t bytes = patterns_[o].size() - kPeriod * element;
    const std::shared_ptr<char[]> room = AllocateBytes(items * bytes);
    for (std::size_t i = 0; i < items; ++i) {
      // Texts are of any size, so items of theirs are not found by their number.
      const std::size_t start = input.type == DataType::kBytes
                                    ? 0
                                    : StartOf(input.bytes.substr(i * input_bytes, input_bytes));
      std::memcpy(room.get() + i * bytes, patterns_[o].data() + start * element, bytes);
    }
    kserve::Shape shape = declared.shape;
    if (batched) shape.front() = static_cast<std::int64_t>(items);
    outputs.push_back({.tensor = {.name = declared.name,
                                  .type = declared.type,
                                  .shape = std::move(shape),
                                  .bytes = {room.get(), items * bytes}},
                       .storage = room});
  }
  held_back_ = times_.Draw(static_cast<int>(items));
  return outputs;
}

}  // namespace divvy::engine
