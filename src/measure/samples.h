#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "base/time.h"

namespace divvy::measure {

// When a point of a profile has been measured for long enough.
struct Pace {
  double precision = 0.01;  // Wanted: half the 95 % confidence interval of the mean, over the mean.
  Duration limit = std::chrono::seconds(2);  // Then it ends, tight or not.
  // A tight interval counts from so many batches and so long on: power and utilisation are
  // read a few times a second, and a p95 of ten batches is none.
  int least_batches = 50;
  Duration least_time = std::chrono::milliseconds(300);
  int fewest = 3;  // However long they take.
};

// The times of batches of one size, in the order in which they ended, in milliseconds.
//
// Consecutive batches are not independent: a clock that slows down slows many. So the error is the
// larger of two: that of independent values, and that of the means of ten stretches, which also
// sees what changes slowly.
//
// Not thread-safe.
class Samples {
 public:
  void Add(double ms);

  std::size_t count() const { return ms_.size(); }
  double mean() const;
  // Half the 95 % confidence interval of the mean, over the mean. 1 of fewer than three batches.
  [[nodiscard]] double Error() const;
  // The value that a share `q` does not exceed, by rank. REQUIRES: count() > 0.
  [[nodiscard]] double Quantile(double q) const;

  // Enough were taken in `elapsed`.
  [[nodiscard]] bool Enough(const Pace& pace, Duration elapsed) const;

 private:
  std::vector<double> ms_;
  double sum_ = 0;
  double squares_ = 0;  // Of the distances from the first, which keeps the digits that matter.
};

// True when the last batches take as long as those before them: clocks are up, memory is allocated,
// and what is compiled on first use is. `ms` are those of the warm-up so far.
[[nodiscard]] bool HasSettled(std::span<const double> ms);

// From so many batches on a percentile says something.
inline constexpr std::size_t kLeastForP95 = 20;
inline constexpr std::size_t kLeastForP99 = 100;

}  // namespace divvy::measure
