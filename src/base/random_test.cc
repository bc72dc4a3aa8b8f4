#include "base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace divvy {
namespace {

struct Moments {
  double mean;
  double deviation;
};

Moments Measure(const std::function<double()>& draw) {
  constexpr int kDraws = 400000;
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double value = draw();
    sum += value;
    squares += value * value;
  }
  const double mean = sum / kDraws;
  return {mean, std::sqrt(squares / kDraws - mean * mean)};
}

TEST(RandomTest, OneSeedSaysTheSameOnEveryMachine) {
  // From an independent implementation of splitmix64 and xoshiro256++.
  Random random(1);
  EXPECT_EQ(random.Bits(), 14971601782005023387U);
  EXPECT_EQ(random.Bits(), 13781649495232077965U);
  EXPECT_EQ(random.Bits(), 1847458086238483744U);
}

TEST(RandomTest, DistributionsHaveTheirMoments) {
  Random random(7);
  const auto uniform = Measure([&] { return random.Uniform(); });
  EXPECT_NEAR(uniform.mean, 0.5, 0.002);
  EXPECT_NEAR(uniform.deviation, std::sqrt(1.0 / 12), 0.002);
  const auto exponential = Measure([&] { return random.Exponential(); });
  EXPECT_NEAR(exponential.mean, 1, 0.01);
  EXPECT_NEAR(exponential.deviation, 1, 0.01);
  const auto normal = Measure([&] { return random.Normal(); });
  EXPECT_NEAR(normal.mean, 0, 0.01);
  EXPECT_NEAR(normal.deviation, 1, 0.01);
  for (const double shape : {0.25, 1.0, 4.0}) {
    const auto gamma = Measure([&] { return random.Gamma(shape); });
    EXPECT_NEAR(gamma.mean, shape, 0.01 * std::max(1.0, shape));
    EXPECT_NEAR(gamma.deviation, std::sqrt(shape), 0.01 * std::max(1.0, shape));
  }
}

TEST(RandomTest, BelowIsEvenAndStaysBelow) {
  Random random(3);
  std::array<int, 7> counts{};
  for (int i = 0; i < 70000; ++i) ++counts.at(random.Below(7));
  for (const int count : counts) EXPECT_NEAR(count, 10000, 400);
}

}  // namespace
}  // namespace divvy
