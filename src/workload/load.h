#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/random.h"
#include "base/time.h"
#include "workload/batch_distribution.h"

namespace divvy::workload {

// How requests follow each other.
struct Spacing {
  enum class Kind { kPoisson, kConstant, kGamma };
  Kind kind = Kind::kPoisson;
  double cv = 1;  // Coefficient of variation of the gaps, for kGamma: above 1 is bursty.
};

// The rate over time: rate * (1 + amplitude * sin(2 pi t / period - pi / 2)), so
// that a day begins at its trough. Amplitude 0 is a constant rate.
struct Diurnal {
  double amplitude = 0;  // 0 to 1.
  Duration period = std::chrono::hours(24);
};

// The load of one model as a recipe.
struct Load {
  double rate = 0;  // Requests a second, on average.
  Spacing spacing = {};
  Diurnal diurnal = {};
  BatchDistribution batches = BatchDistribution::Constant(1);
};

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
// day. One seed gives the same arrivals always, and another batch distribution the
// same times.
class ArrivalStream {
 public:
  // REQUIRES: load.rate > 0, diurnal.amplitude in [0, 1], a positive period and,
  // for gamma, a positive cv.
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
  double angle_ = 0;  // Of the day, at now_s_: where to look for the next.
  Random gaps_;
  Random sizes_;  // Apart, so that another batch distribution keeps the arrival times.
};

}  // namespace divvy::workload
