#pragma once

#include <algorithm>

#include "base/time.h"

namespace divvy::serving {

// Learns how far batches run over their estimate: the 95th percentile of actual /
// estimated, followed by small steps (up by 19 when a batch runs over, down by 1
// when it does not, which balance where one batch in twenty runs over). Never below
// 1: a worker that is faster than its profile needs no correction, and a wrong
// one would promise too much. Not thread-safe.
class EstimateError {
 public:
  double factor() const { return factor_; }

  // `estimate` plus the error learned so far.
  Duration Correct(Duration estimate) const {
    if (factor_ == 1) return estimate;
    return Duration(static_cast<Duration::rep>(static_cast<double>(estimate.count()) * factor_));
  }

  // `estimate` as the table has it, uncorrected. REQUIRES: estimate > 0.
  void Learn(Duration estimate, Duration actual) {
    const double ratio =
        static_cast<double>(actual.count()) / static_cast<double>(estimate.count());
    factor_ += ratio > factor_ ? 19 * kStep : -kStep;
    factor_ = std::clamp(factor_, 1.0, kMost);
  }

 private:
  static constexpr double kStep = 0.001;
  static constexpr double kMost = 4;  // Beyond that the worker is ill, not slow.

  double factor_ = 1;
};

}  // namespace divvy::serving
