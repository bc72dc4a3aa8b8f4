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
  void Add(const Histogram& other);

  std::uint64_t count() const { return count_; }
  Duration sum() const { return sum_; }
  Duration max() const { return max_; }

  // The value below or at which a share `q` of all lies: the upper end of its
  // bucket, never above the largest seen. Zero when nothing was added.
  [[nodiscard]] Duration Quantile(double q) const;

  // Values and how many lie at most there, one pair a non-empty bucket, ascending.
  struct Step {
    Duration value;
    std::uint64_t up_to;
  };
  [[nodiscard]] std::vector<Step> Cumulative() const;

 private:
  std::vector<std::uint64_t> buckets_;
  std::uint64_t count_ = 0;
  Duration sum_{};
  Duration max_{};
};

}  // namespace divvy
