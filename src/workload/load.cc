#include "workload/load.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "workload/kepler.h"

namespace divvy::workload {

double RateAt(const Load& load, Duration at) {
  Check(at >= Duration::zero(), "a time is from the start on");
  const Diurnal& day = load.diurnal;
  const double angle = 2 * std::numbers::pi * Seconds(at % day.period) / Seconds(day.period);
  const double rate = load.rate * (1 - day.amplitude * std::cos(angle));
  const std::vector<double>& factors = load.shape.factors;
  if (factors.empty()) return rate;
  return rate * factors[static_cast<std::size_t>(at / load.shape.step) % factors.size()];
}

double ExpectedArrivals(const Load& load, Duration from, Duration to) {
  Check(Duration::zero() <= from && from <= to, "an interval begins before it ends");
  const RateCurve curve(load.diurnal, load.shape);
  return load.rate * std::max(0.0, curve.Integral(Seconds(to)) - curve.Integral(Seconds(from)));
}

double MeanRate(const Load& load) { return load.rate * load.shape.Mean(); }

ArrivalStream::ArrivalStream(const Load& load, std::uint64_t seed)
    : load_(load), seconds_per_unit_(1 / load.rate), gaps_(seed), sizes_(~seed) {
  Check(load.rate > 0, "a load has a positive rate");
  Check(0 <= load.diurnal.amplitude && load.diurnal.amplitude <= 1, "an amplitude is from 0 to 1");
  Check(load.diurnal.period > Duration::zero(), "a day has a length");
  Check(load.spacing.kind != Spacing::Kind::kGamma || load.spacing.cv > 0,
        "the gaps of a gamma process vary");
  gamma_shape_ = 1 / (load.spacing.cv * load.spacing.cv);
  if (!load.shape.factors.empty()) curve_.emplace(load.diurnal, load.shape);
}

ArrivalStream::ArrivalStream(std::span<const Arrival> trace) : trace_(trace), gaps_(0), sizes_(0) {}

std::optional<Arrival> ArrivalStream::Next() {
  if (!load_) {
    if (position_ == trace_.size()) return std::nullopt;
    return trace_[position_++];
  }
  unit_time_ += Gap();
  // A bent time may step back by a rounding; arrivals stay in order.
  now_s_ = curve_ ? std::max(now_s_, curve_->Reach(unit_time_ * seconds_per_unit_))
           : load_->diurnal.amplitude == 0 ? unit_time_ * seconds_per_unit_
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
