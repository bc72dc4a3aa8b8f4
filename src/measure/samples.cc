#include "measure/samples.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace divvy::measure {
namespace {

constexpr std::size_t kStretches = 10;
// A stretch of fewer says nothing that single batches do not.
constexpr std::size_t kLeastInStretch = 4;
constexpr std::size_t kSettledStretch = 4;
constexpr double kSettledWithin = 0.05;

// Student's t for a two-sided 95 %: the expansion around the normal distribution's 1.96. Within
// 1 % from three degrees of freedom on.
double StudentT(std::size_t freedom) {
  const auto n = static_cast<double>(freedom);
  return 1.96 + 2.372 / n + 2.822 / (n * n) + 2.556 / (n * n * n);
}

double MeanOf(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Half the confidence interval of a mean of `count` values with that sum of squared deviations.
double HalfInterval(double squared_deviations, std::size_t count) {
  const auto n = static_cast<double>(count);
  return StudentT(count - 1) * std::sqrt(std::max(0.0, squared_deviations) / (n - 1) / n);
}

}  // namespace

void Samples::Add(double ms) {
  ms_.push_back(ms);
  sum_ += ms;
  squares_ += (ms - ms_.front()) * (ms - ms_.front());
}

double Samples::mean() const { return ms_.empty() ? 0 : sum_ / static_cast<double>(ms_.size()); }

double Samples::Error() const {
  if (ms_.size() < 3 || mean() <= 0) return 1;
  const double off = mean() - ms_.front();
  double half = HalfInterval(squares_ - off * off * static_cast<double>(ms_.size()), ms_.size());
  const std::size_t each = ms_.size() / kStretches;
  if (each >= kLeastInStretch) {
    double deviations = 0;
    // The oldest few that do not fill a stretch are left out.
    const std::size_t first = ms_.size() - each * kStretches;
    const double middle = MeanOf(std::span(ms_).subspan(first));
    for (std::size_t i = 0; i < kStretches; ++i) {
      const double d = MeanOf(std::span(ms_).subspan(first + i * each, each)) - middle;
      deviations += d * d;
    }
    half = std::max(half, HalfInterval(deviations, kStretches));
  }
  return half / mean();
}

double Samples::Quantile(double q) const {
  Check(!ms_.empty(), "a quantile needs a sample");
  std::vector<double> sorted = ms_;
  const double rank = std::ceil(q * static_cast<double>(sorted.size()));
  const std::size_t index = static_cast<std::size_t>(std::max(1.0, rank)) - 1;
  std::ranges::nth_element(sorted, sorted.begin() + static_cast<std::ptrdiff_t>(index));
  return sorted[index];
}

bool Samples::Enough(const Pace& pace, Duration elapsed) const {
  if (std::cmp_less(ms_.size(), pace.fewest)) return false;
  if (elapsed >= pace.limit) return true;
  return std::cmp_greater_equal(ms_.size(), pace.least_batches) && elapsed >= pace.least_time &&
         Error() <= pace.precision;
}

bool HasSettled(std::span<const double> ms) {
  if (ms.size() < 2 * kSettledStretch) return false;
  const double last = MeanOf(ms.last(kSettledStretch));
  const double before = MeanOf(ms.last(2 * kSettledStretch).first(kSettledStretch));
  return std::abs(last - before) <= kSettledWithin * before;
}

}  // namespace divvy::measure
