#pragma once

#include <cstdint>
#include <vector>

#include "base/time.h"

namespace divvy {

// Durations by count, in buckets that grow with the value: quantiles come back
// within 0.8 % of the truth, and memory does not grow with what is added.
// Negative durations count as zero. Not thread-safe.
class Histogram {
 public:
  Histogram();

  void Add(Duration value);

  std::uint64_t count() const { return count_; }
  double mean_ms() const { return count_ == 0 ? 0 : sum_ms_ / static_cast<double>(count_); }
  Duration max() const { return max_; }

  // The value below or at which a share `q` of all lies: the upper end of its
  // bucket, never above the largest seen. Zero when nothing was added.
  [[nodiscard]] Duration Quantile(double q) const;

 private:
  std::vector<std::uint64_t> buckets_;
  std::uint64_t count_ = 0;
  double sum_ms_ = 0;
  Duration max_{};
};

}  // namespace divvy
