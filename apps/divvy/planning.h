#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "planner/baselines.h"
#include "planner/deployment.h"
#include "planner/problem.h"

namespace divvy::app {

// What one planner makes of a problem, held against it by planner::Assess and not
// by what the planner says of itself: some give the best they can on the GPUs there
// are, be it enough or not.
struct Attempt {
  std::string_view policy;
  std::optional<planner::Deployment> deployment = {};  // Nothing: it found none at all.
  std::string proof = {};                              // As planner::Planned.
  std::vector<planner::ModelFigures> figures = {};     // By model; empty without deployment.
  double fullest;        // Load of the fullest model; infinite when some request fits nowhere,
                         // and without a deployment.
  bool carries = false;  // Every model and every job.
  planner::Infeasible failure = {};  // Why not.

  // Those that have an instance: not every planner cuts all GPUs that there are.
  [[nodiscard]] int gpus() const;

  // By how much all rates could grow together.
  [[nodiscard]] double headroom() const { return 1 / fullest; }
};

// The planner of this name; kInvalidArgument names the nearest, or all.
[[nodiscard]] Result<const planner::NamedPlanner*> FindPlanner(std::string_view name);

[[nodiscard]] Attempt PlanBy(const planner::NamedPlanner& planner, const planner::Problem& problem);

// How many GPUs this planner needs to carry the problem, whatever number the problem
// gives; nothing when no number would do.
[[nodiscard]] std::optional<int> GpusNeeded(const planner::NamedPlanner& planner,
                                            const planner::Problem& problem);

}  // namespace divvy::app
