#pragma once

#include <cstddef>

#include "base/result.h"
#include "engine/engine.h"

namespace divvy::engine {

// The `most` largest elements of each item (all of them, if there are fewer) as texts
// "value:index", the largest first and, among equals, the first first: Triton's classification
// extension. An item is all of the tensor behind its first dimension; without a `batched` one, all
// of it. kInvalidArgument for texts, which have no order.
[[nodiscard]] Result<Output> Classify(const Output& scores, std::size_t most, bool batched);

}  // namespace divvy::engine
