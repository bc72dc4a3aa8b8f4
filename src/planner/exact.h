#pragma once

#include "planner/deployment.h"
#include "planner/problem.h"

namespace divvy::planner {

// Assumptions: a model's replicas carry its load if, for every size b, those that
// take requests of b carry the items of all requests of at least b (requests of
// one model may be split freely); capacities are those of full batches (Option).
//
// With problem.gpus empty: the fewest GPUs that carry every model and hold every
// job, and among those the deployment with the most headroom, the largest factor
// by which all rates could grow together. With a count: most headroom on exactly
// those GPUs, Infeasible when it is below 1. Columns of the MILP are legal
// layouts, so whatever it chooses can be cut. docs/design/exact-planner.md.
[[nodiscard]] Outcome PlanExact(const Problem& problem);

// The dual question: the largest factor by which all rates may be multiplied so
// that `problem.gpus` GPUs carry them. 0 when a request fits no instance in time.
// REQUIRES: problem.gpus.
[[nodiscard]] double LargestLoadFactor(const Problem& problem);

}  // namespace divvy::planner
