#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "control/migrator.h"
#include "control/policy.h"
#include "planner/problem.h"
#include "sim/simulation.h"
#include "workload/fleet.h"
#include "workload/load.h"

namespace divvy::control {

// Requests of each source from the start to before `end`, drawn by seed: what every
// policy is tried on.
[[nodiscard]] std::vector<std::vector<workload::Arrival>> DrawArrivals(
    std::span<const sim::Source> sources, std::uint64_t seed, Duration end);

// How many of them fall in each slot.
[[nodiscard]] std::vector<std::vector<double>> CountBySlot(
    std::span<const std::vector<workload::Arrival>> arrivals, Duration slot, int slots);

// What policies are made of. All of it outlives them.
struct PolicyInputs {
  const Estate& estate;
  const planner::Problem& problem;  // The same fleet, for static cuts.
  const workload::FleetControl& control;
  const std::vector<std::vector<double>>& arrivals;  // By tenant and slot of the whole run, for
                                                     // those that know the future.
  Solver solver;  // Of Migrator and oracle.
};

// A policy by one of PolicyNames(). kInvalidArgument names those there are; also for a
// forecast that there is none of, and for a static cut that PARIS does not find.
[[nodiscard]] Result<std::unique_ptr<Policy>> MakePolicy(std::string_view name,
                                                         const PolicyInputs& inputs);

struct PolicyName {
  std::string_view name;
  std::string_view what;  // For --help: one line.
};
[[nodiscard]] std::span<const PolicyName> PolicyNames();

}  // namespace divvy::control
