#include "client/statistics.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace divvy::client {
namespace {

// So many deviations from the mean a binomial count has no weight that a double could tell.
constexpr double kDeviations = 12;

double LogProbability(double n, double k, double q) {
  return std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) + k * std::log(q) +
         (n - k) * std::log1p(-q);
}

}  // namespace

Ranks QuantileRanks(std::uint64_t n, double q, double confidence) {
  Check(n > 0 && q > 0 && q < 1 && confidence > 0 && confidence < 1, "a quantile of a sample");
  const auto count = static_cast<double>(n);
  Ranks ranks;
  // A hair less, so that 0.9 of 10 is the ninth although 0.9 is no binary fraction.
  ranks.estimate = std::clamp<std::uint64_t>(
      static_cast<std::uint64_t>(std::ceil(q * count * (1 - 1e-12))), 1, n);

  const double tail = (1 - confidence) / 2;
  const double reach = kDeviations * (std::sqrt(count * q * (1 - q)) + 1);
  double k = std::max(0.0, std::floor(count * q - reach));
  double probability = std::exp(LogProbability(count, k, q));
  double below = 0;  // P(B < k).
  // The value lies at or above the k-th where at least k of the sample are not above it.
  for (; k <= count; ++k) {
    if (k >= 1 && below <= tail) ranks.low = static_cast<std::uint64_t>(k);
    if (k >= 1 && below >= 1 - tail) {
      ranks.high = static_cast<std::uint64_t>(k);
      break;
    }
    below += probability;
    probability *= (count - k) / (k + 1) * q / (1 - q);
  }
  return ranks;
}

Estimate EstimateQuantile(std::span<const Duration> sorted, double q) {
  const Ranks ranks = QuantileRanks(sorted.size(), q);
  Estimate estimate{.value = sorted[ranks.estimate - 1]};
  if (ranks.low) estimate.low = sorted[*ranks.low - 1];
  if (ranks.high) estimate.high = sorted[*ranks.high - 1];
  return estimate;
}

}  // namespace divvy::client
