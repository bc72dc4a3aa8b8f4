#include "workload/load.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <numbers>
#include <vector>

namespace divvy::workload {
namespace {

using namespace std::chrono_literals;

std::vector<Arrival> Take(ArrivalStream& stream, int count) {
  std::vector<Arrival> arrivals;
  for (int i = 0; i < count; ++i) arrivals.push_back(*stream.Next());
  return arrivals;
}

struct Statistics {
  double mean_s;
  double cv;
};

Statistics OfGaps(const std::vector<Arrival>& arrivals) {
  double sum = 0;
  double squares = 0;
  Duration before{0};
  for (const Arrival& arrival : arrivals) {
    EXPECT_GE(arrival.at, before);
    const double gap = Seconds(arrival.at - before);
    sum += gap;
    squares += gap * gap;
    before = arrival.at;
  }
  const double n = static_cast<double>(arrivals.size());
  const double mean = sum / n;
  return {mean, std::sqrt(squares / n - mean * mean) / mean};
}

constexpr int kMany = 50'000;

TEST(ArrivalStreamTest, PoissonHasItsRateAndAVariationOfOne) {
  ArrivalStream stream({.rate = 400}, 1);
  const Statistics gaps = OfGaps(Take(stream, kMany));
  EXPECT_NEAR(gaps.mean_s, 1.0 / 400, 0.02 / 400);  // 5 deviations of the mean.
  EXPECT_NEAR(gaps.cv, 1, 0.03);
}

TEST(ArrivalStreamTest, ConstantSpacingIsEven) {
  ArrivalStream stream({.rate = 250, .spacing = {.kind = Spacing::Kind::kConstant}}, 1);
  for (int i = 1; i <= 1000; ++i) EXPECT_EQ(stream.Next()->at, i * 4ms);
}

TEST(ArrivalStreamTest, GammaHasItsVariation) {
  for (const double cv : {0.3, 1.0, 2.0, 4.0}) {
    ArrivalStream stream({.rate = 100, .spacing = {Spacing::Kind::kGamma, cv}}, 2);
    const Statistics gaps = OfGaps(Take(stream, kMany));
    EXPECT_NEAR(gaps.mean_s * 100, 1, 5 * cv / std::sqrt(kMany)) << cv;
    EXPECT_NEAR(gaps.cv / cv, 1, 0.1) << cv;
  }
}

TEST(ArrivalStreamTest, OneSeedGivesOneStreamAndAnotherGivesAnother) {
  const Load load{.rate = 10, .batches = BatchDistribution::LogNormal(6, 0.9, 32)};
  ArrivalStream a(load, 7);
  ArrivalStream b(load, 7);
  ArrivalStream c(load, 8);
  int same = 0;
  for (int i = 0; i < 100; ++i) {
    const Arrival first = *a.Next();
    const Arrival again = *b.Next();
    EXPECT_EQ(first.at, again.at);
    EXPECT_EQ(first.batch, again.batch);
    same += first.at == c.Next()->at ? 1 : 0;
  }
  EXPECT_EQ(same, 0);
}

TEST(ArrivalStreamTest, AnotherBatchDistributionKeepsTheTimes) {
  ArrivalStream small({.rate = 10, .batches = BatchDistribution::Constant(1)}, 7);
  ArrivalStream mixed({.rate = 10, .batches = BatchDistribution::LogNormal(6, 0.9, 32)}, 7);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(small.Next()->at, mixed.Next()->at);
}

TEST(ArrivalStreamTest, SizesFollowTheirDistribution) {
  const auto batches = BatchDistribution::LogNormal(6, 0.9, 32);
  ArrivalStream stream({.rate = 10, .batches = batches}, 3);
  double sum = 0;
  for (int i = 0; i < kMany; ++i) sum += stream.Next()->batch;
  EXPECT_NEAR(sum / kMany, batches.mean(), 0.2);
}

TEST(ArrivalStreamTest, SizesDoNotFollowTheGaps) {
  const auto batches = BatchDistribution::LogNormal(6, 0.9, 32);
  ArrivalStream stream({.rate = 1, .batches = batches}, 5);
  double products = 0;
  double squares = 0;
  Duration before{0};
  for (int i = 0; i < kMany; ++i) {
    const Arrival arrival = *stream.Next();
    const double size = arrival.batch - batches.mean();
    products += (Seconds(arrival.at - before) - 1) * size;
    squares += size * size;
    before = arrival.at;
  }
  // The correlation, 5 deviations of it; the gaps have deviation 1.
  EXPECT_NEAR(products / std::sqrt(squares * kMany), 0, 5 / std::sqrt(kMany));
}

// The integral of the rate from the start of a day to t.
double Expected(double rate, const Diurnal& day, double t) {
  const double turn = 2 * std::numbers::pi / Seconds(day.period);
  return rate * (t - day.amplitude * std::sin(turn * t) / turn);
}

TEST(ArrivalStreamTest, ADayHasItsShape) {
  for (const auto kind : {Spacing::Kind::kPoisson, Spacing::Kind::kGamma}) {
    const Diurnal day{.amplitude = 0.8, .period = 100s};
    ArrivalStream stream({.rate = 200, .spacing = {kind, 1.0}, .diurnal = day}, 4);
    // Three days, each in ten parts.
    std::vector<int> counts(30);
    for (Arrival arrival = *stream.Next(); arrival.at < 300s; arrival = *stream.Next()) {
      ++counts[static_cast<std::size_t>(arrival.at / 10s)];
    }
    for (int part = 0; part < 30; ++part) {
      const double want = Expected(200, day, 10.0 * (part + 1)) - Expected(200, day, 10.0 * part);
      EXPECT_NEAR(counts[static_cast<std::size_t>(part)], want, 5 * std::sqrt(want)) << part;
    }
    EXPECT_LT(counts[0], counts[5] / 3);  // From trough to peak.
  }
}

TEST(ArrivalStreamTest, EvenSpacingThroughADayFollowsTheIntegralExactly) {
  for (const double amplitude : {0.001, 0.5, 0.999, 1.0}) {
    const Diurnal day{.amplitude = amplitude, .period = 60s};
    ArrivalStream stream(
        {.rate = 50, .spacing = {.kind = Spacing::Kind::kConstant}, .diurnal = day}, 1);
    Duration before{0};
    for (int i = 1; i <= 20'000; ++i) {
      const Duration at = stream.Next()->at;
      ASSERT_GE(at, before);
      // A nanosecond of rounding at the greatest rate, 100 a second.
      ASSERT_NEAR(Expected(50, day, Seconds(at)), i, 1e-6) << amplitude;
      before = at;
    }
  }
}

TEST(ArrivalStreamTest, ArrivalsFarApartFollowTheIntegralToo) {
  // A third of a day apart and several days apart: the last arrival says nothing.
  for (const double rate : {0.05, 0.003}) {
    const Diurnal day{.amplitude = 1, .period = 60s};
    ArrivalStream stream(
        {.rate = rate, .spacing = {.kind = Spacing::Kind::kConstant}, .diurnal = day}, 1);
    for (int i = 1; i <= 1000; ++i) {
      ASSERT_NEAR(Expected(rate, day, Seconds(stream.Next()->at)), i, 1e-6) << rate;
    }
  }
}

const Load kShaped{.rate = 200,
                   .diurnal = {.amplitude = 0.6, .period = 70s},
                   .shape = {.factors = {0.4, 1, 0, 2.2, 0.05}, .step = 10s}};

TEST(ArrivalStreamTest, AShapeHasItsFactorsAndRepeats) {
  for (const auto kind : {Spacing::Kind::kPoisson, Spacing::Kind::kGamma}) {
    for (const double amplitude : {0.0, 0.6}) {
      Load load = kShaped;
      load.spacing = {kind, 1.0};
      load.diurnal.amplitude = amplitude;
      ArrivalStream stream(load, 4);
      std::vector<int> counts(60);  // Six periods and a half, in parts of 5 s.
      for (Arrival arrival = *stream.Next(); arrival.at < 300s; arrival = *stream.Next()) {
        ++counts[static_cast<std::size_t>(arrival.at / 5s)];
      }
      for (int part = 0; part < 60; ++part) {
        const double want = ExpectedArrivals(load, part * 5s, (part + 1) * 5s);
        // 5 deviations, and one request that the edge of a part may move.
        EXPECT_NEAR(counts[static_cast<std::size_t>(part)], want, 5 * std::sqrt(want) + 1) << part;
        if (part % 10 / 2 == 2) {
          EXPECT_EQ(counts[static_cast<std::size_t>(part)], 0);
        }
      }
    }
  }
}

TEST(ArrivalStreamTest, EvenSpacingThroughAShapeFollowsTheIntegralExactly) {
  Load load = kShaped;
  load.spacing.kind = Spacing::Kind::kConstant;
  for (const double rate : {50.0, 0.01}) {  // Many in a step, and periods apart.
    load.rate = rate;
    ArrivalStream stream(load, 1);
    Duration before{0};
    for (int i = 1; i <= 3'000; ++i) {
      const Duration at = stream.Next()->at;
      ASSERT_GE(at, before);
      ASSERT_NEAR(ExpectedArrivals(load, 0s, at), i, 1e-6) << rate;
      before = at;
    }
  }
}

TEST(ArrivalStreamTest, AShapeOfOnesChangesNothing) {
  const Load plain{.rate = 100, .batches = BatchDistribution::LogNormal(6, 0.9, 32)};
  Load shaped = plain;
  shaped.shape = {.factors = {1, 1, 1}, .step = 700ms};
  ArrivalStream a(plain, 7);
  ArrivalStream b(shaped, 7);
  for (int i = 0; i < kMany; ++i) {
    const Arrival one = *a.Next();
    const Arrival other = *b.Next();
    ASSERT_LE(std::chrono::abs(one.at - other.at), 1ns);
    ASSERT_EQ(one.batch, other.batch);
  }
}

TEST(LoadTest, RateAtIsTheSlopeOfExpectedArrivals) {
  const Load unshaped{.rate = 200, .diurnal = kShaped.diurnal};
  const Load days_off{.rate = 3, .shape = {.factors = {1, 0}, .step = 1s}};
  for (const Load& load : {kShaped, unshaped, days_off, Load{.rate = 7}}) {
    for (Duration at = 5ms; at < 400s; at += 1730ms) {
      const double slope = ExpectedArrivals(load, at - 1ms, at + 1ms) / 2e-3;
      EXPECT_NEAR(RateAt(load, at), slope, 1e-3 * (1 + slope)) << Seconds(at);
    }
  }
  EXPECT_DOUBLE_EQ(RateAt(days_off, 0s), 3);
  EXPECT_DOUBLE_EQ(RateAt(days_off, 1s), 0);
  EXPECT_DOUBLE_EQ(ExpectedArrivals(Load{.rate = 7}, 2s, 5s), 21);
  EXPECT_DOUBLE_EQ(ExpectedArrivals(days_off, 0s, 7s), 12);
}

TEST(LoadTest, MeanRateIsThatOfThePeriodOfTheShape) {
  Load load{.rate = 10, .shape = {.factors = {0, 1, 5}, .step = 2s}};
  EXPECT_DOUBLE_EQ(MeanRate(load), 20);
  EXPECT_DOUBLE_EQ(ExpectedArrivals(load, 0s, 6s) / 6, 20);
  load.shape = {};
  EXPECT_DOUBLE_EQ(MeanRate(load), 10);
}

TEST(ArrivalStreamTest, TimeEndsBeforeItOverflows) {
  ArrivalStream stream({.rate = 1e-9, .spacing = {.kind = Spacing::Kind::kConstant}}, 1);
  int count = 0;
  while (stream.Next()) ++count;
  EXPECT_EQ(count, 7);  // A billion seconds apart, within 250 years.
  ArrivalStream shaped({.rate = 1e-9,
                        .spacing = {.kind = Spacing::Kind::kConstant},
                        .shape = {.factors = {0, 2}, .step = 1ms}},
                       1);
  count = 0;
  while (shaped.Next()) ++count;
  EXPECT_EQ(count, 7);
}

TEST(ArrivalStreamTest, ATraceIsRepeatedAsItIsAndEnds) {
  const std::vector<Arrival> trace = {{1ms, 4}, {1ms, 2}, {9ms, 1}};
  ArrivalStream stream(trace);
  for (const Arrival& arrival : trace) {
    const auto next = stream.Next();
    ASSERT_TRUE(next);
    EXPECT_EQ(next->at, arrival.at);
    EXPECT_EQ(next->batch, arrival.batch);
  }
  EXPECT_FALSE(stream.Next());
  EXPECT_FALSE(stream.Next());
}

}  // namespace
}  // namespace divvy::workload
