#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "planner/deployment.h"
#include "planner/problem.h"

namespace divvy::planner {

// Homogeneous and random cuts use the GPUs that problem.gpus says; with that empty,
// the fewest (as far as found) on which the plan carries everything. Replicas have
// one process and take requests as large as were measured.

// Every GPU cut into as many instances of one size as fit; models take shares of
// them by demand (rate * time per request on that size), each at least one.
[[nodiscard]] Outcome PlanHomogeneous(const Problem& problem, gpu::ProfileIndex size);

// The homogeneous cut with the lowest highest load (Assess), in case of a tie the larger size.
[[nodiscard]] Outcome PlanBestHomogeneous(const Problem& problem);

// Each GPU one of the maximal layouts, drawn with problem.seed; instances dealt
// to models by demand.
[[nodiscard]] Outcome PlanRandom(const Problem& problem);

// gpulet and ParvaGPU choose the number of GPUs themselves; Infeasible when that is
// above problem.gpus. GPUs beyond it stay empty.

// gpulet: at most two partitions a GPU. Its own rule, two batches within the SLO,
// decides what is in time, so that Carries may disagree. docs/design/planners.md.
[[nodiscard]] Outcome PlanGpulet(const Problem& problem);

// ParvaGPU's greedy: per model the option with the best throughput per slice,
// floor(rate / throughput) of them and the smallest instance that takes the rest;
// then packed, large first.
[[nodiscard]] Outcome PlanParvaGpu(const Problem& problem);

// A planner by the name that --policy takes.
struct NamedPlanner {
  std::string_view name;
  std::string_view what;  // For --help.
  Outcome (*plan)(const Problem&);
};

// exact, paris, paris-nearest, homogeneous-1g .. homogeneous-7g (sizes by compute slices),
// best-homogeneous, random, gpulet, parvagpu.
[[nodiscard]] const std::vector<NamedPlanner>& Planners();

}  // namespace divvy::planner
