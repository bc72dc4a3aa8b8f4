#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fleet_input.h"
#include "gpu/strip.h"
#include "planner/leftovers.h"
#include "planning.h"

namespace divvy::app {

// A planner beside the one that was asked.
struct Rival {
  Attempt attempt;
  std::optional<int> gpus_needed = {};  // To carry the fleet; nothing when no number would do.
};

// What `divvy plan FLEET` has to say.
struct PlanReport {
  const LoadedFleet& fleet;
  Attempt chosen;
  std::vector<Rival> rivals = {};                       // Empty when no comparison was asked for.
  std::vector<planner::LeftoverAdvice> leftovers = {};  // Empty when no jobs were named.
};

// For a person: what was planned, the cut, each model, why, how others do, notes.
// Ends with a newline.
[[nodiscard]] std::string DescribePlan(const PlanReport& report, gpu::Ink ink);

// The same for programs.
[[nodiscard]] std::string PlanToJson(const PlanReport& report);

}  // namespace divvy::app
