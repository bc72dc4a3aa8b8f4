#pragma once

#include <span>
#include <vector>

#include "gpu/gpu_model.h"
#include "gpu/mig_layout.h"

namespace divvy::gpu {

// Every legal layout of `model` made of `profiles`, the empty one included, in
// lexicographic order of instances (start first).
[[nodiscard]] std::vector<MigLayout> EnumerateLayouts(const GpuModel& model,
                                                      std::span<const ProfileIndex> profiles);

// Those of EnumerateLayouts to which nothing of `profiles` can be added, in the
// same order.
[[nodiscard]] std::vector<MigLayout> EnumerateMaximalLayouts(
    const GpuModel& model, std::span<const ProfileIndex> profiles);

// The distinct multisets of profiles among `layouts` (see ProfilesOf), the empty
// one left out, in lexicographic order.
[[nodiscard]] std::vector<std::vector<ProfileIndex>> DistinctMultisets(
    std::span<const MigLayout> layouts);

}  // namespace divvy::gpu
