#pragma once

// What a batch job's launches wait for, and leave behind for others to see: markers for latency
// jobs, turns among batch jobs, and what the GPU writes down as it passes.

#include "gate/library/timing.h"

namespace divvy::gate {

// One launch under way. Without a sample and `us` there is nothing to do after it.
struct BatchLaunch {
  cuda::Stream stream = nullptr;
  Sample* sample = nullptr;  // it is timed
  int track = 0;
  std::uint32_t us = 0;  // it ends so much work, as predicted, that has no mark yet
};

// Of a launch into a stream that is not being captured: `function` is null for a graph. May pause.
BatchLaunch BeforeBatchLaunch(const Driver& driver, GpuState& gpu, const LaunchShape& shape,
                              cuda::Function function, cuda::Stream stream);
void AfterBatchLaunch(const Driver& driver, GpuState& gpu, const BatchLaunch& launch);

}  // namespace divvy::gate
