#pragma once

#include <span>
#include <string_view>

namespace divvy::device::simulator {

// Every function that the simulated library exports, sorted by name.
[[nodiscard]] std::span<const std::string_view> FunctionNames();

// Those that the library in the manner of an older driver leaves out.
[[nodiscard]] std::span<const std::string_view> NewerFunctionNames();

}  // namespace divvy::device::simulator
