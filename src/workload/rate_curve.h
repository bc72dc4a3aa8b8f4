#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/time.h"

namespace divvy::workload {

// Nothing arrives later than this: 250 years, where a Duration reaches 292.
inline constexpr double kEndOfTimeS = 250.0 * 365 * 86'400;

// The rate over time: rate * (1 + amplitude * sin(2 pi t / period - pi / 2)), so
// that a day begins at its trough. Amplitude 0 is a constant rate.
struct Diurnal {
  double amplitude = 0;  // 0 to 1.
  Duration period = std::chrono::hours(24);
};

// Factors on the rate, each for one step, from the first again when they are over.
// Their mean need not be 1: they say how many times the rate it is, no more.
struct Shape {
  std::vector<double> factors = {};  // None below 0, one above 0 at least; or empty, no shape.
  Duration step = std::chrono::seconds(1);

  // Over one period; 1 without factors.
  [[nodiscard]] double Mean() const;
};

// What time does to a rate, a day and a shape multiplied: the factor on it, the
// integral of that factor, and the way back. Allocation-free after construction.
// Not thread-safe.
class RateCurve {
 public:
  // REQUIRES: amplitude in [0, 1], a positive period, factors as Shape has them and
  // a positive step.
  RateCurve(const Diurnal& diurnal, const Shape& shape);

  // From the start to `seconds`, in seconds at factor 1. Takes the same time
  // wherever that is. REQUIRES: seconds >= 0.
  [[nodiscard]] double Integral(double seconds) const;

  // When the integral reaches `amount`, in seconds; infinity if not before the
  // end of time. For amounts that do not fall from call to call. A stretch of zeros takes
  // the logarithm of its steps.
  [[nodiscard]] double Reach(double amount);

 private:
  using Complex = std::complex<double>;

  // `rest_s` into the step after `steps` whole ones.
  [[nodiscard]] double IntegralAt(std::int64_t steps, double rest_s) const;
  [[nodiscard]] double IntegralAt(std::int64_t steps) const { return IntegralAt(steps, 0); }
  [[nodiscard]] Complex WaveOver(double from_s, double to_s) const;
  [[nodiscard]] double FactorOf(std::int64_t step) const {
    return factors_[static_cast<std::size_t>(step) % factors_.size()];
  }
  [[nodiscard]] bool Seek(double amount);
  [[nodiscard]] double TimeInStep(double amount) const;

  std::vector<double> factors_;
  double step_s_;
  double amplitude_;
  double period_s_;             // Of the day.
  double turn_;                 // Angle of the day that a second is.
  double drift_;                // Angle of the day, below a turn, that a period of the shape is.
  std::vector<double> sums_;    // sums_[k]: the integral of the factors over k steps.
  std::vector<Complex> waves_;  // The same of factor * e^(i angle); empty without a day.
  std::int64_t position_ = 0;   // Step in which Reach looks first,
  double before_ = 0;           // the integral at its start
  double after_ = 0;            // and at its end.
};

}  // namespace divvy::workload
