#pragma once

#include <optional>
#include <string>

#include "base/result.h"

namespace divvy::app {

// One GPU or MIG instance.
struct JobGpu {
  // "GPU-..." or "MIG-...". Where there is no NVML to ask, a number as CUDA counts by
  // PCI address, or a UUID that nobody has checked.
  std::string id;
  std::string label;  // For people: "GPU 0", "GPU 0, MIG-...".
  // One process at a time may use it: in compute mode exclusive-process.
  bool exclusive = false;

  bool has_uuid() const { return !id.empty() && id.front() > '9'; }
};

// Where a job will run.
struct GpuChoice {
  std::optional<JobGpu> gpu;
  std::string why_none;        // Without `gpu`: why it is not one GPU, for people.
  std::string unchecked = {};  // Why nobody could tell whether the word of --gpu is right.
};

// `wanted` is the word of --gpu (an index as nvidia-smi counts, or a UUID or its
// beginning; empty if not given), `visible` is CUDA_VISIBLE_DEVICES (null if unset) and
// `nvml` the library to ask. Without `wanted` the job runs where it would without Divvy,
// which need not be one GPU.
//   kNotFound            --gpu names none, or several, of this node's GPUs;
//   kInvalidArgument     --gpu names a GPU that is cut into MIG instances;
//   kFailedPrecondition  the GPU is in compute mode prohibited.
[[nodiscard]] Result<GpuChoice> ChooseGpu(const std::string& wanted, const char* visible,
                                          const std::string& nvml);

}  // namespace divvy::app
