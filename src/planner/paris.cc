#include "planner/paris.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "planner/single_process.h"

namespace divvy::planner {
namespace {

using gpu::GpuModel;
using gpu::ProfileIndex;
using workload::ProfileCurve;

constexpr double kKnee = 0.8;

std::vector<ProfileIndex> SizesOf(const ModelDemand& model, const GpuModel& gpu) {
  std::vector<ProfileIndex> sizes;
  for (const ProfileIndex size : gpu.Select(gpu::ProfileSet::kBase)) {
    if (SingleProcess(model, gpu, size)) sizes.push_back(size);
  }
  std::ranges::sort(sizes, {}, [&](ProfileIndex size) { return gpu.profile(size).compute_slices; });
  return sizes;
}

std::vector<double> WeightsOf(const GpuModel& gpu, const std::vector<ProfileIndex>& sizes) {
  const bool sms_known = gpu.sms && std::ranges::all_of(sizes, [&](ProfileIndex size) {
                           return gpu.profile(size).sms.has_value();
                         });
  std::vector<double> weights;
  for (const ProfileIndex size : sizes) {
    const gpu::MigProfile& profile = gpu.profile(size);
    weights.push_back(sms_known ? static_cast<double>(*profile.sms) * gpu.compute_slices / *gpu.sms
                                : profile.compute_slices);
  }
  return weights;
}

// The smallest measured batch with enough utilisation; the largest if none has.
// Nothing when the curve lacks that column.
std::optional<int> UtilisationKnee(const ProfileCurve& curve) {
  bool measured = false;
  for (const workload::ProfilePoint& point : curve.points) {
    measured |= point.utilization.has_value();
    if (point.utilization.value_or(0) >= kKnee) return point.batch;
  }
  return measured ? std::optional(curve.largest_batch()) : std::nullopt;
}

int KneeOf(const ProfileCurve& curve, int largest_request) {
  if (const auto knee = UtilisationKnee(curve)) return *knee;
  const int largest = std::min(largest_request, curve.largest_batch());
  double best = 0;
  for (int batch = 1; batch <= largest; ++batch) best = std::max(best, *curve.Throughput(batch));
  int knee = 1;
  while (*curve.Throughput(knee) < kKnee * best) ++knee;
  return knee;
}

// R: what one query costs each size that owns it.
std::vector<double> DemandOf(const ModelDemand& model, const GpuModel& gpu,
                             const ParisSteps& steps) {
  std::vector<double> demand(steps.sizes.size());
  int below = 0;
  for (std::size_t k = 0; k < steps.sizes.size(); ++k) {
    const ProfileCurve& curve = *model.profile->Find(gpu.profile(steps.sizes[k]), 1);
    for (int batch = below + 1; batch <= steps.knees[k]; ++batch) {
      // Larger ones than were measured can be served nowhere; they still count.
      const double latency_ms = *curve.LatencyMs(std::min(batch, curve.largest_batch()));
      demand[k] += model.batches.probability(batch) * latency_ms;
    }
    below = std::max(below, steps.knees[k]);
  }
  return demand;
}

}  // namespace

ParisSteps RunParis(const ModelDemand& model, const GpuModel& gpu, double budget) {
  ParisSteps steps;
  steps.sizes = SizesOf(model, gpu);
  if (steps.sizes.empty()) return steps;
  steps.weights = WeightsOf(gpu, steps.sizes);
  const int largest = model.batches.largest();
  int highest = 0;
  for (const ProfileIndex size : steps.sizes) {
    steps.raw_knees.push_back(KneeOf(*model.profile->Find(gpu.profile(size), 1), largest));
    highest = std::max(highest, std::min(steps.raw_knees.back(), largest));
    steps.knees.push_back(highest);
  }
  steps.knees.back() = largest;
  steps.demand = DemandOf(model, gpu, steps);
  const double total =
      std::inner_product(steps.demand.begin(), steps.demand.end(), steps.weights.begin(), 0.0);
  for (const double demand : steps.demand) steps.counts.push_back(demand * budget / total);
  return steps;
}

}  // namespace divvy::planner
