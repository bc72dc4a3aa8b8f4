#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "device/nvml_abi.h"

namespace divvy::device::simulator {

// "IN_USE" for nvml::kInUse: NVML's own name without its NVML_ERROR_ prefix;
// the number for codes that have none.
[[nodiscard]] std::string ReturnName(nvml::Return code);

// The code that `text` means: a name as above, in either case and with or
// without the prefix, or a number that NVML uses. Nothing if it is neither.
[[nodiscard]] std::optional<nvml::Return> ParseReturn(std::string_view text);

// What nvmlErrorString answers: the name. Lives as long as the program.
[[nodiscard]] const char* DescribeReturn(nvml::Return code);

}  // namespace divvy::device::simulator
