#pragma once

#include <algorithm>

#include "base/time.h"

namespace divvy::serving {

// Learns how far batches run over their estimate: the median and the 95th percentile of
// actual / estimated, each followed by small steps that balance where they should (the 95th
// percentile: up by 19 when a batch runs over, down by 1 when it does not). Never below
// 1: a worker that is faster than its profile needs no correction, and a wrong
// one would promise too much. Not thread-safe.
class EstimateError {
 public:
  // Of the 95th percentile.
  double factor() const { return high_; }

  // What a batch estimated at `estimate` takes at most, one in twenty aside.
  Duration AtMost(Duration estimate) const { return Times(estimate, high_); }

  // What it takes as often as not.
  Duration Typically(Duration estimate) const { return Times(estimate, middle_); }

  // `estimate` as the table has it, uncorrected. REQUIRES: estimate > 0.
  void Learn(Duration estimate, Duration actual) {
    const double ratio =
        static_cast<double>(actual.count()) / static_cast<double>(estimate.count());
    Follow(high_, ratio, 0.95);
    Follow(middle_, ratio, 0.5);
  }

  // A batch was refused for what has been learned. Nothing is learned from that, and a worker that
  // was slow for a while would never be asked again: so it is taken back, step by step.
  void Doubt() { Follow(middle_, 0, 0.5); }

 private:
  static constexpr double kStep = 0.02;
  static constexpr double kMost = 4;  // Beyond that the worker is ill, not slow.

  static Duration Times(Duration estimate, double factor) {
    if (factor == 1) return estimate;
    return Duration(static_cast<Duration::rep>(static_cast<double>(estimate.count()) * factor));
  }

  static void Follow(double& quantile, double ratio, double rank) {
    quantile += kStep * (ratio > quantile ? rank : rank - 1);
    quantile = std::clamp(quantile, 1.0, kMost);
  }

  double high_ = 1;
  double middle_ = 1;
};

}  // namespace divvy::serving
