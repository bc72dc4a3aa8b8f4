#pragma once

#include "device/nvml_abi.h"

// Structs of NVML that Divvy itself does not use, but other programs do.

namespace divvy::device::simulator {

struct MemoryV2 {
  unsigned version;
  unsigned long long total;
  unsigned long long reserved;
  unsigned long long free;
  unsigned long long used;
};

// Of nvmlDeviceGetComputeRunningProcesses in its first form.
struct ProcessInfoV1 {
  unsigned pid;
  unsigned long long usedGpuMemory;
};

static_assert(sizeof(MemoryV2) == 40);
static_assert(sizeof(ProcessInfoV1) == 16);

}  // namespace divvy::device::simulator
