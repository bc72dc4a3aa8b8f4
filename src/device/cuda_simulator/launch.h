#pragma once

#include "device/cuda_simulator/driver.h"

namespace divvy::device::cuda_simulator {

// What is asked of a launch, by whichever entry point; `parameters` may be null.
struct LaunchRequest {
  cuda::Function function;
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  void** parameters;
  void** extra;
};

// Blocks of `threads` each that an SM holds at once; 0 where a block is too large.
int BlocksPerSm(const MachineSpec& spec, const KernelCode& code, unsigned threads);

// A node of a kernel for `context`: what a launch submits, and a graph holds. kInvalidHandle where
// the function is none, kInvalidValue for a shape that no GPU runs or a parameter that is missing.
[[nodiscard]] cuda::Result MakeKernelNode(const Driver& driver, const ContextState& context,
                                          const LaunchRequest& request, Node& node);

}  // namespace divvy::device::cuda_simulator
