#include "planner/replicas.h"

#include <fmt/format.h>

namespace divvy::planner {
namespace {

const std::string& NameOf(const Problem& problem, gpu::MigInstance instance) {
  return problem.gpu->profile(instance.profile).name;
}

}  // namespace

Replica ModelReplica(const Problem& problem, gpu::MigInstance instance, std::size_t model,
                     const Option& option) {
  const ModelDemand& demand = problem.models[model];
  return {.instance = instance,
          .kind = Replica::Kind::kModel,
          .index = model,
          .processes = option.processes,
          .max_batch = option.max_batch,
          .why = fmt::format("{}: {} {} of {}, batch {}: {:.0f} items/s at {:.4g} ms (limit "
                             "{:.4g} ms)",
                             NameOf(problem, instance), option.processes,
                             option.processes == 1 ? "process" : "processes", demand.name,
                             option.max_batch, option.capacity, option.latency_ms,
                             problem.rule.LatencyLimitMs(demand.slo))};
}

Replica JobReplica(const Problem& problem, gpu::MigInstance instance, std::size_t job) {
  return {.instance = instance,
          .kind = Replica::Kind::kJob,
          .index = job,
          .why = fmt::format("{}: asked for by job {}", NameOf(problem, instance),
                             problem.jobs[job].name)};
}

Replica IdleReplica(const Problem& problem, gpu::MigInstance instance) {
  return {
      .instance = instance,
      .why = fmt::format("{}: left over; no model would gain by it", NameOf(problem, instance))};
}

}  // namespace divvy::planner
