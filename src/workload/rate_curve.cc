#include "workload/rate_curve.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "base/check.h"
#include "workload/kepler.h"

namespace divvy::workload {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;

// The sum of e^(i angle j) over j from 0 to n - 1: a geometric series, in the form
// that stays exact where the angle is small.
std::complex<double> SumOfTurns(double angle, double n) {
  const double half = std::sin(angle / 2);
  if (half == 0) return n;
  return std::polar(1.0, angle * (n - 1) / 2) * (std::sin(n * angle / 2) / half);
}

}  // namespace

double Shape::Mean() const {
  if (factors.empty()) return 1;
  return std::accumulate(factors.begin(), factors.end(), 0.0) / static_cast<double>(factors.size());
}

RateCurve::RateCurve(const Diurnal& diurnal, const Shape& shape)
    : factors_(shape.factors),
      step_s_(Seconds(shape.step)),
      amplitude_(diurnal.amplitude),
      period_s_(Seconds(diurnal.period)),
      turn_(kTurn / period_s_) {
  Check(0 <= amplitude_ && amplitude_ <= 1, "an amplitude is from 0 to 1");
  Check(period_s_ > 0, "a day has a length");
  if (factors_.empty()) {
    factors_ = {1};
    step_s_ = period_s_;
  }
  Check(step_s_ > 0, "a step of a shape has a length");
  Check(std::ranges::all_of(factors_, [](double f) { return 0 <= f && std::isfinite(f); }),
        "factors are not negative");
  Check(std::ranges::any_of(factors_, [](double f) { return f > 0; }), "some factor is above 0");

  drift_ = turn_ * std::fmod(step_s_ * static_cast<double>(factors_.size()), period_s_);
  sums_.push_back(0);
  if (amplitude_ > 0) waves_.push_back(0);
  for (std::size_t i = 0; i < factors_.size(); ++i) {
    sums_.push_back(sums_.back() + factors_[i] * step_s_);
    if (amplitude_ == 0) continue;
    const double from = static_cast<double>(i) * step_s_;
    waves_.push_back(waves_.back() + factors_[i] * WaveOver(from, from + step_s_));
  }
  after_ = IntegralAt(1);
}

// The integral of e^(i angle of the day).
RateCurve::Complex RateCurve::WaveOver(double from_s, double to_s) const {
  const double middle = turn_ * std::fmod((from_s + to_s) / 2, period_s_);
  return std::polar(2 * std::sin(turn_ * (to_s - from_s) / 2) / turn_, middle);
}

// Whole periods of the shape see the same factors at other angles of the day, each
// `drift_` further than the one before. So they add up to one period's wave, turned
// and summed, and no period need be looked at.
double RateCurve::IntegralAt(std::int64_t steps, double rest_s) const {
  const auto in_period = static_cast<std::int64_t>(factors_.size());
  const std::int64_t whole = steps / in_period;
  const auto periods = static_cast<double>(whole);
  const auto step = static_cast<std::size_t>(steps % in_period);
  const double plain = periods * sums_.back() + sums_[step] + FactorOf(steps) * rest_s;
  if (amplitude_ == 0) return plain;
  const double from = static_cast<double>(step) * step_s_;
  const Complex in_last = waves_[step] + FactorOf(steps) * WaveOver(from, from + rest_s);
  const Complex wave = SumOfTurns(drift_, periods) * waves_.back() +
                       std::polar(1.0, std::fmod(drift_ * periods, kTurn)) * in_last;
  return plain - amplitude_ * wave.real();
}

double RateCurve::Integral(double seconds) const {
  Check(0 <= seconds && seconds <= 2 * kEndOfTimeS, "a time is from the start on");
  const double steps = std::floor(seconds / step_s_);
  return IntegralAt(static_cast<std::int64_t>(steps), std::max(0.0, seconds - steps * step_s_));
}

double RateCurve::Reach(double amount) {
  if (after_ < amount && !Seek(amount)) return std::numeric_limits<double>::infinity();
  return TimeInStep(amount);
}

// Finds the first step that ends at `amount` or above: in strides that double, since
// it is near as a rule, then by halves.
bool RateCurve::Seek(double amount) {
  const auto last = static_cast<std::int64_t>(std::ceil(kEndOfTimeS / step_s_));
  std::int64_t below = position_;  // Ends below the amount.
  std::int64_t stride = 1;
  std::int64_t reaches = below + 1;
  while (IntegralAt(reaches + 1) < amount) {
    if (reaches > last) return false;
    below = reaches;
    stride *= 2;
    reaches += stride;
  }
  while (reaches - below > 1) {
    const std::int64_t middle = below + (reaches - below) / 2;
    (IntegralAt(middle + 1) < amount ? below : reaches) = middle;
  }
  position_ = reaches;
  before_ = IntegralAt(position_);
  after_ = IntegralAt(position_ + 1);
  return true;
}

double RateCurve::TimeInStep(double amount) const {
  const double start = static_cast<double>(position_) * step_s_;
  const double factor = FactorOf(position_);
  const double missing = std::max(0.0, amount - before_);
  if (factor <= 0 || missing <= 0) return start;  // By a rounding: nothing is missing in truth.
  if (amplitude_ == 0) return start + std::min(step_s_, missing / factor);
  const double angle = turn_ * std::fmod(start, period_s_);
  const double mean = angle - amplitude_ * std::sin(angle) + turn_ * missing / factor;
  const double passed = (SolveKepler(mean, amplitude_, mean) - angle) / turn_;
  return start + std::clamp(passed, 0.0, step_s_);
}

}  // namespace divvy::workload
