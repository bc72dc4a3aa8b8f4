#include "workload/profile_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace divvy::workload {
namespace {

// Tuned on ParvaGPU's published table: the least leap that is known to be wrong there
// is 1.48 times the trend, the greatest of the others 1.28 times.
constexpr double kLeap = 1.4;
// Growth of throughput with the batch as an exponent: 0 is flat, 1 proportional.
constexpr double kFlat = 0.25;
// A next point that keeps this share of a leap confirms it.
constexpr double kConfirms = 0.9;

double Throughput(const ProfilePoint& point) { return point.batch / point.latency_ms; }

double GrowthExponent(const ProfilePoint& from, const ProfilePoint& to) {
  return std::log(Throughput(to) / Throughput(from)) /
         std::log(static_cast<double>(to.batch) / from.batch);
}

std::string Join(const std::vector<int>& numbers) {
  constexpr std::size_t kShown = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(numbers.size(), kShown); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", numbers[i]);
  }
  if (numbers.size() > kShown) text += fmt::format(" and {} more", numbers.size() - kShown);
  return text;
}

void FindHoles(const ModelProfile& model, const ProfileCurve& curve, const std::set<int>& batches,
               std::vector<Finding>& findings) {
  for (std::size_t i = 1; i < curve.points.size(); ++i) {
    const ProfilePoint& before = curve.points[i - 1];
    const ProfilePoint& after = curve.points[i];
    const std::vector<int> missing(batches.upper_bound(before.batch),
                                   batches.lower_bound(after.batch));
    if (missing.empty()) continue;
    findings.push_back(
        {Finding::Kind::kHole, after.row,
         fmt::format("{}: {} {} not measured since {}, as on other partitions; interpolated",
                     Describe(model, curve, after), missing.size() == 1 ? "batch" : "batches",
                     Join(missing) + (missing.size() == 1 ? " is" : " are"), before.batch)});
  }
}

void FindFalls(const ModelProfile& model, const ProfileCurve& curve,
               std::vector<Finding>& findings) {
  const ProfilePoint* slowest = &curve.points.front();
  for (const ProfilePoint& point : curve.points) {
    if (point.latency_ms >= slowest->latency_ms) {
      slowest = &point;
      continue;
    }
    findings.push_back({Finding::Kind::kNotMonotone, point.row,
                        fmt::format("{}: {:.4g} ms, less than the {:.4g} ms of batch {}; counted "
                                    "as that",
                                    Describe(model, curve, point), point.latency_ms,
                                    slowest->latency_ms, slowest->batch)});
  }
}

void FindOutliers(const ModelProfile& model, const ProfileCurve& curve,
                  std::vector<Finding>& findings) {
  for (const std::size_t i : Outliers(curve)) {
    const ProfilePoint& point = curve.points[i];
    const ProfilePoint& before = curve.points[i - 1];
    findings.push_back(
        {Finding::Kind::kOutlier, point.row,
         fmt::format("{}: {:.4g} items a second, {:.2f} times that of batch {}, where the curve "
                     "had flattened; likely a slip",
                     Describe(model, curve, point), 1e3 * Throughput(point),
                     Throughput(point) / Throughput(before), before.batch)});
  }
}

}  // namespace

std::vector<std::size_t> Outliers(const ProfileCurve& curve) {
  const std::vector<ProfilePoint>& points = curve.points;
  std::vector<std::size_t> outliers;
  std::vector<std::size_t> kept;  // The trend is that of the points that stand.
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (kept.size() >= 2) {
      const ProfilePoint& last = points[kept.back()];
      const double exponent = GrowthExponent(points[kept[kept.size() - 2]], last);
      const double trend =
          std::pow(static_cast<double>(points[i].batch) / last.batch, std::max(0.0, exponent));
      const bool leaps =
          exponent <= kFlat && Throughput(points[i]) > kLeap * trend * Throughput(last);
      const bool confirmed =
          i + 1 < points.size() && Throughput(points[i + 1]) >= kConfirms * Throughput(points[i]);
      if (leaps && !confirmed) {
        outliers.push_back(i);
        continue;
      }
    }
    kept.push_back(i);
  }
  return outliers;
}

std::vector<Finding> FindOddities(const ModelProfile& model) {
  std::set<int> batches;
  for (const ProfileCurve& curve : model.curves) {
    for (const ProfilePoint& point : curve.points) batches.insert(point.batch);
  }
  std::vector<Finding> findings;
  for (const ProfileCurve& curve : model.curves) {
    if (curve.points.empty()) continue;
    FindHoles(model, curve, batches, findings);
    FindFalls(model, curve, findings);
    FindOutliers(model, curve, findings);
  }
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& a, const Finding& b) { return a.row < b.row; });
  return findings;
}

std::string Describe(const ModelProfile& model, const ProfileCurve& curve,
                     const ProfilePoint& point) {
  return fmt::format("{} on {}, {} {}, batch {}", model.model, Describe(curve.size),
                     curve.processes, curve.processes == 1 ? "process" : "processes", point.batch);
}

}  // namespace divvy::workload
