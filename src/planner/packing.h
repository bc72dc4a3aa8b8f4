#pragma once

#include <optional>
#include <span>
#include <vector>

#include "gpu/gpu_model.h"
#include "gpu/mig_layout.h"

namespace divvy::planner {

// Where a wanted instance went.
struct Packed {
  int gpu;
  gpu::MigInstance instance;
};

// Packs instances into legal layouts, largest first over the fleet, each GPU's
// places planned so that as little as possible is lost. Answers in the order of
// `wanted`; an entry is empty when that instance found no room on `gpus` GPUs.
// Never uses more GPUs than it must open.
[[nodiscard]] std::vector<std::optional<Packed>> Pack(const gpu::GpuModel& model, int gpus,
                                                      std::span<const gpu::ProfileIndex> wanted);

}  // namespace divvy::planner
