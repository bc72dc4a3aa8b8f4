#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

// The values that the Open Inference Protocol (KServe v2) and Triton's extensions speak of.

namespace divvy::kserve {

enum class DataType : std::uint8_t {
  kBool,
  kUint8,
  kUint16,
  kUint32,
  kUint64,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFp16,
  kBf16,
  kFp32,
  kFp64,
  kBytes,
};

// "FP32"; nothing for an unknown name. Names are case-sensitive.
[[nodiscard]] std::optional<DataType> ParseDataType(std::string_view name);
[[nodiscard]] std::string_view Name(DataType type);
// Bytes of an element; 0 for kBytes, whose elements are a 32-bit length and that many bytes.
[[nodiscard]] std::size_t SizeOf(DataType type);

using Shape = std::vector<std::int64_t>;

// Elements of a tensor of that shape; kInvalidArgument for a negative dimension or when it
// overflows.
[[nodiscard]] Result<std::size_t> CountOf(std::span<const std::int64_t> shape);
// That a tensor of that type and shape takes `size` bytes; for kBytes, that it might.
[[nodiscard]] Result<void> CheckSize(DataType type, std::span<const std::int64_t> shape,
                                     std::size_t size, std::string_view tensor_name);
// That `bytes` hold a tensor of that type and shape: their count, and for kBytes their lengths.
[[nodiscard]] Result<void> CheckBytes(DataType type, std::span<const std::int64_t> shape,
                                      std::string_view bytes, std::string_view tensor_name);

// More than this in one message is refused, so that a small message cannot take much memory.
inline constexpr std::size_t kMostTensors = 4096;     // Inputs, outputs.
inline constexpr std::size_t kMostParameters = 1024;  // Of a message or a tensor.
inline constexpr std::size_t kMostDimensions = 64;

using Parameter = std::variant<bool, std::int64_t, std::uint64_t, double, std::string>;
using Parameters = std::vector<std::pair<std::string, Parameter>>;

// Null if there is none of that name.
[[nodiscard]] const Parameter* Find(const Parameters& parameters, std::string_view name);

// A tensor of a request or an answer. Its bytes are little-endian, row-major, packed, and belong to
// the message that it came in or is made of.
struct Tensor {
  std::string name = {};
  DataType type = DataType::kFp32;
  Shape shape = {};
  Parameters parameters = {};
  std::string_view bytes = {};

  friend bool operator==(const Tensor&, const Tensor&) = default;
};

struct RequestedOutput {
  std::string name = {};
  Parameters parameters = {};

  friend bool operator==(const RequestedOutput&, const RequestedOutput&) = default;
};

struct InferRequest {
  std::string model = {};    // From the path or the message.
  std::string version = {};  // "" : none was asked for.
  std::string id = {};
  Parameters parameters = {};
  std::vector<Tensor> inputs = {};
  std::vector<RequestedOutput> outputs = {};  // None: all.

  friend bool operator==(const InferRequest&, const InferRequest&) = default;
};

// That all inputs and all outputs have names, each its own, and that no parameter means what we do
// not do: kInvalidArgument for a parameter of the whole request that begins with "triton_" (other
// than `allowed`), kUnsupported for shared memory.
[[nodiscard]] Result<void> CheckNames(const InferRequest& request, std::string_view allowed);

struct InferResponse {
  std::string model = {};
  std::string version = {};
  std::string id = {};
  Parameters parameters = {};
  std::vector<Tensor> outputs = {};

  friend bool operator==(const InferResponse&, const InferResponse&) = default;
};

struct TensorMetadata {
  std::string name = {};
  DataType type = DataType::kFp32;
  Shape shape = {};  // -1: any. With the batch dimension where max_batch > 0.

  friend bool operator==(const TensorMetadata&, const TensorMetadata&) = default;
};

struct ModelMetadata {
  std::string name = {};
  std::vector<std::string> versions = {"1"};
  std::string platform = {};  // "pytorch_libtorch", "divvy_synthetic"
  int max_batch = 0;          // 0: no batch dimension.
  std::vector<TensorMetadata> inputs = {};
  std::vector<TensorMetadata> outputs = {};

  friend bool operator==(const ModelMetadata&, const ModelMetadata&) = default;
};

}  // namespace divvy::kserve
