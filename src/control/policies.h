#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "control/migrator.h"
#include "control/policy.h"
#include "planner/problem.h"
#include "workload/fleet.h"

namespace divvy::control {

// What policies are made of. All of it outlives them.
struct PolicyInputs {
  const Estate& estate;
  const planner::Problem& problem;  // The same fleet, for static cuts.
  const workload::FleetControl& control;
  const std::vector<std::vector<double>>& arrivals;  // By tenant and slot of the whole run, for
                                                     // those that know the future.
  Solver solver;                                     // Of Migrator and oracle.
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
