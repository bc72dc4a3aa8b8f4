#include "client/requests.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/check.h"
#include "base/random.h"
#include "base/spelling.h"
#include "base/text_safety.h"

namespace divvy::client {
namespace {

using kserve::DataType;

constexpr std::int64_t kVariableDimension = 16;
constexpr std::size_t kMostBytes = std::size_t{1} << 30;
constexpr std::uint64_t kWholeNumbers = 100;
constexpr std::uint32_t kTextLetters = 8;

template <typename Number>
void Append(std::string& bytes, Number number) {
  const std::size_t at = bytes.size();
  bytes.resize(at + sizeof number);
  std::memcpy(bytes.data() + at, &number, sizeof number);
}

void AppendElement(DataType type, Random& random, std::string& bytes) {
  switch (type) {
    case DataType::kBool:
      return Append(bytes, static_cast<std::uint8_t>(random.Below(2)));
    case DataType::kFp64:
      return Append(bytes, random.Uniform());
    case DataType::kFp32:
      return Append(bytes, static_cast<float>(random.Below(1 << 24)) * 0x1.0p-24F);
    case DataType::kFp16:  // From 0.5 to 1: that exponent, and any mantissa of ten bits.
      return Append(bytes, static_cast<std::uint16_t>(0x3800U | random.Below(1U << 10)));
    case DataType::kBf16:  // The same, with seven.
      return Append(bytes, static_cast<std::uint16_t>(0x3f00U | random.Below(1U << 7)));
    case DataType::kBytes:
      Append(bytes, kTextLetters);
      for (std::uint32_t i = 0; i < kTextLetters; ++i) {
        bytes += static_cast<char>('a' + random.Below(26));
      }
      return;
    default:
      break;
  }
  // Little-endian: the number first, then as many zeros as the type wants.
  const auto number = static_cast<char>(random.Below(kWholeNumbers));
  bytes += number;
  bytes.append(kserve::SizeOf(type) - 1, '\0');
}

std::size_t ElementBytes(DataType type) {
  return type == DataType::kBytes ? sizeof kTextLetters + kTextLetters : kserve::SizeOf(type);
}

// The shape of one item: what the model says, with sizes where it leaves them open.
Result<kserve::Shape> ShapeOf(const kserve::TensorMetadata& input, bool batched,
                              const std::map<std::string, kserve::Shape>& shapes) {
  kserve::Shape shape(input.shape.begin() + (batched ? 1 : 0), input.shape.end());
  const auto given = shapes.find(input.name);
  if (given == shapes.end()) {
    std::ranges::replace(shape, -1, kVariableDimension);
    return shape;
  }
  bool fits = given->second.size() == shape.size();
  for (std::size_t i = 0; fits && i < shape.size(); ++i) {
    fits = given->second[i] > 0 && (shape[i] == -1 || shape[i] == given->second[i]);
  }
  if (fits) return given->second;
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("--shape: input {} has shape [{}]{}, which [{}] does not fit",
                          Quoted(input.name), fmt::join(shape, ","),
                          batched ? " without the batch" : "", fmt::join(given->second, ",")));
}

Result<void> CheckShapes(const ModelFacts& model,
                         const std::map<std::string, kserve::Shape>& shapes) {
  std::vector<std::string_view> names;
  for (const kserve::TensorMetadata& input : model.inputs) names.push_back(input.name);
  for (const auto& [name, shape] : shapes) {
    if (std::ranges::find(names, name) != names.end()) continue;
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--shape: model {} has no input {}; it has {}", Quoted(model.name),
                            Quoted(name), OneOf(names)));
  }
  return {};
}

Result<void> CheckItems(const ModelFacts& model, int largest) {
  if (!model.batched && largest > 1) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("model {} takes no batches, but requests have up to {} items",
                            Quoted(model.name), largest));
  }
  if (model.max_batch > 0 && largest > model.max_batch) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("model {} takes up to {} items, but requests have up to {}",
                            Quoted(model.name), model.max_batch, largest));
  }
  return {};
}

}  // namespace

Result<Requests> Requests::Make(const Dialect& dialect, const ModelFacts& model, int largest,
                                const RequestOptions& options) {
  Check(largest > 0, "a request has an item");
  if (auto fine = CheckItems(model, largest); !fine) return Fail(fine.error());
  if (auto fine = CheckShapes(model, options.shapes); !fine) return Fail(fine.error());
  Requests requests;
  requests.dialect_ = dialect;
  requests.model_ = model.name;
  requests.batched_ = model.batched;
  if (options.slo) requests.parameters_.emplace_back("slo_ms", Milliseconds(*options.slo));
  Random random(options.seed);
  for (const kserve::TensorMetadata& metadata : model.inputs) {
    auto shape = ShapeOf(metadata, model.batched, options.shapes);
    if (!shape) return Fail(shape.error());
    const auto count = kserve::CountOf(*shape);
    const std::size_t each = ElementBytes(metadata.type) * static_cast<std::size_t>(largest);
    if (!count || *count > kMostBytes / each) {
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format("model {}: {} items of input {} with shape [{}] are more than 1 GiB",
                      Quoted(model.name), largest, Quoted(metadata.name), fmt::join(*shape, ",")));
    }
    if (model.batched) shape->insert(shape->begin(), 1);
    std::string contents;
    contents.reserve(*count * each);
    for (std::size_t i = 0; i < *count * static_cast<std::size_t>(largest); ++i) {
      AppendElement(metadata.type, random, contents);
    }
    Input input{.tensor = {.name = metadata.name, .type = metadata.type, .shape = *shape},
                .item_bytes = *count * ElementBytes(metadata.type),
                .contents = std::make_shared<const std::string>(std::move(contents))};
    requests.item_bytes_ += input.item_bytes;
    requests.inputs_.push_back(std::move(input));
  }
  return requests;
}

const Call& Requests::Of(int items) {
  std::unique_ptr<const Call>& call = calls_[items];
  if (call) return *call;
  kserve::InferRequest request;
  request.model = model_;
  request.parameters = parameters_;
  // Keeps what all inputs' bytes point into.
  auto owner = std::make_shared<std::vector<std::shared_ptr<const std::string>>>();
  for (const Input& input : inputs_) {
    kserve::Tensor tensor = input.tensor;
    if (batched_) tensor.shape.front() = items;
    tensor.bytes = std::string_view(*input.contents)
                       .substr(0, input.item_bytes * static_cast<std::size_t>(items));
    owner->push_back(input.contents);
    request.inputs.push_back(std::move(tensor));
  }
  call = std::make_unique<const Call>(InferCall(dialect_, request, owner));
  return *call;
}

}  // namespace divvy::client
