#include "workload/learning.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace divvy::workload {

double LearningCurve::AccuracyAfter(double samples) const {
  return limit - (limit - start) * std::exp(-samples / scale);
}

std::vector<RetrainingOption> OptionsOf(const LearningCurve& curve,
                                        std::span<const double> samples) {
  std::vector<RetrainingOption> options;
  for (const double count : samples) {
    options.push_back({fmt::format("{}", count), count, curve.AccuracyAfter(count)});
  }
  return options;
}

double Learning::AccuracyAfter(double trained, Duration age) const {
  const double minutes = std::max(0.0, Seconds(age) / 60);
  return std::max(std::min(floor, trained), trained - drift_per_minute * minutes);
}

}  // namespace divvy::workload
