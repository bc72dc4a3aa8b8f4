#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "kserve/tensor.h"

namespace divvy::kserve {

// Appends what an InferTensorContents message holds as bytes of `type`. kInvalidArgument: another
// list than the type's is filled, a number does not fit, FP16 and BF16, which only travel raw.
// `bytes` is then longer by an unspecified amount.
[[nodiscard]] Result<void> AppendTypedContents(std::string_view message, DataType type,
                                               std::string& bytes);

}  // namespace divvy::kserve
