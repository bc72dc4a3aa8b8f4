#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"

namespace divvy::net {

// What is around deflated bytes.
enum class DeflateFrame { kGzip, kZlib };

// Undoes a compression. kResourceExhausted: it would be more than `most_bytes`, and no more than
// that was made; kInvalidArgument: `packed` is not one whole frame of that kind.
[[nodiscard]] Result<std::string> Inflate(std::string_view packed, DeflateFrame frame,
                                          std::size_t most_bytes);

}  // namespace divvy::net
