#pragma once

#include "planner/deployment.h"
#include "planner/problem.h"

namespace divvy::planner {

// Looks for a better cut than `start`, which it falls back on: GPUs change their
// layout, and instances their model, one at a time, as long as the model that is
// worst off (rate carried by Staircase / rate demanded) gains, or the others do
// while it does not lose; in fleets of more than 64, several equal GPUs at a time. On up to 16 GPUs
// it also begins from every uniform cut. Jobs keep their instances where they are. Deterministic.
//
// REQUIRES: a legal deployment of problem.gpus GPUs with one process a replica.
[[nodiscard]] Deployment SearchCut(const Problem& problem, const Deployment& start);

}  // namespace divvy::planner
