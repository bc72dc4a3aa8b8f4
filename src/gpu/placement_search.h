#pragma once

#include <optional>
#include <span>
#include <vector>

#include "gpu/gpu_model.h"
#include "gpu/mig_layout.h"
#include "gpu/transition.h"

namespace divvy::gpu {

// Where wanted instances go. The answers are whole layouts by start; docs/design/
// transitions.md says why the search is exact and why it is fast.
// REQUIRES, for all: `present` is a legal layout of `model`.

// The layout of exactly `wanted` that holds all busy instances and as many idle
// ones as possible; ties as PlanTransition says. Nothing if there is none.
[[nodiscard]] std::optional<std::vector<MigInstance>> PlaceAll(
    const GpuModel& model, std::span<const PresentInstance> present,
    std::span<const WantedInstance> wanted);

// The layout of all busy instances and as much of `wanted` as Unreachable's
// `nearest` says.
[[nodiscard]] std::vector<MigInstance> PlaceMost(const GpuModel& model,
                                                 std::span<const PresentInstance> present,
                                                 std::span<const WantedInstance> wanted);

// Where `target` grants each of `wanted`, in their order; -1 where it does not.
// A wanted instance with a start is granted there only; those without take what
// is left of their profile, lowest start first.
[[nodiscard]] std::vector<int> GrantedStarts(std::span<const MigInstance> target,
                                             std::span<const WantedInstance> wanted);

// The busy ones of `present` that grant nothing in `wanted`, by start.
[[nodiscard]] std::vector<MigInstance> BusyButUnwanted(std::span<const PresentInstance> present,
                                                       std::span<const WantedInstance> wanted);

}  // namespace divvy::gpu
