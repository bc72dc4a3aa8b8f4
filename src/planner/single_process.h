#pragma once

#include <optional>

#include "planner/problem.h"

// How planners see a model that know nothing of MPS and merge no requests: one
// process an instance, a request is a batch.

namespace divvy::planner {

// One process of `model` on `profile` that takes requests as large as were measured
// and fit the memory, at most the largest that occurs. Latency and capacity are
// those of full batches, in time or not. Nothing when it was not measured there.
[[nodiscard]] std::optional<Option> SingleProcess(const ModelDemand& model,
                                                  const gpu::GpuModel& gpu,
                                                  gpu::ProfileIndex profile);

// The same as a replica for serving: where more items are in time by the rule than
// the largest request has, it takes that many, so that a route that merges may fill
// them. REQUIRES: SingleProcess.
[[nodiscard]] Option SingleReplica(const ModelDemand& model, const gpu::GpuModel& gpu,
                                   const InTimeRule& rule, gpu::ProfileIndex profile);

// Milliseconds that a request of `model` takes on `profile`, on average; larger
// requests than were measured count as the largest. REQUIRES: SingleProcess.
[[nodiscard]] double MeanLatencyMs(const ModelDemand& model, const gpu::GpuModel& gpu,
                                   gpu::ProfileIndex profile);

}  // namespace divvy::planner
