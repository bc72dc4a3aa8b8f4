#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/time.h"

namespace divvy::client {

// Places, from 1, in a sample that is sorted in ascending order.
struct Ranks {
  std::uint64_t estimate = 0;
  // That the value which a share q of the whole population does not exceed lies between these
  // two has a probability of `confidence` at least, whatever the distribution: how many of n
  // independent values lie below it is binomial. Nothing: the sample is too small to say.
  std::optional<std::uint64_t> low = {};
  std::optional<std::uint64_t> high = {};
};

// REQUIRES: n > 0, 0 < q < 1, 0 < confidence < 1.
[[nodiscard]] Ranks QuantileRanks(std::uint64_t n, double q, double confidence = 0.95);

// A quantile of a sample, and where that of the population lies.
struct Estimate {
  Duration value{};
  std::optional<Duration> low = {};
  std::optional<Duration> high = {};
};

// REQUIRES: not empty, ascending.
[[nodiscard]] Estimate EstimateQuantile(std::span<const Duration> sorted, double q);

}  // namespace divvy::client
