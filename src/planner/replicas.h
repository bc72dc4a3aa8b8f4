#pragma once

#include <cstddef>

#include "planner/deployment.h"
#include "planner/problem.h"

namespace divvy::planner {

// Replicas with their `why` written.

// `option` of a model; its latency and capacity are what `why` quotes.
[[nodiscard]] Replica ModelReplica(const Problem& problem, gpu::MigInstance instance,
                                   std::size_t model, const Option& option);

[[nodiscard]] Replica JobReplica(const Problem& problem, gpu::MigInstance instance,
                                 std::size_t job);

[[nodiscard]] Replica IdleReplica(const Problem& problem, gpu::MigInstance instance);

}  // namespace divvy::planner
