#include "control/estate.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace divvy::control {
namespace {

using planner::ModelDemand;

// A retraining of more slots than any window has is none.
constexpr double kLongest = 1e6;

// Latencies of batches on a MIG size, in milliseconds; [0] is of one item.
struct SizeCurve {
  int slices;
  std::vector<double> latency_ms;
};

Duration ToDuration(double ms) { return std::max(Duration(1), FromMilliseconds(ms)); }

serving::LatencyTable TableOf(const std::vector<double>& latency_ms, int batch) {
  std::vector<Duration> times;
  for (int i = 0; i < batch; ++i)
    times.push_back(ToDuration(latency_ms[static_cast<std::size_t>(i)]));
  return serving::LatencyTable(std::move(times));
}

std::vector<double> LatenciesOf(const workload::ProfileCurve& curve, int batch) {
  std::vector<double> latency_ms;
  for (int items = 1; items <= batch; ++items) latency_ms.push_back(*curve.LatencyMs(items));
  return latency_ms;
}

// The way to serve that answers the most and takes requests of every size.
Offer OfferOn(const ModelDemand& model, const planner::Problem& problem, double slot_s,
              gpu::ProfileIndex profile) {
  Offer best;
  for (const planner::Option& option : planner::UsefulOptions(model, *problem.gpu, problem.rule)) {
    if (option.profile != profile || option.max_batch < model.batches.largest()) continue;
    const double capacity = kUsable * slot_s * option.capacity / model.batches.mean();
    if (capacity <= best.capacity) continue;
    const auto* curve = model.profile->Find(problem.gpu->profile(profile), option.processes);
    best.capacity = capacity;
    best.processes = option.processes;
    best.table = TableOf(LatenciesOf(*curve, option.max_batch), option.max_batch);
  }
  return best;
}

// Latencies on a part of a GPU that is as large as `slices`, of which there may be a
// fraction. Empty when nothing was measured.
std::vector<double> Between(const std::vector<SizeCurve>& sizes, double slices) {
  if (sizes.empty()) return {};
  if (slices <= sizes.front().slices) {
    std::vector<double> latency_ms = sizes.front().latency_ms;
    for (double& ms : latency_ms) ms *= sizes.front().slices / slices;
    return latency_ms;
  }
  for (std::size_t i = 1; i < sizes.size(); ++i) {
    const SizeCurve& low = sizes[i - 1];
    const SizeCurve& high = sizes[i];
    if (slices > high.slices) continue;
    const double part = (slices - low.slices) / (high.slices - low.slices);
    std::vector<double> latency_ms;
    for (std::size_t b = 0; b < std::min(low.latency_ms.size(), high.latency_ms.size()); ++b) {
      latency_ms.push_back(1 / ((1 - part) / low.latency_ms[b] + part / high.latency_ms[b]));
    }
    return latency_ms;
  }
  return sizes.back().latency_ms;
}

std::vector<SizeCurve> SizesWith(const ModelDemand& model, const gpu::GpuModel& gpu,
                                 int processes) {
  std::vector<SizeCurve> sizes;
  for (const gpu::ProfileIndex index : gpu.Select(gpu::ProfileSet::kBase)) {
    const gpu::MigProfile& profile = gpu.profile(index);
    const auto* curve = model.profile->Find(profile, processes);
    if (curve == nullptr) continue;
    sizes.push_back({profile.compute_slices, LatenciesOf(*curve, curve->largest_batch())});
  }
  std::ranges::sort(sizes, {}, &SizeCurve::slices);
  return sizes;
}

Offer OfferOfShare(const ModelDemand& model, const planner::Problem& problem, double slot_s,
                   double slices) {
  std::set<int> processes;
  for (const gpu::ProfileIndex index : problem.gpu->Select(gpu::ProfileSet::kBase)) {
    for (const int n : model.profile->Processes(problem.gpu->profile(index))) processes.insert(n);
  }
  const double limit = problem.rule.LatencyLimitMs(model.slo);
  Offer best;
  for (const int n : processes) {
    const std::vector<double> latency_ms = Between(SizesWith(model, *problem.gpu, n), slices);
    for (std::size_t b = 0; b < latency_ms.size(); ++b) {
      const int batch = static_cast<int>(b) + 1;
      if (latency_ms[b] >= limit) break;
      if (batch < model.batches.largest()) continue;
      const double capacity =
          kUsable * slot_s * n * batch * 1000 / latency_ms[b] / model.batches.mean();
      if (capacity <= best.capacity) continue;
      best.capacity = capacity;
      best.processes = n;
      best.table = TableOf(latency_ms, batch);
    }
  }
  return best;
}

// Samples a second on a part of a GPU, by the same rule as latencies.
double SpeedOfShare(const workload::TrainingSpeeds& speeds, const gpu::GpuModel& gpu,
                    double slices) {
  std::vector<std::pair<int, double>> sizes;
  for (const gpu::ProfileIndex index : gpu.Select(gpu::ProfileSet::kBase)) {
    const auto speed = speeds.SamplesPerSecond(gpu, index);
    if (speed) sizes.emplace_back(gpu.profile(index).compute_slices, *speed);
  }
  std::ranges::sort(sizes);
  if (sizes.empty()) return 0;
  if (slices <= sizes.front().first) return sizes.front().second * slices / sizes.front().first;
  for (std::size_t i = 1; i < sizes.size(); ++i) {
    if (slices > sizes[i].first) continue;
    const double part = (slices - sizes[i - 1].first) / (sizes[i].first - sizes[i - 1].first);
    return (1 - part) * sizes[i - 1].second + part * sizes[i].second;
  }
  return sizes.back().second;
}

void AddRetraining(Offer& offer, const workload::Learning& learning, double samples_per_second,
                   double slot_s) {
  for (const workload::RetrainingOption& option : learning.options) {
    const double slots = samples_per_second <= 0 ? 0 : option.samples / samples_per_second / slot_s;
    offer.retraining_slots.push_back(slots <= kLongest ? slots : 0);
  }
}

}  // namespace

