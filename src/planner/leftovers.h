#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/advice.h"
#include "planner/deployment.h"
#include "planner/problem.h"
#include "workload/jobs_file.h"

namespace divvy::planner {

// An instance that a deployment leaves room for.
struct FreePlace {
  std::size_t gpu = 0;
  gpu::MigInstance instance = {};
  ExpectedSpeed speed = {};
};

// A GPU whose services a job would run beside, under the gate: for cuts that are made of MPS
// shares, which leave nothing free for ever.
struct BesidePlace {
  std::size_t gpu = 0;
  double busy = 0;  // The share of the GPU that its services take, by the fleet's load; and what
                    // jobs of the plan have, all of it.
  ExpectedSpeed speed = {};
};

struct LeftoverAdvice {
  std::string job;
  Demand demand = {};
  std::optional<FreePlace> free = {};
  std::string why_not = {};                // When there is no `free`.
  std::optional<BesidePlace> beside = {};  // As if it were the only one of the jobs there.
  std::string why_not_beside = {};         // When there is no `beside`.
};

// Where jobs could run without taking anything from the models of a deployment: each in turn gets
// the free instance in which it is expected to be fastest, of those that hold its memory. Idle
// instances are free, and so are GPUs of the problem that the deployment does not use. `power_w` is
// the board's limit, where known. One answer a job, in order. Latency jobs get none of either: they
// are services, and belong into the fleet.
[[nodiscard]] std::vector<LeftoverAdvice> JobsInLeftovers(
    const Problem& problem, const Deployment& deployment,
    const std::vector<workload::CollocatedJob>& jobs, std::optional<double> power_w);

}  // namespace divvy::planner
