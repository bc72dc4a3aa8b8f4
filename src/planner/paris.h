#pragma once

#include <vector>

#include "planner/deployment.h"
#include "planner/problem.h"

namespace divvy::planner {

// PARIS' steps for one model, kept apart so that they can be looked at. Indexed by
// partition size, ascending in compute; sizes are the base profiles that the
// model was measured on with one process.
struct ParisSteps {
  std::vector<gpu::ProfileIndex> sizes;
  std::vector<double> weights;  // Of an instance, in compute slices' worth.
  std::vector<int> raw_knees;
  std::vector<int> knees;      // After the running maximum; the last is the largest request.
  std::vector<double> demand;  // R: instance-milliseconds per query.
  std::vector<double> counts;  // N before rounding.
};

// The steps of PARIS up to the rounding.
//
// The knee of a size is the smallest batch with a utilisation of at least 0.8 if
// its curve has that column, else with at least 0.8 of the best throughput that
// batches up to the largest request have. `budget` is in compute slices. Where the SMs of all sizes
// are known an instance weighs its share of the GPU's SMs, so that on Hopper a 3g weighs nearly as
// much as a 4g; otherwise it weighs its compute slices.
[[nodiscard]] ParisSteps RunParis(const ModelDemand& model, const gpu::GpuModel& gpu,
                                  double budget);

// PARIS over all GPUs of the problem, as close to the published steps as whole
// instances and legal layouts allow: splits the budget by demand, rounds, packs, and
// fills what is left over. With problem.gpus empty, the fewest GPUs (as far as found)
// on which that carries everything. Infeasible when the GPUs cannot hold one
// instance for every model.
[[nodiscard]] Outcome PlanParisNearest(const Problem& problem);

// The same, with our own last step: PARIS' counts know nothing of the SLO, so they are
// only where a search over legal cuts sets out from (SearchCut). What it ends with
// may be far from the counts; docs/design/planners.md says when and by how much.
[[nodiscard]] Outcome PlanParis(const Problem& problem);

}  // namespace divvy::planner
