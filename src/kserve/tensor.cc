#include "kserve/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstring>
#include <limits>

#include "base/text_safety.h"
#include "kserve/duplicate.h"

namespace divvy::kserve {
namespace {

struct TypeFacts {
  std::string_view name;
  std::size_t bytes;
};

// In the order of DataType.
constexpr std::array<TypeFacts, 14> kTypes = {{{"BOOL", 1},
                                               {"UINT8", 1},
                                               {"UINT16", 2},
                                               {"UINT32", 4},
                                               {"UINT64", 8},
                                               {"INT8", 1},
                                               {"INT16", 2},
                                               {"INT32", 4},
                                               {"INT64", 8},
                                               {"FP16", 2},
                                               {"BF16", 2},
                                               {"FP32", 4},
                                               {"FP64", 8},
                                               {"BYTES", 0}}};
static_assert(static_cast<std::size_t>(DataType::kBytes) == kTypes.size() - 1);

const TypeFacts& FactsOf(DataType type) { return kTypes[static_cast<std::size_t>(type)]; }

std::string Written(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ","));
}

// The elements of a BYTES tensor: each a length of 32 bits and that many bytes.
Result<void> CheckElements(std::size_t count, std::string_view bytes,
                           std::string_view tensor_name) {
  std::size_t at = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t length = 0;
    if (bytes.size() - at < sizeof length) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("tensor {}: its {} bytes end in element {} of {}",
                              Quoted(tensor_name), bytes.size(), i, count));
    }
    std::memcpy(&length, bytes.data() + at, sizeof length);
    at += sizeof length;
    if (bytes.size() - at < length) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("tensor {}: element {} says it has {} bytes, {} are left",
                              Quoted(tensor_name), i, length, bytes.size() - at));
    }
    at += length;
  }
  if (at == bytes.size()) return {};
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("tensor {}: {} bytes are left behind its {} elements",
                          Quoted(tensor_name), bytes.size() - at, count));
}

Result<void> CheckParameters(const Parameters& parameters, std::string_view of) {
  for (const auto& [name, value] : parameters) {
    if (name.starts_with("shared_memory_")) {
      return Fail(
          ErrorCode::kUnsupported,
          fmt::format("{}: parameter {}: shared memory is not supported; send the tensor in "
                      "the message",
                      Quoted(of), Quoted(name)));
    }
  }
  return {};
}

// `List` is of things with a name and parameters.
template <typename List>
Result<void> CheckList(const List& list, std::string_view what) {
  std::vector<std::string_view> names;
  if (list.size() > 1) names.reserve(list.size());
  for (const auto& each : list) {
    if (each.name.empty()) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} {} has no name", what, &each - list.data()));
    }
    if (list.size() > 1) names.push_back(each.name);
    if (auto fine = CheckParameters(each.parameters, each.name); !fine) return fine;
  }
  if (const auto twice = FindDuplicate(names)) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} {} occurs twice in the request", what, Quoted(*twice)));
  }
  return {};
}

}  // namespace

std::optional<DataType> ParseDataType(std::string_view name) {
  for (std::size_t i = 0; i < kTypes.size(); ++i) {
    if (kTypes[i].name == name) return static_cast<DataType>(i);
  }
  return std::nullopt;
}

std::string_view Name(DataType type) { return FactsOf(type).name; }

std::size_t SizeOf(DataType type) { return FactsOf(type).bytes; }

Result<std::size_t> CountOf(std::span<const std::int64_t> shape) {
  bool empty = false;
  for (const std::int64_t dimension : shape) {
    if (dimension < 0) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("shape {} has a negative dimension", Written(shape)));
    }
    empty = empty || dimension == 0;
  }
  // Nothing is nothing, however large the other dimensions are.
  if (empty) return 0;
  std::size_t count = 1;
  for (const std::int64_t dimension : shape) {
    if (__builtin_mul_overflow(count, static_cast<std::size_t>(dimension), &count)) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("shape {} has too many elements", Written(shape)));
    }
  }
  return count;
}

Result<void> CheckSize(DataType type, std::span<const std::int64_t> shape, std::size_t size,
                       std::string_view tensor_name) {
  const auto count = CountOf(shape);
  if (!count) {
    return Fail(count.error().code,
                fmt::format("tensor {}: {}", Quoted(tensor_name), count.error().message));
  }
  const bool strings = type == DataType::kBytes;
  // Elements of BYTES take at least their length's four bytes.
  const std::size_t each = strings ? sizeof(std::uint32_t) : SizeOf(type);
  std::size_t needed = 0;
  const bool overflow = __builtin_mul_overflow(*count, each, &needed);
  if (!overflow && (strings && *count > 0 ? size >= needed : size == needed)) return {};
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("tensor {}: {} of shape {} takes {}{} bytes, got {}", Quoted(tensor_name),
                          Name(type), Written(shape), strings ? "at least " : "",
                          overflow ? "more than 2^64" : std::to_string(needed), size));
}

Result<void> CheckBytes(DataType type, std::span<const std::int64_t> shape, std::string_view bytes,
                        std::string_view tensor_name) {
  auto size = CheckSize(type, shape, bytes.size(), tensor_name);
  if (!size || type != DataType::kBytes) return size;
  return CheckElements(*CountOf(shape), bytes, tensor_name);
}

const Parameter* Find(const Parameters& parameters, std::string_view name) {
  for (const auto& [key, value] : parameters) {
    if (key == name) return &value;
  }
  return nullptr;
}

Result<void> CheckNames(const InferRequest& request, std::string_view allowed) {
  for (const auto& [name, value] : request.parameters) {
    if (name.starts_with("triton_") && name != allowed) {
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format("parameter {}: names that begin with triton_ are reserved", Quoted(name)));
    }
  }
  if (auto fine = CheckList(request.inputs, "input"); !fine) return fine;
  return CheckList(request.outputs, "output");
}

}  // namespace divvy::kserve
