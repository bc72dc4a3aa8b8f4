#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "gpu/gpu_model.h"
#include "workload/batch_distribution.h"
#include "workload/profile.h"

namespace divvy::planner {

// A model to be served: what arrives and by when it must be answered.
struct ModelDemand {
  std::string name;
  const workload::ModelProfile* profile;  // Never null; outlives the problem.
  Duration slo;
  double rate;  // Requests a second.
  workload::BatchDistribution batches = workload::BatchDistribution::Constant(1);
};

// A training job that wants instances of one profile to itself.
struct JobDemand {
  std::string name;
  gpu::ProfileIndex instance;
  int count = 1;
};

// When a batch is in time. A request waits for its batch to form, at worst
// `batching_delay` batch latencies, then runs: (1 + batching_delay) * latency must
// be below safety * SLO. The defaults are ParvaGPU's rule, latency < 0.45 SLO.
struct InTimeRule {
  double safety = 0.9;
  double batching_delay = 1.0;

  // The longest that a batch may take, exclusive.
  [[nodiscard]] double LatencyLimitMs(Duration slo) const {
    return safety * Milliseconds(slo) / (1 + batching_delay);
  }
};

struct Problem {
  const gpu::GpuModel* gpu;      // Outlives the problem.
  std::optional<int> gpus = {};  // Nothing: as few as will do.
  std::vector<ModelDemand> models = {};
  std::vector<JobDemand> jobs = {};
  InTimeRule rule = {};
  std::uint64_t seed = 1;  // For planners that draw lots.
};

// One way to run a model on one instance.
struct Option {
  gpu::ProfileIndex profile;
  int processes = 1;
  int max_batch = 1;      // Items; larger requests cannot be served here.
  double latency_ms = 0;  // Of a batch of max_batch.
  double capacity = 0;    // Items a second with full batches.
};

// What `processes` of `model` on an instance of `profile` give when batches may
// have up to `max_batch` items: max_batch of the answer is the largest of those
// that is in time, and capacity and latency are that one's. Nothing when it was not
// measured, no batch is in time, MPS does not serve so many processes, or the
// memory is known and max_batch does not fit.
[[nodiscard]] std::optional<Option> OptionWithin(const ModelDemand& model, const gpu::GpuModel& gpu,
                                                 const InTimeRule& rule, gpu::ProfileIndex profile,
                                                 int processes, int max_batch);

// The way to run `model` that answers a batch of `batch` items soonest, whatever
// its SLO; max_batch is `batch`. Nothing when it was measured nowhere that fits.
[[nodiscard]] std::optional<Option> QuickestFor(const ModelDemand& model, const gpu::GpuModel& gpu,
                                                int batch);

// Items a second that arrive in requests of at least `batch` items.
[[nodiscard]] double ItemsInRequestsOf(const ModelDemand& model, int batch);

// Every useful way to run `model` on `gpu` within the rule: for each profile of
// the base set (and any that the profile file names in full), processes and batch
// such that no other option of the same profile has both at least its capacity
// and at least its max_batch. By profile, then ascending max_batch. Options whose
// memory is known and does not fit the instance are left out, and those with more
// processes than MPS serves there.
[[nodiscard]] std::vector<Option> UsefulOptions(const ModelDemand& model, const gpu::GpuModel& gpu,
                                                const InTimeRule& rule);

}  // namespace divvy::planner
