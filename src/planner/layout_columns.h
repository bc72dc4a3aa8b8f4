#pragma once

#include <span>
#include <vector>

#include "gpu/gpu_model.h"
#include "gpu/mig_layout.h"

namespace divvy::planner {

// One way to cut a GPU, seen as what it offers.
struct LayoutColumn {
  gpu::MigLayout layout;    // One of the legal layouts that offer these instances.
  std::vector<int> counts;  // Instances of each profile, by position in the GpuModel.
};

// Every cut of `model` into instances of `profiles` that is worth a look: legal,
// and no other offers as many of every profile. Any legal set of instances of
// these profiles is part of one of them. In a fixed order; never empty when a
// profile has a place.
[[nodiscard]] std::vector<LayoutColumn> LayoutColumns(const gpu::GpuModel& model,
                                                      std::span<const gpu::ProfileIndex> profiles);

}  // namespace divvy::planner
