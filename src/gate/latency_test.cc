#include "gate/latency.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "gate/marking.h"

namespace divvy::gate {
namespace {

LatencyCounts RandomCounts(std::mt19937_64& random) {
  LatencyCounts counts;
  counts.active = static_cast<std::uint32_t>(random() % 3);
  counts.waiting =
      counts.active == 0 ? 0 : static_cast<std::uint32_t>(random() % (counts.active + 1));
  counts.behind = random() % 10 == 0 ? UINT32_MAX : static_cast<std::uint32_t>(random() % 20);
  counts.usual_launches = random() % 4 == 0 ? 0 : random() % 2000;
  counts.launched = random() % 3000;
  counts.resting = random() % 2 == 0;
  return counts;
}

TEST(LatencyTest, MoreOpennessNeverProtectsMore) {
  for (std::uint32_t openness = 1; openness <= kNoProtection; ++openness) {
    const LatencyTuning before = TuningAt(openness - 1);
    const LatencyTuning after = TuningAt(openness);
    ASSERT_GE(after.waiting_level, before.waiting_level) << openness;
    ASSERT_GE(after.marks_behind, before.marks_behind) << openness;
    ASSERT_GE(after.open_share, before.open_share) << openness;
    ASSERT_LE(after.closed_share, before.closed_share) << openness;
    ASSERT_LE(after.rest_ns, before.rest_ns) << openness;
    ASSERT_GE(after.closes_late, before.closes_late) << openness;
    ASSERT_LE(after.open_share, 100U) << openness;
    ASSERT_LE(after.closed_share, 100U) << openness;
  }
}

TEST(LatencyTest, MoreOpennessNeverLowersTheLevel) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20'000; ++i) {
    const LatencyCounts counts = RandomCounts(random);
    const auto less = static_cast<std::uint32_t>(random() % (kNoProtection + 1));
    const auto more = less + static_cast<std::uint32_t>(random() % (kNoProtection + 1 - less));
    ASSERT_LE(LevelFor(counts, TuningAt(less)), LevelFor(counts, TuningAt(more)))
        << less << " and " << more << " in round " << i;
  }
}

TEST(LatencyTest, BeyondTheLastStepEverythingStaysOpen) {
  EXPECT_EQ(TuningAt(kNoProtection + 1).waiting_level, TuningAt(kNoProtection).waiting_level);
  EXPECT_EQ(TuningAt(UINT32_MAX).waiting_level, kOpen);
}

TEST(LatencyTest, AnIdleJobHoldsNobody) {
  for (const std::uint32_t openness : {kTight, kBalanced, 999U, kNoProtection}) {
    EXPECT_EQ(LevelFor({}, TuningAt(openness)), kOpen);
    EXPECT_EQ(LevelFor({.behind = 100, .launched = 100, .usual_launches = 1}, TuningAt(openness)),
              kOpen);
  }
}

TEST(LatencyTest, TightKeepsEverybodyOutWhileItWaits) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 10'000; ++i) {
    LatencyCounts counts = RandomCounts(random);
    counts.active = 1 + static_cast<std::uint32_t>(random() % 4);
    counts.waiting = 1 + static_cast<std::uint32_t>(random() % counts.active);
    ASSERT_EQ(LevelFor(counts, TuningAt(kTight)), kClosed);
  }
  EXPECT_EQ(LevelFor({.resting = true}, TuningAt(kTight)), kClosed);
  EXPECT_EQ(LevelFor({.active = 1, .usual_launches = 100, .resting = true}, TuningAt(kTight)),
            kClosed)
      << "the next one has begun";
}

