#include <fmt/format.h>

#include "planner/baselines.h"
#include "planner/exact.h"
#include "planner/paris.h"

namespace divvy::planner {
namespace {

// As a function without state, which is what NamedPlanner holds.
template <int kSlices>
Outcome HomogeneousOf(const Problem& problem) {
  std::vector<std::string> sizes;
  for (const gpu::ProfileIndex size : problem.gpu->Select(gpu::ProfileSet::kBase)) {
    const int slices = problem.gpu->profile(size).compute_slices;
    if (slices == kSlices) return PlanHomogeneous(problem, size);
    sizes.push_back(fmt::format("{}g", slices));
  }
  return Infeasible{.why = fmt::format("{} has no {}g instances; it has {}", problem.gpu->name,
                                       kSlices, fmt::join(sizes, ", "))};
}

}  // namespace

const std::vector<NamedPlanner>& Planners() {
  static const std::vector<NamedPlanner> planners = {
      {"exact", "fewest GPUs, then most headroom; proven by MILP", PlanExact},
      {"paris", "PARIS, then a search over legal cuts that knows the SLO", PlanParis},
      {"paris-nearest", "PARIS as published, rounded to the nearest legal cut", PlanParisNearest},
      {"homogeneous-1g", "every GPU cut into 1g instances", HomogeneousOf<1>},
      {"homogeneous-2g", "every GPU cut into 2g instances", HomogeneousOf<2>},
      {"homogeneous-3g", "every GPU cut into 3g instances", HomogeneousOf<3>},
      {"homogeneous-4g", "every GPU cut into 4g instances", HomogeneousOf<4>},
      {"homogeneous-7g", "every GPU cut into 7g instances", HomogeneousOf<7>},
      {"best-homogeneous", "the homogeneous cut with the lowest load", PlanBestHomogeneous},
      {"random", "every GPU cut by lot", PlanRandom},
      {"gpulet", "at most two partitions a GPU, best fit", PlanGpulet},
      {"parvagpu", "best throughput a slice for each model, then packed", PlanParvaGpu},
  };
  return planners;
}

}  // namespace divvy::planner
