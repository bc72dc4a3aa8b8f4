#include "workload/profile.h"

#include <algorithm>

namespace divvy::workload {
namespace {

// The value at `batch` on the line through the running maxima of the points:
// linear in between, flat below the first, nothing above the last or where a
// point beside `batch` has no value. One pass, so that planning allocates nothing.
template <typename ValueOf>
std::optional<double> Interpolate(const std::vector<ProfilePoint>& points, int batch,
                                  ValueOf value_of) {
  if (batch < 1) return std::nullopt;
  double highest = 0;
  const ProfilePoint* below = nullptr;
  for (const ProfilePoint& point : points) {
    const std::optional<double> value = value_of(point);
    if (point.batch < batch) {
      if (value) highest = std::max(highest, *value);
      below = &point;
      continue;
    }
    if (!value) return std::nullopt;
    const double right = std::max(highest, *value);
    if (point.batch == batch || below == nullptr) return right;
    if (!value_of(*below)) return std::nullopt;
    const double share =
        static_cast<double>(batch - below->batch) / static_cast<double>(point.batch - below->batch);
    return highest + (right - highest) * share;
  }
  return std::nullopt;
}

}  // namespace

std::optional<double> ProfileCurve::LatencyMs(int batch) const {
  return Interpolate(points, batch,
                     [](const ProfilePoint& point) { return std::optional(point.latency_ms); });
}

std::optional<double> ProfileCurve::P95Ms(int batch) const {
  return Interpolate(points, batch, [](const ProfilePoint& point) { return point.p95_ms; });
}

std::optional<double> ProfileCurve::Throughput(int batch) const {
  const auto latency_ms = LatencyMs(batch);
  if (!latency_ms) return std::nullopt;
  return processes * (batch * 1e3 / *latency_ms);
}

std::optional<double> ProfileCurve::MemoryMib(int batch) const {
  return Interpolate(points, batch, [](const ProfilePoint& point) { return point.memory_mib; });
}

const ProfileCurve* ModelProfile::Find(const gpu::MigProfile& profile, int processes) const {
  const ProfileCurve* best = nullptr;
  int best_quality = 0;
  for (const ProfileCurve& curve : curves) {
    if (curve.processes != processes) continue;
    const int quality = MatchQuality(curve.size, profile);
    if (quality <= best_quality) continue;
    best = &curve;
    best_quality = quality;
  }
  return best;
}

std::vector<int> ModelProfile::Processes(const gpu::MigProfile& profile) const {
  std::vector<int> processes;
  for (const ProfileCurve& curve : curves) {
    if (MatchQuality(curve.size, profile) > 0) processes.push_back(curve.processes);
  }
  std::ranges::sort(processes);
  processes.erase(std::unique(processes.begin(), processes.end()), processes.end());
  return processes;
}

}  // namespace divvy::workload