TEST(LatencyTest, OffNeverHoldsAnybody) {
  std::mt19937_64 random(4);
  for (int i = 0; i < 10'000; ++i) {
    ASSERT_EQ(LevelFor(RandomCounts(random), TuningAt(kNoProtection)), kOpen);
  }
  EXPECT_EQ(RestNs(TuningAt(kNoProtection), 1'000'000'000, false), 0U);
}

TEST(LatencyTest, BalancedLetsLightKernelsInWhileItWaits) {
  EXPECT_EQ(LevelFor({.active = 1, .waiting = 1}, TuningAt(kBalanced)), kLightClass);
  EXPECT_LT(kLightClass, ClassOf(1)) << "and no others";
}

TEST(LatencyTest, ALaunchingJobHoldsOthersOnlyNearItsEndOrFarBehind) {
  const LatencyTuning tuning{.waiting_level = kClosed, .marks_behind = 4, .open_share = 70};
  const auto level = [&](std::uint64_t launched, std::uint64_t usual, std::uint32_t behind) {
    return LevelFor({.active = 1, .behind = behind, .launched = launched, .usual_launches = usual},
                    tuning);
  };
  EXPECT_EQ(level(0, 100, 0), kOpen);
  EXPECT_EQ(level(69, 100, 3), kOpen);
  EXPECT_EQ(level(70, 100, 0), kClosed) << "its end is near";
  EXPECT_EQ(level(500, 100, 0), kClosed) << "longer than usual";
  EXPECT_EQ(level(10, 100, 4), kClosed) << "its kernels are late";
  EXPECT_EQ(level(10, 100, UINT32_MAX), kClosed) << "a graph is under way";
  EXPECT_EQ(level(1, 0, 0), kClosed) << "nothing is known of its requests yet";
  EXPECT_EQ(level(UINT32_MAX, UINT32_MAX, 0), kClosed);
}

TEST(LatencyTest, AWaitOpenedEarlyStaysOpen) {
  EXPECT_EQ(LevelFor({.active = 1, .waiting = 1, .early = true}, TuningAt(kBalanced)), kOpen);
}

TEST(LatencyTest, TheGateIsClosedForAShareOfALongWait) {
  EXPECT_EQ(ClosedNs(TuningAt(kTight), 10'000'000), 0U) << "tight: to the end";
  EXPECT_EQ(ClosedNs(TuningAt(kBalanced), 10'000'000), 0U) << "balanced too";
  EXPECT_EQ(ClosedNs(TuningAt(750), 100'000), 0U) << "too short to bother";
  EXPECT_EQ(ClosedNs(TuningAt(750), 0), 0U) << "unknown";
  EXPECT_EQ(ClosedNs(TuningAt(750), 1'000'000), 500'001U);
  for (std::uint32_t openness = 1; openness < kNoProtection; ++openness) {
    for (const std::uint64_t usual : {300'000U, 2'400'000U, 1'000'000'000U}) {
      const std::uint64_t closed = ClosedNs(TuningAt(openness), usual);
      if (TuningAt(openness).closed_share >= 100) {
        ASSERT_EQ(closed, 0U) << openness;
        continue;
      }
      ASSERT_GT(closed, 0U) << openness << ": 0 would mean to the end";
      ASSERT_LE(closed, usual) << openness;
    }
  }
}

TEST(LatencyTest, ARestIsShortAgainstItsRequest) {
  for (std::uint32_t openness = 0; openness <= kNoProtection; ++openness) {
    const LatencyTuning tuning = TuningAt(openness);
    for (const std::uint64_t request : {0U, 1'000U, 2'000'000U, 4'000'000'000U}) {
      ASSERT_LE(RestNs(tuning, request, false), request / 16);
      ASSERT_LE(RestNs(tuning, request, false), tuning.rest_ns);
      ASSERT_EQ(RestNs(tuning, request, true), std::min(tuning.rest_ns, kApartRestNs));
    }
  }
  EXPECT_EQ(RestNs(TuningAt(kTight), UINT64_MAX, false), 200'000U);
}

TEST(LatencyTest, TheMeanForgetsAProgramsFirstRequestsFast) {
  EXPECT_EQ(MeanNs(0, 5'000), 5'000U);
  std::uint64_t mean = 2'000'000'000;
  for (int i = 0; i < 30; ++i) mean = MeanNs(mean, 5'000'000);
  EXPECT_LT(mean, 8'000'000U);
  for (int i = 0; i < 50; ++i) mean = MeanNs(mean, 5'000'000);
  EXPECT_NEAR(static_cast<double>(mean), 5e6, 1e5);
  EXPECT_LE(MeanNs(mean, 1'000'000'000), mean * 9 / 8 + 1) << "one that is far out";
  // Half of them take five times as long.
  double sum = 0;
  for (int i = 0; i < 200; ++i) {
    mean = MeanNs(mean, i % 2 == 0 ? 5'000'000 : 25'000'000);
    if (i >= 100) sum += static_cast<double>(mean) / 100;
  }
  EXPECT_NEAR(sum, 15e6, 2e6);
}

TEST(LatencyTest, WhatIsUsualFallsAtOnceAndRisesSlowly) {
  EXPECT_EQ(UsualNs(0, 5'000), 5'000U);
  // A start kernel by kernel, then graphs: a handful of them is enough.
  std::uint64_t usual = 8'000'000;
  for (int i = 0; i < 10; ++i) usual = UsualNs(usual, 2'300'000);
  EXPECT_LT(usual, 2'310'000U);
  EXPECT_GE(usual, 2'300'000U);
  EXPECT_LT(UsualNs(usual, 2'600'000), 2'350'000U);
  // One that was held up, however long, does not double what the next is expected to take.
  EXPECT_LT(UsualNs(usual, 1'000'000'000), usual * 5 / 4);
  for (int i = 0; i < 100; ++i) usual = UsualNs(usual, 9'000'000);
  EXPECT_GT(usual, 8'900'000U) << "and yet it follows";
  EXPECT_LE(usual, 9'000'000U);
}

}  // namespace
}  // namespace divvy::gate
