#include "planner/problem.h"

#include <algorithm>

namespace divvy::planner {
namespace {

using gpu::GpuModel;
using gpu::MigProfile;
using gpu::ProfileIndex;
using workload::PartitionSize;
using workload::ProfileCurve;

// NVIDIA's MPS documentation: 48 clients a GPU, and on a MIG instance fewer in
// proportion to its compute slices.
constexpr int kMpsClients = 48;

bool MpsServes(const GpuModel& gpu, const MigProfile& profile, int processes) {
  return processes <= std::max(1, kMpsClients * profile.compute_slices / gpu.compute_slices);
}

bool MemoryFits(const ProfileCurve& curve, const MigProfile& profile, int batch) {
  const std::optional<double> needed = curve.MemoryMib(batch);
  return !needed || !profile.memory_mib || *needed <= *profile.memory_mib;
}

bool InTime(const ProfileCurve& curve, int batch, double limit_ms) {
  const std::optional<double> latency = curve.LatencyMs(batch);
  return latency && *latency < limit_ms;
}

// The largest batch up to `most` that is in time, or 0. Latency never falls as the
// batch grows, so halving finds it.
int LargestInTime(const ProfileCurve& curve, int most, double limit_ms) {
  int in_time = 0;
  int late = std::min(most, curve.largest_batch()) + 1;
  while (late - in_time > 1) {
    const int middle = in_time + (late - in_time) / 2;
    (InTime(curve, middle, limit_ms) ? in_time : late) = middle;
  }
  return in_time;
}

bool IsNamedInFull(const workload::ModelProfile& measured, const MigProfile& profile) {
  return std::ranges::any_of(measured.curves, [&](const ProfileCurve& curve) {
    return curve.size.unit == PartitionSize::Unit::kProfile && curve.size.profile == profile.name;
  });
}

// Those with the most capacity for their max_batch, ascending in max_batch.
std::vector<Option> Undominated(std::vector<Option> options) {
  std::ranges::sort(options, [](const Option& a, const Option& b) {
    if (a.max_batch != b.max_batch) return a.max_batch > b.max_batch;
    if (a.capacity != b.capacity) return a.capacity > b.capacity;
    return a.processes < b.processes;
  });
  std::vector<Option> kept;
  for (const Option& option : options) {
    if (kept.empty() || option.capacity > kept.back().capacity) kept.push_back(option);
  }
  std::ranges::reverse(kept);
  return kept;
}

// The base set, and what the profile file names in full.
std::vector<ProfileIndex> ProfilesOf(const workload::ModelProfile& measured, const GpuModel& gpu) {
  std::vector<ProfileIndex> profiles;
  for (std::size_t i = 0; i < gpu.profiles.size(); ++i) {
    if (gpu::Belongs(gpu.profiles[i], gpu::ProfileSet::kBase) ||
        IsNamedInFull(measured, gpu.profiles[i])) {
      profiles.push_back(static_cast<ProfileIndex>(i));
    }
  }
  return profiles;
}

std::vector<Option> OptionsOn(const ModelDemand& model, const GpuModel& gpu, ProfileIndex index,
                              double limit_ms) {
  const MigProfile& profile = gpu.profile(index);
  std::vector<Option> options;
  for (const int processes : model.profile->Processes(profile)) {
    if (!MpsServes(gpu, profile, processes)) continue;
    const ProfileCurve* curve = model.profile->Find(profile, processes);
    if (curve == nullptr) continue;
    const int most = LargestInTime(*curve, curve->largest_batch(), limit_ms);
    for (int batch = 1; batch <= most; ++batch) {
      if (!MemoryFits(*curve, profile, batch)) break;  // Memory never falls either.
      options.push_back(
          {index, processes, batch, *curve->LatencyMs(batch), *curve->Throughput(batch)});
    }
  }
  return Undominated(std::move(options));
}

}  // namespace

std::optional<Option> OptionWithin(const ModelDemand& model, const GpuModel& gpu,
                                   const InTimeRule& rule, ProfileIndex profile, int processes,
                                   int max_batch) {
  const MigProfile& instance = gpu.profile(profile);
  const ProfileCurve* curve = model.profile->Find(instance, processes);
  if (curve == nullptr || !MpsServes(gpu, instance, processes)) return std::nullopt;
  if (!MemoryFits(*curve, instance, max_batch)) return std::nullopt;
  const int batch = LargestInTime(*curve, max_batch, rule.LatencyLimitMs(model.slo));
  if (batch == 0) return std::nullopt;
  return Option{profile, processes, batch, *curve->LatencyMs(batch), *curve->Throughput(batch)};
}

std::optional<Option> QuickestFor(const ModelDemand& model, const GpuModel& gpu, int batch) {
  std::optional<Option> quickest;
  for (const ProfileIndex index : ProfilesOf(*model.profile, gpu)) {
    const MigProfile& profile = gpu.profile(index);
    for (const int processes : model.profile->Processes(profile)) {
      const ProfileCurve* curve = model.profile->Find(profile, processes);
      if (curve == nullptr || !MpsServes(gpu, profile, processes)) continue;
      const std::optional<double> latency = curve->LatencyMs(batch);
      if (!latency || !MemoryFits(*curve, profile, batch)) continue;
      if (quickest && quickest->latency_ms <= *latency) continue;
      quickest = Option{index, processes, batch, *latency, *curve->Throughput(batch)};
    }
  }
  return quickest;
}

double ItemsInRequestsOf(const ModelDemand& model, int batch) {
  double items = 0;
  for (int size = std::max(1, batch); size <= model.batches.largest(); ++size) {
    items += size * model.batches.probability(size);
  }
  return model.rate * items;
}

std::vector<Option> UsefulOptions(const ModelDemand& model, const GpuModel& gpu,
                                  const InTimeRule& rule) {
  const double limit_ms = rule.LatencyLimitMs(model.slo);
  std::vector<Option> useful;
  for (const ProfileIndex profile : ProfilesOf(*model.profile, gpu)) {
    const auto options = OptionsOn(model, gpu, profile, limit_ms);
    useful.insert(useful.end(), options.begin(), options.end());
  }
  return useful;
}

}  // namespace divvy::planner
