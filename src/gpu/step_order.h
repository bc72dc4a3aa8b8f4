#pragma once

#include <span>
#include <vector>

#include "gpu/gpu_model.h"
#include "gpu/mig_layout.h"
#include "gpu/transition.h"

namespace divvy::gpu {

// The steps from `present` to `target`, each instance touched at most once, every
// layout between them legal. A create that needs nothing destroyed comes before
// all others; where every remaining create needs room, the one that needs the
// fewest destroyed is next, right after what it needs, of which nothing could be
// left out. What nobody needs gone goes last. Ties: lowest start.
// REQUIRES: both are legal layouts of `model`.
[[nodiscard]] std::vector<TransitionStep> OrderSteps(const GpuModel& model,
                                                     std::span<const PresentInstance> present,
                                                     std::span<const MigInstance> target);

}  // namespace divvy::gpu
