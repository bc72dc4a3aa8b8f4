#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/random.h"
#include "base/time.h"
#include "workload/batch_distribution.h"
#include "workload/rate_curve.h"

namespace divvy::workload {

// How requests follow each other.
struct Spacing {
  enum class Kind { kPoisson, kConstant, kGamma };
  Kind kind = Kind::kPoisson;
  double cv = 1;  // Coefficient of variation of the gaps, for kGamma: above 1 is bursty.
};

// The load of one model as a recipe.
struct Load {
  double rate = 0;  // Requests a second; on average, but for the mean of a shape.
  Spacing spacing = {};
  Diurnal diurnal = {};
  Shape shape = {};  // The rate at a time is rate * day * shape.
  BatchDistribution batches = BatchDistribution::Constant(1);
};

// Expected requests a second at `at`, counted from the start. REQUIRES: at >= 0.
[[nodiscard]] double RateAt(const Load& load, Duration at);

// Expected requests from `from` to `to`: the integral of RateAt. Takes time for each
// factor of a shape, not for the time between. REQUIRES: 0 <= from <= to.
[[nodiscard]] double ExpectedArrivals(const Load& load, Duration from, Duration to);

// The rate that a plan is made for: `rate` times the mean of the shape. A day that
// keeps step with a shape may shift the true mean; it is not looked at.
[[nodiscard]] double MeanRate(const Load& load);

// A request to come: when, counted from the start, and how many items.
struct Arrival {
  Duration at;
  int batch;
};

// Endless arrivals from a recipe, or those of a trace, one at a time and in order.
// Allocation-free after construction. Not thread-safe.
//
// A recipe's arrivals are those of a process of rate 1, bent into time by the
// integral of the rate, so that bursts and even spacing keep their nature through a
// day or a shape. One seed gives the same arrivals always, and another batch distribution the
// same times.
class ArrivalStream {
 public:
  // REQUIRES: load.rate > 0, diurnal and shape as RateCurve wants them and, for gamma,
  // a positive cv.
  ArrivalStream(const Load& load, std::uint64_t seed);

  // `trace` is sorted by time and must outlive the stream.
  explicit ArrivalStream(std::span<const Arrival> trace);

  // The next one; nothing when the trace is over, or after 250 years.
  [[nodiscard]] std::optional<Arrival> Next();

 private:
  [[nodiscard]] double Gap();  // With mean 1.
  [[nodiscard]] double BendIntoDay(double unit_time);

  std::optional<Load> load_;
  std::span<const Arrival> trace_;
  std::size_t position_ = 0;
  double seconds_per_unit_ = 0;
  double gamma_shape_ = 1;
  double unit_time_ = 0;  // Where the process of rate 1 stands.
  double now_s_ = 0;
  double angle_ = 0;                // Of the day, at now_s_: where to look for the next.
  std::optional<RateCurve> curve_;  // Of a load with a shape.
  Random gaps_;
  Random sizes_;  // Apart, so that another batch distribution keeps the arrival times.
};

}  // namespace divvy::workload
