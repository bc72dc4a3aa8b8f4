#include "workload/rate_curve.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "base/random.h"

namespace divvy::workload {
namespace {

using namespace std::chrono_literals;

double FactorAt(const Diurnal& day, const Shape& shape, double t) {
  const double angle = 2 * std::numbers::pi * t / Seconds(day.period);
  double factor = 1 - day.amplitude * std::cos(angle);
  if (!shape.factors.empty()) {
    const auto step = static_cast<std::size_t>(t / Seconds(shape.step));
    factor *= shape.factors[step % shape.factors.size()];
  }
  return factor;
}

// By Simpson's rule on every piece between the edges of steps.
double IntegralByHand(const Diurnal& day, const Shape& shape, double until) {
  const double piece = Seconds(shape.step) / 128;
  double sum = 0;
  for (double from = 0; from < until - 1e-9;) {
    const double edge = (std::floor(from / piece + 1e-6) + 1) * piece;
    const double to = std::min(edge, until);
    const double width = to - from;
    const auto at = [&](double share) {
      // Inside of the piece: the edges belong to two steps.
      return FactorAt(day, shape, from + width * (share == 0 ? 1e-9 : share == 1 ? 1 - 1e-9 : 0.5));
    };
    sum += width / 6 * (at(0) + 4 * at(0.5) + at(1));
    from = to;
  }
  return sum;
}

// Days that keep step with the shape, that do not, that are much shorter, and none.
const Diurnal kDays[] = {
    {.amplitude = 0, .period = 24h},       {.amplitude = 0.7, .period = 12s},
    {.amplitude = 1, .period = 6s},        {.amplitude = 0.4, .period = 17'300ms},
    {.amplitude = 0.9, .period = 1'700ms}, {.amplitude = 1, .period = 1h}};

TEST(RateCurveTest, IntegralIsThatOfTheProduct) {
  const Shape shapes[] = {{.factors = {0.4, 1, 2.2}, .step = 2s},
                          {.factors = {1}, .step = 5s},
                          {.factors = {0, 0, 3, 0}, .step = 1500ms},
                          {.factors = {}, .step = 4s}};
  for (const Diurnal& day : kDays) {
    for (const Shape& shape : shapes) {
      const RateCurve curve(day, shape);
      for (const double until : {0.0, 0.3, 2.0, 5.9, 6.0, 6.1, 33.3, 100.0}) {
        const double want = IntegralByHand(day, shape, until);
        EXPECT_NEAR(curve.Integral(until), want, 1e-7 * (1 + want))
            << until << " s, " << shape.factors.size() << " factors, day of " << Seconds(day.period)
            << " s";
      }
    }
  }
}

TEST(RateCurveTest, ReachIsTheWayBackOverAnyGaps) {
  Random random(1);
  for (const Diurnal& day : kDays) {
    for (int round = 0; round < 20; ++round) {
      Shape shape{.factors = {}, .step = FromSeconds(0.05 + 3 * random.Uniform())};
      const auto count = 1 + random.Below(30);
      for (std::uint64_t i = 0; i < count; ++i) {
        shape.factors.push_back(random.Below(3) == 0 ? 0 : random.Exponential());
      }
      shape.factors.push_back(0.1);
      RateCurve curve(day, shape);
      const double stride = std::pow(10, 4 * random.Uniform() - 2);  // 0.01 to 100.
      double amount = 0;
      double before = 0;
      for (int i = 0; i < 200; ++i) {
        amount += stride * random.Exponential();
        const double at = curve.Reach(amount);
        ASSERT_GE(at, before - 1e-9 * before);
        ASSERT_NEAR(curve.Integral(at), amount, 1e-9 * (1 + amount)) << i;
        // In a stretch of zeros nothing arrives; at its edges a rounding decides.
        const auto factor = [&](double t) {
          return shape
              .factors[static_cast<std::size_t>(t / Seconds(shape.step)) % shape.factors.size()];
        };
        const double rounding = 1e-7 * (1 + at);
        ASSERT_GT(factor(std::max(0.0, at - rounding)) + factor(at + rounding), 0);
        before = at;
      }
    }
  }
}

TEST(RateCurveTest, LongSilenceAndShortStepsTakeNoTime) {
  // One millisecond in a hundred seconds: a walk over steps, as often as this asks,
  // would not end.
  Shape shape{.factors = std::vector<double>(100'000), .step = 1ms};
  shape.factors.back() = 1;
  for (const double amplitude : {0.0, 0.5}) {
    RateCurve curve({.amplitude = amplitude, .period = 24h}, shape);
    double before = 0;
    for (int i = 1; i <= 10'000; ++i) {
      const double at = curve.Reach(i * 0.7);  // 700 periods, about a day, apart.
      ASSERT_NEAR(curve.Integral(at) / (i * 0.7), 1, 1e-6);
      ASSERT_GT(at, before);
      before = at;
    }
  }
}

TEST(RateCurveTest, TimeEnds) {
  RateCurve curve({}, {.factors = {0, 1e-6}, .step = 1ms});
  EXPECT_LT(curve.Reach(1), 3e6);
  EXPECT_EQ(curve.Reach(1e6), std::numeric_limits<double>::infinity());
}

TEST(RateCurveTest, MeanOfAShape) {
  EXPECT_EQ(Shape{}.Mean(), 1);
  EXPECT_DOUBLE_EQ((Shape{.factors = {0, 1, 5}, .step = 1s}.Mean()), 2);
}

}  // namespace
}  // namespace divvy::workload
