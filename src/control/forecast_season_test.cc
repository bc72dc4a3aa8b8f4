#include "control/forecast_season.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "base/random.h"

namespace divvy::control {
namespace {

double Poisson(double mean, Random& random) {
  double count = 0;
  for (double at = random.Exponential(); at < mean; at += random.Exponential()) ++count;
  return count;
}

TEST(SeasonShapeTest, IsFlatUntilASeasonWasSeen) {
  SeasonShape shape(4);
  for (const double count : {1.0, 2.0, 3.0}) {
    shape.Observe(count);
    for (int ahead = 1; ahead < 10; ++ahead) EXPECT_EQ(shape.Factor(ahead), 1);
  }
}

TEST(SeasonShapeTest, FactorsAreThoseOfTheSlotsToCome) {
  SeasonShape shape(4);
  const double season[] = {0, 10000, 20000, 10000};
  for (int slot = 0; slot < 6; ++slot) shape.Observe(season[slot % 4]);
  // Two slots into the season.
  EXPECT_NEAR(shape.Factor(1), 2, 0.01);
  EXPECT_NEAR(shape.Factor(2), 1, 0.01);
  EXPECT_NEAR(shape.Factor(3), 0.02, 1e-9);  // The least there is.
  EXPECT_NEAR(shape.Factor(4), 1, 0.01);
  EXPECT_EQ(shape.Factor(401), shape.Factor(1));
}

TEST(SeasonShapeTest, LongSeasonsAreInterpolated) {
  constexpr int kSeason = 86'400;
  SeasonShape shape(kSeason);
  const auto day = [](int slot) {
    return 1000 * (1.5 + std::cos(2 * std::numbers::pi * slot / kSeason));
  };
  for (int slot = 0; slot < kSeason; ++slot) shape.Observe(day(slot));
  for (int slot = 0; slot < kSeason; slot += 777) {
    EXPECT_NEAR(shape.Factor(slot + 1), day(slot) / 1500, 0.002) << slot;
  }
}

TEST(SeasonShapeTest, ScatterOfCountsIsNoShape) {
  double off = 0;
  for (const std::uint64_t seed : {1, 2, 3, 4, 5}) {
    Random random(seed);
    SeasonShape shape(60);
    for (int slot = 0; slot < 60; ++slot) shape.Observe(Poisson(4, random));
    for (int ahead = 1; ahead <= 60; ++ahead) off += std::abs(shape.Factor(ahead) - 1) / 300;
  }
  // The counts themselves are 0.4 off.
  EXPECT_LT(off, 0.12);
}

TEST(SeasonShapeTest, SilentSeasonLeavesTheShape) {
  SeasonShape shape(2);
  for (const double count : {1000.0, 3000.0, 0.0, 0.0}) shape.Observe(count);
  EXPECT_NEAR(shape.Factor(1), 0.5, 0.01);
  EXPECT_NEAR(shape.Factor(2), 1.5, 0.01);
}

}  // namespace
}  // namespace divvy::control
