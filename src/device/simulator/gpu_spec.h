#pragma once

#include <string_view>

#include "base/result.h"
#include "device/simulator/state.h"

namespace divvy::device::simulator {

// A fresh node from text such as "H200-141GB+mig:4,A30-24GB": catalogue names,
// "+mig" for GPUs in MIG mode, ":N" for N of them, commas between.
// kInvalidArgument or kNotFound, naming the part that is wrong.
[[nodiscard]] Result<State> ParseGpuSpec(std::string_view text);

}  // namespace divvy::device::simulator
