#pragma once

#include <optional>
#include <vector>

#include "planner/goodput_columns.h"

namespace divvy::planner {

// An instance that serves a tenant.
struct Seat {
  gpu::MigInstance place;
  std::size_t tenant = 0;

  friend auto operator<=>(const Seat&, const Seat&) = default;
};

// All that serve on one GPU, by place.
using Seating = std::vector<Seat>;

// Places for an allocation beside `pins`: those that keep the most of `near` where it
// is, capacity counted as a share of its tenant's load, and otherwise stay off `avoid`,
// places that will be needed for something else. Nothing when it does not fit.
[[nodiscard]] std::optional<Seating> SeatNear(const GoodputProblem& problem, const Cuts& cuts,
                                              const Allocation& allocation, const Cuts::Pins& pins,
                                              const Seating& near, const Cuts::Pins& avoid);

// True when no seat shares a memory slice with `place`.
[[nodiscard]] bool Apart(const gpu::GpuModel& gpu, const Seating& seating, gpu::MigInstance place);

}  // namespace divvy::planner
