#pragma once

#include <functional>
#include <string_view>

#include "planner/deployment.h"
#include "planner/problem.h"

namespace divvy::planner {

// For planners that only know how to use a given number of GPUs: `plan` for
// problem.gpus, or, with that empty, for the smallest number found for which the
// plan carries everything, up to 4096. Numbers are doubled, then bisected: a planner
// that does worse with more GPUs may have a smaller answer that is not found.
[[nodiscard]] Outcome WithEnoughGpus(const Problem& problem,
                                     const std::function<Outcome(const Problem&)>& plan);

// For planners that choose the number of GPUs themselves: `deployment` as the
// answer, with empty GPUs up to problem.gpus; Infeasible when it has more than
// these. `who` made it.
[[nodiscard]] Outcome FitInto(const Problem& problem, Deployment deployment, std::string_view who);

}  // namespace divvy::planner
