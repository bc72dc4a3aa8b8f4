#include "control/astraea.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "control/test_estate.h"

namespace divvy::control {
namespace {

using planner::Work;

int TenthsOf(const std::vector<Cell>& cells, Work::Kind kind, std::size_t tenant) {
  int tenths = 0;
  for (const Cell& cell : cells) {
    const bool same = cell.work.kind == kind && cell.work.tenant == tenant;
    if (same) tenths += std::get<Share>(cell.where).tenths;
  }
  return tenths;
}

int Serving(const std::vector<Cell>& cells, std::size_t tenant) {
  return TenthsOf(cells, Work::Kind::kServe, tenant);
}

int Training(const std::vector<Cell>& cells, std::size_t tenant) {
  return TenthsOf(cells, Work::Kind::kRetrain, tenant);
}

// A view in which every slot so far had these loads.
struct Past {
  std::vector<std::vector<double>> arrivals;
  View view;

  Past(const Estate& estate, int slot, const std::vector<double>& loads)
      : view(testing::FirstView(estate)) {
    for (const double load : loads) arrivals.emplace_back(static_cast<std::size_t>(slot), load);
    view.slot = slot;
    view.arrivals = arrivals;
  }
  Past(const Past&) = delete;
  Past& operator=(const Past&) = delete;
};

TEST(AstraeaTest, NeedIsTheFewestTenthsThatCover) {
  const Estate estate = testing::MakeTestEstate(2, {{.capacity = 100}});
  EXPECT_EQ(TenthsFor(estate, 0, 0), 0);
  EXPECT_EQ(TenthsFor(estate, 0, 29), 3);
  EXPECT_EQ(TenthsFor(estate, 0, 31), 4);
  EXPECT_EQ(TenthsFor(estate, 0, 131), 14);
  EXPECT_EQ(TenthsFor(estate, 0, 1000), 20);
}

TEST(AstraeaTest, CoversTheNeedAndGivesTheRestToTraining) {
  // 30 requests and a tenth more need 4 tenths of 100.
  const Estate estate = testing::MakeTestEstate(1, {{.training = 10}, {.load = 20}});
  Astraea astraea(estate);
  const Decision decision = astraea.Decide(testing::FirstView(estate));
  ASSERT_TRUE(decision.cells);
  EXPECT_EQ(Serving(*decision.cells, 0), 4);
  EXPECT_EQ(Serving(*decision.cells, 1), 3);
  EXPECT_EQ(Training(*decision.cells, 0), 3);
}

TEST(AstraeaTest, RetrainingsShareTheRestEvenly) {
  const Estate estate =
      testing::MakeTestEstate(1, {{.load = 15, .training = 5}, {.load = 15, .training = 5}});
  Astraea astraea(estate);
  const Decision decision = astraea.Decide(testing::FirstView(estate));
  ASSERT_TRUE(decision.cells);
  EXPECT_EQ(Training(*decision.cells, 0), 3);
  EXPECT_EQ(Training(*decision.cells, 1), 3);
}

TEST(AstraeaTest, FewerRetrainWhereAnEvenShareWouldNotEnd) {
  // Alone on 6 tenths one ends in time, both on 3 do not.
  const Estate estate =
      testing::MakeTestEstate(1, {{.load = 15, .training = 45, .reached = {0.7}},
                                  {.load = 16, .training = 45, .reached = {0.8}}});
  Astraea astraea(estate);
  const Decision decision = astraea.Decide(testing::FirstView(estate));
  ASSERT_TRUE(decision.cells);
  EXPECT_EQ(Training(*decision.cells, 0), 0);
  EXPECT_EQ(Training(*decision.cells, 1), 6) << "it gains more";
}

TEST(AstraeaTest, SharesInProportionWhenAllNeedMore) {
  const Estate estate = testing::MakeTestEstate(1, {{.load = 90}, {.load = 45}, {.training = 5}});
  Astraea astraea(estate);
  const Decision decision = astraea.Decide(testing::FirstView(estate));
  ASSERT_TRUE(decision.cells);
  EXPECT_EQ(Serving(*decision.cells, 0), 5);
  EXPECT_EQ(Serving(*decision.cells, 1), 3);
  EXPECT_EQ(Serving(*decision.cells, 2), 2);
  EXPECT_EQ(Training(*decision.cells, 2), 0);
}

TEST(AstraeaTest, GrowsAtOnceAndShrinksWithPatience) {
  const Estate estate = testing::MakeTestEstate(1, {{.load = 30}});
  Astraea astraea(estate);
  std::vector<Cell> cells = *astraea.Decide(testing::FirstView(estate)).cells;
  const auto decide = [&](int slot, double load) {
    Past past(estate, slot, {load});
    past.view.cells = testing::Running(cells);
    const Decision decision = astraea.Decide(past.view);
    if (decision.cells) cells = *decision.cells;
    return Serving(cells, 0);
  };
  EXPECT_EQ(decide(5, 60), 7);
  for (int slot = 10; slot < 40; slot += 5) EXPECT_EQ(decide(slot, 30), 7) << slot;
  EXPECT_EQ(decide(40, 20), 4) << "the most that it needed in the meantime";
  // A need that comes back begins the wait anew.
  for (int slot = 45; slot < 200; slot += 5) {
    EXPECT_EQ(decide(slot, slot % 20 == 0 ? 30 : 10), 4) << slot;
  }
}

TEST(AstraeaTest, KeepsARetrainingAsItIsWhereMoreWouldNotEndItSooner) {
  const Estate estate = testing::MakeTestEstate(1, {{.load = 15, .training = 10}}, 6);
  Astraea astraea(estate);
  Past past(estate, 50, {15});
  const Cell service{0, Share{2}, {Work::Kind::kServe, 0, 0}};
  const Cell retraining{0, Share{6}, {Work::Kind::kRetrain, 0, 0}};
  past.view.cells = testing::Running({service, retraining}, 0.9);
  EXPECT_FALSE(astraea.Decide(past.view).cells);
}

// Loop checks every decision with FindFault and tells when one cannot be.
TEST(AstraeaTest, DecidesOnlyWhatCanBe) {
  Random random(12);
  for (int i = 0; i < 60; ++i) {
    const int gpus = 1 + i % 3;
    const Estate estate =
        testing::RandomEstate(gpus, 1 + static_cast<int>(random.Below(4)), random);
    const auto loads = testing::RandomLoads(estate, 250, random);
    Astraea astraea(estate);
    Astraea again(estate);
    const double refuses = i % 4 == 0 ? 0.3 : 0;
    const testing::Drive drive = testing::DriveLoop(estate, astraea, loads, refuses);
    for (const LoopEvent& event : drive.events) {
      if (event.kind != LoopEvent::Kind::kKept) continue;
      EXPECT_EQ(event.text, testing::TestPlant::kRefused) << i;
    }
    EXPECT_EQ(testing::DriveLoop(estate, again, loads, refuses).cells, drive.cells);
  }
}

TEST(AstraeaTest, EveryServiceHasWhatItNeedsWhenThereIsEnough) {
  Random random(13);
  int enough = 0;
  for (int i = 0; i < 60; ++i) {
    const Estate estate = testing::RandomEstate(1, 3, random);
    Astraea astraea(estate);
    const Decision decision = astraea.Decide(testing::FirstView(estate));
    ASSERT_TRUE(decision.cells);
    std::vector<int> needs;
    for (std::size_t m = 0; m < 3; ++m) {
      needs.push_back(TenthsFor(estate, m, 1.1 * estate.tenants[m].mean_load));
    }
    if (std::accumulate(needs.begin(), needs.end(), 0) > 10) continue;
    ++enough;
    for (std::size_t m = 0; m < 3; ++m) {
      double capacity = 0;
      for (const Cell& cell : *decision.cells) {
        if (cell.work == Work{Work::Kind::kServe, m, 0}) capacity += OfferAt(estate, cell).capacity;
      }
      EXPECT_GE(capacity, estate.tenants[m].mean_load) << i;
    }
  }
  EXPECT_GE(enough, 10);
}

}  // namespace
}  // namespace divvy::control
