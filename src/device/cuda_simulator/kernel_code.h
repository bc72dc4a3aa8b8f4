#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/cuda_simulator/clock.h"

namespace divvy::device::cuda_simulator {

// A kernel as the simulator knows it: how long it takes, and how many of its blocks an SM holds.
struct KernelCode {
  std::string name;
  Nanos duration = 10 * kMicrosecond;  // With all the SMs its blocks can use.
  int per_sm = 0;                      // Blocks an SM holds; 0: as its threads allow.
  bool duration_is_parameter = false;  // The first parameter, a float, gives microseconds.
  // Its parameters are the address of a 32-bit word, a value and nanoseconds: it ends when the word
  // has come to the value, as a wait in a stream does, at the latest after that time.
  bool is_hold = false;
};

// Reads the "code" of a module: one kernel a line, `kernel NAME [us=200] [per_sm=2] [param_us=1]`.
// Empty lines and lines from '#' on mean nothing. Text that begins with `.version` is PTX; in it,
// one kernel is known, the gate's divvy_hold. kInvalidArgument, naming line and word.
[[nodiscard]] Result<std::vector<KernelCode>> ParseKernels(std::string_view text);

}  // namespace divvy::device::cuda_simulator
