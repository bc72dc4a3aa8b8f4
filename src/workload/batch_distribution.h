#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/result.h"

namespace divvy::workload {

// The largest request that files may speak of.
inline constexpr int kLargestBatch = 65'536;

// How large requests are: a probability for every size from 1 to largest().
// Every kind of distribution is reduced to this table when it is made.
class BatchDistribution {
 public:
  // Every request has this size. REQUIRES: 0 < batch <= kLargestBatch.
  static BatchDistribution Constant(int batch);

  // The log-normal density with this median and sigma of the logarithm, taken at
  // the integers 1..largest and normalised. REQUIRES: all positive;
  // largest <= kLargestBatch.
  static BatchDistribution LogNormal(double median, double sigma, int largest);

  // weights[i] is that of size i + 1; they need not sum to 1.
  // Zeros at the end do not count. kInvalidArgument when a weight is negative or
  // not finite, when all are zero, or when there are more than kLargestBatch.
  [[nodiscard]] static Result<BatchDistribution> Empirical(std::span<const double> weights);

  int largest() const { return static_cast<int>(probability_.size()); }
  double mean() const { return mean_; }

  // Of size `batch`; 0 outside 1..largest().
  [[nodiscard]] double probability(int batch) const;

  // Allocation-free, and as quick for many sizes as for few.
  int Sample(Random& random) const {
    if (slots_.size() == 1) return slots_.front().size;
    const double where = random.Uniform() * static_cast<double>(slots_.size());
    const auto index = static_cast<std::size_t>(where);
    const Slot& slot = slots_[index];
    return where - static_cast<double>(index) < slot.share ? slot.size : slot.other;
  }

  // For a person: "constant 8", "log-normal, median 6, sigma 0.9, at most 32".
  const std::string& description() const { return description_; }

 private:
  BatchDistribution(std::vector<double> weights, std::string description);

  // One of as many equally likely drawers as sizes can occur (Walker's alias
  // method): it holds `size` with probability `share`, else `other`.
  struct Slot {
    double share;
    int size;
    int other;
  };

  void BuildSlots();

  std::vector<double> probability_;
  std::vector<Slot> slots_;
  double mean_ = 0;
  std::string description_;
};

}  // namespace divvy::workload