Duration RestartTime(const workload::FleetControl& control) {
  const double hidden = 1 - control.restart.prepared;
  return control.restart.change + FromSeconds(Seconds(control.restart.start) * hidden);
}

Estate MakeEstate(const workload::Fleet& fleet, const planner::Problem& problem, int gpus,
                  std::span<const workload::TrainingSpeeds* const> training) {
  Estate estate{problem.gpu, gpus, fleet.control.slot, 1, 1, 0, {}};
  estate.window = static_cast<int>(fleet.control.window / fleet.control.slot);
  estate.every = static_cast<int>(fleet.control.every / fleet.control.slot);
  const double slot_s = Seconds(fleet.control.slot);
  estate.restart = Seconds(RestartTime(fleet.control)) / slot_s;
  for (std::size_t m = 0; m < problem.models.size(); ++m) {
    const ModelDemand& model = problem.models[m];
    EstateTenant tenant{model.name, fleet.models[m].weight, model.slo, model.rate * slot_s, {}, {},
                        {}};
    if (fleet.models[m].learning) tenant.learning = fleet.models[m].learning->learning;
    const auto base = problem.gpu->Select(gpu::ProfileSet::kBase);
    for (std::size_t k = 0; k < problem.gpu->profiles.size(); ++k) {
      const auto index = static_cast<gpu::ProfileIndex>(k);
      Offer& offer = tenant.by_profile.emplace_back();
      if (std::ranges::find(base, index) == base.end()) continue;
      offer = OfferOn(model, problem, slot_s, index);
      if (!tenant.learning || training[m] == nullptr) continue;
      const auto speed = training[m]->SamplesPerSecond(*problem.gpu, index);
      AddRetraining(offer, *tenant.learning, speed.value_or(0), slot_s);
    }
    for (int tenths = 0; tenths <= 10; ++tenths) {
      Offer& offer = tenant.by_tenths.emplace_back();
      if (tenths == 0) continue;
      const double slices = tenths / 10.0 * problem.gpu->compute_slices;
      offer = OfferOfShare(model, problem, slot_s, slices);
      if (!tenant.learning || training[m] == nullptr) continue;
      AddRetraining(offer, *tenant.learning, SpeedOfShare(*training[m], *problem.gpu, slices),
                    slot_s);
    }
    estate.tenants.push_back(std::move(tenant));
  }
  return estate;
}

}  // namespace divvy::control
