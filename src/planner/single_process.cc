#include "planner/single_process.h"

#include <algorithm>

#include "base/check.h"

namespace divvy::planner {

namespace {

// The largest batch up to `batch` whose memory, where it is known, the instance has.
int LargestThatFits(const workload::ProfileCurve& curve, const gpu::MigProfile& instance,
                    int batch) {
  const auto too_large = [&] {
    const std::optional<double> needed = curve.MemoryMib(batch);
    return needed && instance.memory_mib && *needed > *instance.memory_mib;
  };
  while (batch > 0 && too_large()) --batch;
  return batch;
}

}  // namespace

std::optional<Option> SingleProcess(const ModelDemand& model, const gpu::GpuModel& gpu,
                                    gpu::ProfileIndex profile) {
  const gpu::MigProfile& instance = gpu.profile(profile);
  const workload::ProfileCurve* curve = model.profile->Find(instance, 1);
  if (curve == nullptr) return std::nullopt;
  const int batch =
      LargestThatFits(*curve, instance, std::min(curve->largest_batch(), model.batches.largest()));
  if (batch == 0) return std::nullopt;
  return Option{profile, 1, batch, *curve->LatencyMs(batch), *curve->Throughput(batch)};
}

Option SingleReplica(const ModelDemand& model, const gpu::GpuModel& gpu, const InTimeRule& rule,
                     gpu::ProfileIndex profile) {
  const std::optional<Option> single = SingleProcess(model, gpu, profile);
  Check(single.has_value(), "the model was measured with one process there");
  const workload::ProfileCurve& curve = *model.profile->Find(gpu.profile(profile), 1);
  const int fits = LargestThatFits(curve, gpu.profile(profile), curve.largest_batch());
  const auto merged = OptionWithin(model, gpu, rule, profile, 1, fits);
  return merged && merged->max_batch > single->max_batch ? *merged : *single;
}

double MeanLatencyMs(const ModelDemand& model, const gpu::GpuModel& gpu,
                     gpu::ProfileIndex profile) {
  const workload::ProfileCurve* curve = model.profile->Find(gpu.profile(profile), 1);
  Check(curve != nullptr, "the model was measured with one process there");
  double mean = 0;
  for (int batch = 1; batch <= model.batches.largest(); ++batch) {
    const double probability = model.batches.probability(batch);
    if (probability <= 0) continue;
    mean += probability * *curve->LatencyMs(std::min(batch, curve->largest_batch()));
  }
  return mean;
}

}  // namespace divvy::planner
