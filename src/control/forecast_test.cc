#include "control/forecast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>

#include "base/random.h"

#if defined(__SANITIZE_ADDRESS__)
// g++ does not install the header that declares it.
extern "C" std::size_t __sanitizer_get_current_allocated_bytes();
#endif

namespace divvy::control {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;

std::unique_ptr<Forecaster> Make(std::string_view name, int season = 0) {
  auto made = MakeForecaster(name, {.season = season});
  EXPECT_TRUE(made) << made.error().message;
  return std::move(*made);
}

double Poisson(double mean, Random& random) {
  double count = 0;
  for (double at = random.Exponential(); at < mean; at += random.Exponential()) ++count;
  return count;
}

double Sine(int slot, int season) {
  return 100 + 60 * std::sin(2 * std::numbers::pi * slot / season);
}

double Pinball(double came, double said, double q) {
  return came > said ? q * (came - said) : (1 - q) * (said - came);
}

void ExpectSound(const Forecaster& forecaster, const std::string& where) {
  for (const double q : {0.01, 0.5, 0.99}) {
    for (const auto& told : {forecaster.Mean(210), forecaster.Quantile(210, q)}) {
      for (const double value : told) {
        ASSERT_TRUE(std::isfinite(value) && value >= 0) << where << ": " << value;
      }
    }
  }
}

// Every forecaster there is.
class ForecastTest : public ::testing::TestWithParam<std::string_view> {};

INSTANTIATE_TEST_SUITE_P(All, ForecastTest, ::testing::ValuesIn(ForecasterNames()),
                         [](const auto& test) {
                           std::string name(test.param);
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST_P(ForecastTest, SaysNothingBeforeItSawAnything) {
  for (const int season : {0, 20}) {
    const auto forecaster = Make(GetParam(), season);
    EXPECT_EQ(forecaster->Mean(3), std::vector<double>(3, 0.0));
    EXPECT_EQ(forecaster->Quantile(3, 0.9), std::vector<double>(3, 0.0));
    EXPECT_THAT(forecaster->Mean(0), IsEmpty());
    forecaster->Observe(5);
    EXPECT_THAT(forecaster->Quantile(0, 0.5), IsEmpty());
    EXPECT_EQ(forecaster->Mean(1000).size(), 1000U);
  }
}

TEST_P(ForecastTest, FirstCountHasPoissonSpread) {
  const auto forecaster = Make(GetParam());
  forecaster->Observe(100);
  EXPECT_NEAR(forecaster->Mean(50)[49], 100, 1e-9);
  EXPECT_NEAR(forecaster->Quantile(50, 0.975)[49], 119.6, 0.1);
  EXPECT_NEAR(forecaster->Quantile(50, 0.025)[0], 80.4, 0.1);
}

TEST_P(ForecastTest, ConstantLoadIsToldExactly) {
  for (const int season : {0, 30}) {
    const auto forecaster = Make(GetParam(), season);
    for (int slot = 0; slot < 800; ++slot) forecaster->Observe(7);
    EXPECT_THAT(forecaster->Mean(200), Each(::testing::DoubleNear(7, 1e-6)));
    EXPECT_THAT(forecaster->Quantile(200, 0.99), Each(::testing::DoubleNear(7, 1e-6)));
  }
}

TEST_P(ForecastTest, SilentTenantIsToldToStaySilent) {
  const auto forecaster = Make(GetParam(), 10);
  for (int slot = 0; slot < 100; ++slot) {
    forecaster->Observe(0);
    EXPECT_THAT(forecaster->Mean(200), Each(0.0));
    EXPECT_THAT(forecaster->Quantile(200, 0.99), Each(0.0));
  }
}

TEST_P(ForecastTest, QuantilesCoverPoissonCounts) {
  constexpr int kSlots = 1100;
  constexpr int kWarmUp = 500;
  const int horizons[] = {1, 7, 20, 100};
  for (const double q : {0.2, 0.8, 0.95}) {
    double covered[4] = {};
    double judged = 0;
    for (const std::uint64_t seed : {1, 2, 3}) {
      Random random(seed);
      std::vector<double> counts(kSlots);
      for (double& count : counts) count = Poisson(60, random);
      const auto forecaster = Make(GetParam());
      for (std::size_t slot = 0; slot + 100 < kSlots; ++slot) {
        forecaster->Observe(counts[slot]);
        if (slot < kWarmUp || slot % 2 == 0) continue;
        const auto told = forecaster->Quantile(100, q);
        ++judged;
        for (int h = 0; h < 4; ++h) {
          const auto ahead = static_cast<std::size_t>(horizons[h]);
          covered[h] += counts[slot + ahead] <= told[ahead - 1] ? 1 : 0;
        }
      }
    }
    // 750 counts scatter by 0.015, and neighbours are not independent.
    for (int h = 0; h < 4; ++h) EXPECT_NEAR(covered[h] / judged, q, 0.05) << q << ' ' << h;
  }
}

TEST_P(ForecastTest, QuantilesGrowWithTheShare) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    Random random(seed);
    const auto forecaster = Make(GetParam(), seed == 2 ? 24 : 0);
    double level = 30;
    for (int slot = 0; slot < 400; ++slot) {
      if (random.Uniform() < 0.05) level = 100 * random.Uniform();
      forecaster->Observe(Poisson(level, random));
      if (slot % 23 != 0) continue;
      std::vector<double> before(200, 0.0);
      for (const double q : {0.001, 0.1, 0.3, 0.499, 0.5, 0.7, 0.9, 0.999}) {
        const auto told = forecaster->Quantile(200, q);
        for (std::size_t s = 0; s < 200; ++s) ASSERT_GE(told[s], before[s]) << q << ' ' << s;
        before = told;
      }
    }
  }
}

TEST_P(ForecastTest, StepIsFollowed) {
  const auto forecaster = Make(GetParam());
  Random random(5);
  for (int slot = 0; slot < 300; ++slot) forecaster->Observe(Poisson(30, random));
  for (int slot = 0; slot < 60; ++slot) forecaster->Observe(300);
  EXPECT_NEAR(forecaster->Mean(20)[0], 300, 30);
  EXPECT_NEAR(forecaster->Mean(20)[19], 300, 90);
  for (int slot = 0; slot < 60; ++slot) forecaster->Observe(30);
  EXPECT_NEAR(forecaster->Mean(20)[0], 30, 20);
}

TEST_P(ForecastTest, AbsurdCountIsForgotten) {
  for (const double absurd : {1e9, 1e300, std::numeric_limits<double>::infinity()}) {
    const auto forecaster = Make(GetParam());
    Random random(6);
    for (int slot = 0; slot < 200; ++slot) forecaster->Observe(Poisson(20, random));
    forecaster->Observe(absurd);
    ExpectSound(*forecaster, "at the spike");
    EXPECT_LE(forecaster->Mean(1)[0], 200);
    for (int slot = 0; slot < 30; ++slot) forecaster->Observe(Poisson(20, random));
    for (const double mean : forecaster->Mean(200)) EXPECT_NEAR(mean, 20, 12);
    EXPECT_LE(forecaster->Quantile(20, 0.8)[9], 45);
  }
}

TEST_P(ForecastTest, WhateverComesIsToldInFiniteNumbers) {
  for (const std::uint64_t seed : {1, 2, 3, 4}) {
    Random random(seed);
    const auto forecaster = Make(GetParam(), seed % 2 == 0 ? 0 : 7);
    for (int slot = 0; slot < 300; ++slot) {
      // From nothing to far too much, in runs as well as alone.
      const double power = random.Uniform() < 0.3 ? 310 * random.Uniform() : 3 * random.Uniform();
      const int run = random.Uniform() < 0.1 ? 20 : 1;
      const double count = random.Uniform() < 0.2 ? 0 : std::pow(10, power);
      for (int i = 0; i < run; ++i) forecaster->Observe(count);
      if (slot % 10 == 0) {
        ASSERT_NO_FATAL_FAILURE(ExpectSound(
            *forecaster, "seed " + std::to_string(seed) + " slot " + std::to_string(slot)));
      }
    }
    if (seed > 2) continue;
    // Even a trillion a slot is forgotten some day.
    for (int slot = 0; slot < 3000; ++slot) forecaster->Observe(10);
    EXPECT_NEAR(forecaster->Mean(10)[9], 10, 1) << seed;
  }
}

// Bytes on the heap, as far as this build can tell.
std::size_t Allocated() {
#if defined(__SANITIZE_ADDRESS__)
  return __sanitizer_get_current_allocated_bytes();
#else
  return mallinfo2().uordblks;
#endif
}

TEST_P(ForecastTest, MemoryDoesNotGrow) {
  Random random(9);
  const auto forecaster = Make(GetParam(), 50);
  for (int slot = 0; slot < 2000; ++slot) forecaster->Observe(Poisson(5, random));
  const std::size_t before = Allocated();
  for (int slot = 0; slot < 2000; ++slot) forecaster->Observe(Poisson(5, random));
  EXPECT_EQ(Allocated(), before);
}

TEST(ForecastNamesTest, OthersAreRefusedWithTheNamesThereAre) {
  const auto made = MakeForecaster("emwa", {});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(made.error().message,
            "forecast 'emwa': no such forecaster; did you mean 'ewma'? There are best, "
            "holt-winters, ar, ewma or seasonal-naive");
  EXPECT_EQ(ForecasterNames().front(), "best");
}

TEST(ForecastNamesTest, SeasonsOutOfRangeAreRefused) {
  for (const int season : {-1, 1'000'001}) {
    const auto made = MakeForecaster("best", {.season = season});
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(made.error().message,
              "a season of " + std::to_string(season) + " slots; it takes 0 (none) to 1000000");
  }
  EXPECT_TRUE(MakeForecaster("best", {.season = 1'000'000}));
}

TEST(SeasonalNaiveTest, RepeatsTheLastSeasonExactly) {
  Random random(3);
  for (const int season : {0, 1, 2, 7}) {
    const auto forecaster = Make("seasonal-naive", season);
    const int period = std::max(season, 1);
    std::vector<double> counts;
    for (int slot = 0; slot < 40; ++slot) {
      counts.push_back(static_cast<double>(random.Below(20)));
      forecaster->Observe(counts.back());
      const auto told = forecaster->Mean(20);
      for (int s = 0; s < 20; ++s) {
        const bool whole = slot + 1 >= period;
        const int like = whole ? slot + 1 - period + s % period : slot;
        EXPECT_EQ(told[static_cast<std::size_t>(s)], counts[static_cast<std::size_t>(like)])
            << season << ' ' << slot << ' ' << s;
      }
    }
  }
}

TEST(HoltWintersTest, FollowsALineAheadOfTheLastValue) {
  for (const char* const name : {"holt-winters", "best"}) {
    const auto forecaster = Make(name);
    for (int slot = 0; slot <= 300; ++slot) forecaster->Observe(2.0 * slot);
    EXPECT_NEAR(forecaster->Mean(10)[0], 602, 2) << name;
    EXPECT_NEAR(forecaster->Mean(10)[9], 620, 4) << name;
    // Damped: it does not go on for ever.
    EXPECT_LT(forecaster->Mean(2000)[1999], 1000) << name;
  }
}

TEST(SeasonTest, IsLearnedFromAFewSeasons) {
  // 240 slots are more than the shape has stretches.
  for (const int season : {40, 240}) {
    for (const char* const name : {"holt-winters", "ar", "best", "seasonal-naive"}) {
      const auto forecaster = Make(name, season);
      int slot = 0;
      for (; slot < 4 * season + season / 3; ++slot) forecaster->Observe(Sine(slot, season));
      const auto told = forecaster->Mean(season);
      double error = 0;
      for (int s = 0; s < season; ++s) {
        error += std::abs(told[static_cast<std::size_t>(s)] - Sine(slot + s, season)) / season;
      }
      EXPECT_LT(error, 3) << name << ' ' << season;
    }
  }
}

TEST(SeasonTest, ThatIsNoneCostsLittle) {
  double with = 0;
  double without = 0;
  for (const std::uint64_t seed : {1, 2, 3}) {
    Random random(seed);
    const auto told_one = Make("best", 50);
    const auto told_none = Make("best");
    for (int slot = 0; slot < 400; ++slot) {
      const double count = Poisson(20, random);
      if (slot > 150) {
        with += Pinball(count, told_one->Quantile(1, 0.8)[0], 0.8);
        without += Pinball(count, told_none->Quantile(1, 0.8)[0], 0.8);
      }
      told_one->Observe(count);
      told_none->Observe(count);
    }
  }
  EXPECT_LT(with, 1.05 * without);
}

TEST(QuantileTest, WidensWithTheHorizonOfALoadThatWanders) {
  Random random(4);
  const auto forecaster = Make("best");
  double level = 1000;
  for (int slot = 0; slot < 1500; ++slot) {
    level = std::max(200.0, level + 20 * random.Normal());
    forecaster->Observe(level);
  }
  const auto high = forecaster->Quantile(200, 0.95);
  const auto low = forecaster->Quantile(200, 0.05);
  EXPECT_GT(high[49] - low[49], 2 * (high[0] - low[0]));
  EXPECT_GT(high[199] - low[199], 1.3 * (high[19] - low[19]));
}

// The loss that plans feel, 30 slots ahead.
double LossOf(std::string_view name, const std::vector<double>& counts) {
  const auto forecaster = Make(name);
  double loss = 0;
  for (std::size_t slot = 0; slot + 30 < counts.size(); ++slot) {
    forecaster->Observe(counts[slot]);
    if (slot < 300) continue;
    loss += Pinball(counts[slot + 30], forecaster->Quantile(30, 0.8)[29], 0.8);
  }
  return loss;
}

TEST(BestTest, IsNearWhicheverIsBest) {
  for (const int kind : {0, 1, 2}) {
    Random random(21);
    std::vector<double> counts;
    double level = 40;
    for (int slot = 0; slot < 900; ++slot) {
      if (kind == 1) level = std::max(5.0, level + 3 * random.Normal());
      if (kind == 2 && random.Uniform() < 0.03) level = level > 20 ? 4 : 40;
      counts.push_back(Poisson(level, random));
    }
    double least = 1e300;
    for (const std::string_view name : ForecasterNames()) {
      if (name != "best") least = std::min(least, LossOf(name, counts));
    }
    EXPECT_LT(LossOf("best", counts), 1.06 * least) << kind;
  }
}

}  // namespace
}  // namespace divvy::control
