#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "fleet_input.h"
#include "plan/plan.h"
#include "sim/plan_change.h"
#include "simulate_arguments.h"

namespace divvy::app {

// A plan to be simulated, with those that the GPUs turn to on the way. Parts point
// into one another, so it stays where it was made.
struct CandidatePlan {
  CandidatePlan() = default;
  CandidatePlan(const CandidatePlan&) = delete;
  CandidatePlan& operator=(const CandidatePlan&) = delete;

  std::string name;  // As --plan gave it.
  std::deque<plan::Plan> plans;
  std::deque<serving::PlannedSetup> planned;  // By plan.
  std::vector<TimePoint> from;                // By plan.
  sim::StagedSetup staged;

  [[nodiscard]] std::size_t gpus() const;  // The most that any of its plans uses.

  // Where a replica runs.
  [[nodiscard]] const plan::PlannedGpu& GpuOf(std::size_t replica) const;
  [[nodiscard]] const plan::PlannedInstance& InstanceOf(std::size_t replica) const;
};

// A plan that cannot be simulated.
struct RejectedPlan {
  std::string name;
  std::string why;
  std::optional<int> gpus_needed = {};      // So many would do.
  std::optional<Duration> slo_needed = {};  // Or this SLO of the model that fails.
};

struct Candidates {
  std::vector<std::unique_ptr<CandidatePlan>> plans;
  std::vector<RejectedPlan> rejected;
  std::vector<std::string> notes;  // What a person should know about the plans.
};

// What --plan and --change ask for: each word is a plan file when it has a '/' in it
// or ends in ".yaml" or ".yml", else the name of a planner, which is asked to plan for
// the fleet. A planner that finds nothing, or a file that does not suit the fleet,
// is rejected and the rest goes on. An error is a file that is no plan, or a name
// that no planner has.
[[nodiscard]] Result<Candidates> FindCandidates(const LoadedFleet& fleet,
                                                const std::vector<std::string>& plans,
                                                std::vector<LaterPlan> changes,
                                                const sim::ChangeCost& cost);

}  // namespace divvy::app
