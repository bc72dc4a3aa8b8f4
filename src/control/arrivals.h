#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/time.h"
#include "sim/simulation.h"
#include "workload/load.h"

namespace divvy::control {

// Requests of each source from the start to before `end`, drawn by seed: what every
// policy is tried on.
[[nodiscard]] std::vector<std::vector<workload::Arrival>> DrawArrivals(
    std::span<const sim::Source> sources, std::uint64_t seed, Duration end);

// How many of them fall in each slot.
[[nodiscard]] std::vector<std::vector<double>> CountBySlot(
    std::span<const std::vector<workload::Arrival>> arrivals, Duration slot, int slots);

}  // namespace divvy::control
