#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"
#include "kserve/json_writer.h"
#include "kserve/tensor.h"

// Tensors as JSON arrays and as bytes.

namespace divvy::kserve {

// Appends what `array`, JSON of numbers, booleans or strings, flat or nested in any way, holds as a
// tensor of `count` elements. kInvalidArgument, with the element: another number of elements, one
// that the type cannot hold (whole numbers are written without a point; BOOL takes 0 and 1 too),
// FP16 and BF16, which never travel in JSON. `bytes` is then longer by an unspecified amount.
[[nodiscard]] Result<void> AppendJsonData(std::string_view array, DataType type, std::size_t count,
                                          std::string_view tensor_name, std::string& bytes);

// Writes a tensor's bytes as a flat array. kInvalidArgument, with nothing written that counts: the
// bytes are no such tensor, FP16 and BF16, and values that JSON cannot say: infinities, NaN, and
// BYTES that are not UTF-8.
[[nodiscard]] Result<void> WriteJsonData(const Tensor& tensor, JsonWriter& writer);

}  // namespace divvy::kserve
