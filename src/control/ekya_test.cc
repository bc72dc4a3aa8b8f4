#include "control/ekya.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "control/ekya_thief.h"
#include "control/test_estate.h"

namespace divvy::control {
namespace {

using planner::Work;

int Total(const Split& split) {
  return std::accumulate(split.serving.begin(), split.serving.end(), split.idle) +
         std::accumulate(split.retraining.begin(), split.retraining.end(), 0);
}

// The best of all ways to split `left` tenths among the tenants from `m` on.
double Exhaustive(const Estate& estate, const View& view, const EkyaEstimate& estimate,
                  std::size_t m, int left) {
  if (m == estate.tenants.size()) return 0;
  double best = 0;
  for (int serving = 0; serving <= left; ++serving) {
    const int most = MayRetrain(estate, view, m) ? std::min(kTenths, left - serving) : 0;
    for (int retraining = 0; retraining <= most; ++retraining) {
      best = std::max(best,
                      estimate.Tenant(m, serving, retraining) +
                          Exhaustive(estate, view, estimate, m + 1, left - serving - retraining));
    }
  }
  return best;
}

TEST(EkyaThiefTest, FairSplitGivesEveryJobTheSame) {
  const Estate estate = testing::MakeTestEstate(1, {{.training = 10}, {}, {.training = 10}});
  const Split split = FairSplit(estate, testing::FirstView(estate));
  EXPECT_EQ(split, (Split{{2, 2, 2}, {2, 0, 2}, 0}));
}

TEST(EkyaThiefTest, EqualsExhaustiveSearchWhereNothingIsStepped) {
  // Without retrainings the estimate is concave, and theft by pairs cannot get stuck.
  const Estate estate = testing::MakeTestEstate(
      1, {{.capacity = 100, .load = 55, .weight = 2}, {.capacity = 80, .load = 30}, {.load = 40}});
  const View view = testing::FirstView(estate);
  const EkyaEstimate estimate(estate, view);
  const Split split = Steal(estate, view, estimate, FairSplit(estate, view));
  EXPECT_NEAR(Estimate(estimate, split), Exhaustive(estate, view, estimate, 0, kTenths), 1e-6);
}

// Thefts by pairs may stop short of the best, but not by much, and never below the start.
TEST(EkyaThiefTest, IsNearExhaustiveSearchAndNeverBelowItsStart) {
  Random random(5);
  double sum = 0;
  double best = 0;
  for (int i = 0; i < 60; ++i) {
    const Estate estate = testing::RandomEstate(1, 2, random);
    const View view = testing::FirstView(estate);
    const EkyaEstimate estimate(estate, view);
    const Split fair = FairSplit(estate, view);
    const Split split = Steal(estate, view, estimate, fair);
    const double value = Estimate(estimate, split);
    const double exhaustive = Exhaustive(estate, view, estimate, 0, kTenths);
    EXPECT_EQ(Total(split), kTenths);
    EXPECT_GE(value, Estimate(estimate, fair)) << i;
    EXPECT_LE(value, exhaustive + 1e-6) << i;
    EXPECT_GE(value, 0.9 * exhaustive) << i;
    sum += value;
    best += exhaustive;
  }
  EXPECT_GE(sum, 0.99 * best);
}

TEST(EkyaThiefTest, RetrainingIsWorthWhatItGainsUntilTheWindowEnds) {
  // No drift, no restart: 30 requests a slot at 0.6, and after 20 slots at 0.75.
  const Estate estate =
      testing::MakeTestEstate(1, {{.training = 20, .reached = {0.75}, .drift_per_minute = 0}}, 0);
  const View view = testing::FirstView(estate);
  const EkyaEstimate estimate(estate, view);
  EXPECT_NEAR(estimate.Tenant(0, 10, 10), 30 * (0.6 * 20 + 0.75 * 80), 1e-6);
  EXPECT_NEAR(estimate.Tenant(0, 10, 0), 30 * 0.6 * 100, 1e-6);
  EXPECT_NEAR(estimate.Tenant(0, 2, 0), 20 * 0.6 * 100, 1e-6);
  // With a tenth it does not end in the window.
  EXPECT_NEAR(estimate.Tenant(0, 9, 1), 30 * 0.6 * 100, 1e-6);
}

TEST(EkyaThiefTest, OptionsBelowThePresentAccuracyAreNotTaken) {
  const Estate estate =
      testing::MakeTestEstate(1, {{.training = 5, .accuracy = 0.9, .reached = {0.7, 0.8}}});
  const View view = testing::FirstView(estate);
  const EkyaEstimate estimate(estate, view);
  EXPECT_EQ(estimate.Retraining(0, 10), std::nullopt);
}

TEST(EkyaTest, DecidesAtWindowsAndRetrainingsEndsOnly) {
  const Estate estate = testing::MakeTestEstate(1, {{.training = 10}, {.load = 40}});
  Ekya ekya(estate);
  View view = testing::FirstView(estate);
  const Decision first = ekya.Decide(view);
  ASSERT_TRUE(first.cells);
  const auto retrains = [](const Cell& cell) { return cell.work.kind == Work::Kind::kRetrain; };
  ASSERT_EQ(std::ranges::count_if(*first.cells, retrains), 1);

  view.cells = testing::Running(*first.cells, 0.5);
  view.slot = 5;
  const std::vector<std::vector<double>> burst(2, {90, 90, 90, 90, 90});
  view.arrivals = burst;
  EXPECT_FALSE(ekya.Decide(view).cells) << "a burst alone is no reason";

  view.slot = 30;
  std::erase_if(view.cells, [&](const CellState& state) { return retrains(state.cell); });
  view.tenants[0].retrained = true;
  const Decision second = ekya.Decide(view);
  ASSERT_TRUE(second.cells);
  EXPECT_EQ(std::ranges::count_if(*second.cells, retrains), 0);

  view.cells = testing::Running(*second.cells);
  view.slot = 95;
  EXPECT_FALSE(ekya.Decide(view).cells);
  view.slot = 100;
  view.arrivals = {};  // As at the start: there is room for a retraining again.
  view.tenants[0].retrained = false;
  const Decision third = ekya.Decide(view);
  ASSERT_TRUE(third.cells);
  EXPECT_EQ(std::ranges::count_if(*third.cells, retrains), 1);
}

TEST(EkyaTest, TriesAgainWhatWasRefused) {
  const Estate estate = testing::MakeTestEstate(1, {{.training = 10}, {.load = 40}});
  Ekya ekya(estate);
  const Decision first = ekya.Decide(testing::FirstView(estate));
  View view = testing::FirstView(estate);
  view.slot = 5;
  EXPECT_TRUE(first.cells && ekya.Decide(view).cells);
}

TEST(EkyaTest, StaysWhereItIsWhenAChangePromisesNothing) {
  const Estate estate = testing::MakeTestEstate(1, {{.load = 40}, {.load = 30}}, 6);
  Ekya ekya(estate);
  View view = testing::FirstView(estate);
  view.slot = 100;
  view.cells = testing::Running(
      {{0, Share{5}, {Work::Kind::kServe, 0, 0}}, {0, Share{4}, {Work::Kind::kServe, 1, 0}}});
  EXPECT_FALSE(ekya.Decide(view).cells);
}

// Loop checks every decision with FindFault and tells when one cannot be.
TEST(EkyaTest, DecidesOnlyWhatCanBe) {
  Random random(11);
  for (int i = 0; i < 60; ++i) {
    const int gpus = 1 + i % 3;
    const Estate estate =
        testing::RandomEstate(gpus, 1 + static_cast<int>(random.Below(4)), random);
    const auto loads = testing::RandomLoads(estate, 250, random);
    Ekya ekya(estate);
    Ekya again(estate);
    const double refuses = i % 4 == 0 ? 0.3 : 0;
    const testing::Drive drive = testing::DriveLoop(estate, ekya, loads, refuses);
    for (const LoopEvent& event : drive.events) {
      if (event.kind != LoopEvent::Kind::kKept) continue;
      EXPECT_EQ(event.text, testing::TestPlant::kRefused) << i;
    }
    EXPECT_EQ(testing::DriveLoop(estate, again, loads, refuses).cells, drive.cells);
  }
}

}  // namespace
}  // namespace divvy::control
