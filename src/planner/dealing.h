#pragma once

#include <optional>
#include <vector>

#include "planner/deployment.h"
#include "planner/problem.h"

namespace divvy::planner {

// Fleets that are cut first and dealt out afterwards.

// `gpus` GPUs with the jobs' instances on them and nothing else; nothing when they
// have no room.
[[nodiscard]] std::optional<Deployment> PlaceJobs(const Problem& problem, int gpus);

// Gives `free` instances to models, one process each, so that the shares of their
// demand that they can answer are as even as may be; every model gets one first.
// `why` begins each replica's reason. Infeasible when a model was measured on
// none of them, or they are fewer than the models.
struct FreeInstance {
  std::size_t gpu;
  gpu::MigInstance instance;
};
[[nodiscard]] Outcome Deal(const Problem& problem, Deployment jobs, std::vector<FreeInstance> free,
                           const std::string& why);

}  // namespace divvy::planner
