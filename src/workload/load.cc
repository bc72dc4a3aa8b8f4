#include "workload/load.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace divvy::workload {
namespace {

constexpr double kEndOfTimeS = 250.0 * 365 * 86'400;  // Duration reaches 292 years.

// x with x - amplitude * sin(x) = mean, for a mean from 0 to 2 pi: Kepler's equation.
// Newton from `guess`, inside a bracket that every step narrows, since at amplitude 1
// the slope vanishes at 0 and Newton alone may leave.
double SolveKepler(double mean, double amplitude, double guess) {
  double low = mean - amplitude;
  double high = mean + amplitude;
  double x = std::clamp(guess, low, high);
  constexpr int kMostSteps = 80;
  for (int i = 0; i < kMostSteps; ++i) {
    const double error = x - amplitude * std::sin(x) - mean;
    (error > 0 ? high : low) = x;
    const double slope = 1 - amplitude * std::cos(x);
    const double step = -error / slope;
    if (!(low <= x + step && x + step <= high)) {  // Not a number among it.
      x = (low + high) / 2;
      continue;
    }
    x += step;
    // Newton's next step would be about this one squared over the slope.
    if (step * step * amplitude <= 1e-16 * slope) break;
  }
  return x;
}

}  // namespace

ArrivalStream::ArrivalStream(const Load& load, std::uint64_t seed)
    : load_(load), seconds_per_unit_(1 / load.rate), gaps_(seed), sizes_(~seed) {
  Check(load.rate > 0, "a load has a positive rate");
  Check(0 <= load.diurnal.amplitude && load.diurnal.amplitude <= 1, "an amplitude is from 0 to 1");
  Check(load.diurnal.period > Duration::zero(), "a day has a length");
  Check(load.spacing.kind != Spacing::Kind::kGamma || load.spacing.cv > 0,
        "the gaps of a gamma process vary");
  gamma_shape_ = 1 / (load.spacing.cv * load.spacing.cv);
}

ArrivalStream::ArrivalStream(std::span<const Arrival> trace) : trace_(trace), gaps_(0), sizes_(0) {}

std::optional<Arrival> ArrivalStream::Next() {
  if (!load_) {
    if (position_ == trace_.size()) return std::nullopt;
    return trace_[position_++];
  }
  unit_time_ += Gap();
  // A bent time may step back by a rounding; arrivals stay in order.
  now_s_ = load_->diurnal.amplitude == 0 ? unit_time_ * seconds_per_unit_
                                         : std::max(now_s_, BendIntoDay(unit_time_));
  if (now_s_ > kEndOfTimeS) return std::nullopt;
  return Arrival{FromSeconds(now_s_), load_->batches.Sample(sizes_)};
}

double ArrivalStream::Gap() {
  switch (load_->spacing.kind) {
    case Spacing::Kind::kPoisson:
      return gaps_.Exponential();
    case Spacing::Kind::kConstant:
      return 1;
    case Spacing::Kind::kGamma:
      return gaps_.Gamma(gamma_shape_) / gamma_shape_;
  }
  return 1;
}

// When the integral of the rate reaches `unit_time`. With x = 2 pi t / period that
// is x - amplitude * sin(x) = 2 pi unit_time / (rate * period); whole days are set
// aside first, which keeps the rest exact however late it is.
double ArrivalStream::BendIntoDay(double unit_time) {
  const double period_s = Seconds(load_->diurnal.period);
  const double days = unit_time * seconds_per_unit_ / period_s;
  const double whole = std::floor(days);
  constexpr double kTurn = 2 * std::numbers::pi;
  angle_ = SolveKepler((days - whole) * kTurn, load_->diurnal.amplitude, angle_);
  return (whole + angle_ / kTurn) * period_s;
}

}  // namespace divvy::workload
