#include "gate/costs.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

namespace divvy::gate {
namespace {

TEST(CostsTest, KeysDifferWhereAnyFieldDiffers) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 20'000; ++round) {
    LaunchShape shape{.handle = random(),
                      .grid = {static_cast<std::uint32_t>(random() % 4096) + 1,
                               static_cast<std::uint32_t>(random() % 64) + 1,
                               static_cast<std::uint32_t>(random() % 64) + 1},
                      .block = {static_cast<std::uint32_t>(random() % 1024) + 1,
                                static_cast<std::uint32_t>(random() % 32) + 1,
                                static_cast<std::uint32_t>(random() % 64) + 1},
                      .shared_bytes = static_cast<std::uint32_t>(random() % 230'000)};
    const std::uint64_t key = KeyOf(shape);
    EXPECT_NE(key, 0U);
    EXPECT_EQ(KeyOf(shape), key);
    LaunchShape other = shape;
    std::uint32_t* const fields[] = {&other.grid[0],     &other.grid[1],  &other.grid[2],
                                     &other.block[0],    &other.block[1], &other.block[2],
                                     &other.shared_bytes};
    const auto which = random() % 8;
    if (which == 7) {
      other.handle ^= std::uint64_t{1} << random() % 64;
    } else {
      *fields[which] += 1;
    }
    ASSERT_NE(KeyOf(other), key) << "field " << which << " in round " << round;
  }
}

TEST(CostsTest, TransposedShapesHaveKeysOfTheirOwn) {
  std::set<std::uint64_t> keys;
  for (const std::uint32_t x : {1U, 2U, 8U, 32U}) {
    for (const std::uint32_t y : {1U, 2U, 8U, 32U}) {
      for (const std::uint32_t z : {1U, 2U, 8U, 32U}) {
        keys.insert(KeyOf({.handle = 42, .grid = {x, y, z}, .block = {32, 1, 1}}));
        keys.insert(KeyOf({.handle = 42, .grid = {64, 64, 64}, .block = {x, y, z}}));
      }
    }
  }
  EXPECT_EQ(keys.size(), 2U * 64);
}

TEST(CostsTest, ChargesAreRescaledAndPredictionsNot) {
  const auto table = std::make_unique<CostTable>();
  bool fresh = false;
  Cost& cost = *table->Find(7, &fresh);
  Cost& untimed = *table->Find(8, &fresh);
  Learn(cost, 10'000, /*shared=*/true);
  table->Rescale(512);
  EXPECT_EQ(ChargedNs(cost), 5'000U);
  EXPECT_EQ(PredictedNs(cost), 10'000U);
  EXPECT_EQ(ChargedNs(untimed), kUnknownNs);
  for (int i = 0; i < 40; ++i) table->Rescale(512);
  EXPECT_GT(cost.charged_ns.load(), 0U) << "it is known";
  for (int i = 0; i < 60; ++i) table->Rescale(4'096);
  EXPECT_EQ(ChargedNs(cost), UINT32_MAX);
}

TEST(CostsTest, KindsAreTimedAnewByTheNextFewLaunches) {
  const auto table = std::make_unique<CostTable>();
  bool fresh = false;
  Cost& cost = *table->Find(7, &fresh);
  const auto timed_of = [&cost](int launches) {
    int timed = 0;
    for (int i = 0; i < launches; ++i) {
      if (!WantsSample(cost)) continue;
      ++timed;
      Learn(cost, 90'000, /*shared=*/true);
    }
    return timed;
  };
  EXPECT_EQ(timed_of(101), 4);
  table->TimeAnew();
  ASSERT_TRUE(WantsSample(cost));
  Learn(cost, 40'000, /*shared=*/false);
  EXPECT_EQ(ChargedNs(cost), 40'000U);
  EXPECT_EQ(timed_of(100), 3);
}

TEST(CostsTest, AShorterMeasurementIsBelievedAtOnceALongerOneSlowly) {
  Cost cost{};
  EXPECT_EQ(PredictedNs(cost), kUnknownNs);
  Learn(cost, 80'000, false);
  EXPECT_EQ(PredictedNs(cost), 80'000U);
  Learn(cost, 30'000, false);
  EXPECT_EQ(PredictedNs(cost), 30'000U);
  Learn(cost, 30'000 + 16'000, false);
  EXPECT_EQ(PredictedNs(cost), 31'000U);
  EXPECT_EQ(cost.samples.load(), 3U);
}

TEST(CostsTest, ADisturbedKernelStaysNearItsTrueTime) {
  // One measurement in four falls between another job's kernels and comes out many times as long.
  std::mt19937_64 random(11);
  Cost cost{};
  for (int i = 0; i < 1000; ++i) {
    const bool disturbed = random() % 4 == 0;
    Learn(cost, 20'000 + static_cast<std::uint32_t>(random() % 1000) + (disturbed ? 200'000U : 0U),
          false);
    ASSERT_LT(PredictedNs(cost), 120'000U);
  }
  Learn(cost, 20'500, false);
  EXPECT_LE(PredictedNs(cost), 21'000U);
}

TEST(CostsTest, AKernelThatGrewIsFollowed) {
  Cost cost{};
  Learn(cost, 10'000, false);
  for (int i = 0; i < 100; ++i) Learn(cost, 100'000, false);
  EXPECT_GT(PredictedNs(cost), 95'000U);
  EXPECT_LE(PredictedNs(cost), 100'000U);
}

TEST(CostsTest, NothingTakesNoTime) {
  Cost cost{};
  Learn(cost, 0, false);
  EXPECT_EQ(PredictedNs(cost), 1U);
  for (const std::uint32_t ns : {UINT32_MAX, UINT32_MAX, 1U}) Learn(cost, ns, false);
  EXPECT_EQ(PredictedNs(cost), 1U);
}

TEST(CostsTest, LightIsShortAndSmallAndKnown) {
  Cost cost{};
  cost.fill.store(kLightFill);
  EXPECT_FALSE(IsLight(cost)) << "nobody knows yet how long it takes";
  Learn(cost, kLightNs, false);
  EXPECT_TRUE(IsLight(cost));
  cost.fill.store(kLightFill + 1);
  EXPECT_FALSE(IsLight(cost));
  Cost longer{};
  Learn(longer, kLightNs + 1, false);
  EXPECT_FALSE(IsLight(longer));
}

TEST(CostsTest, AFewAreTimedAtFirstAndThenOneNowAndThen) {
  Cost cost{};
  std::vector<int> timed;
  for (int i = 0; i < 5000; ++i) {
    if (!WantsSample(cost)) continue;
    timed.push_back(i);
    Learn(cost, 1000, false);
  }
  ASSERT_GE(timed.size(), 8U);
  EXPECT_EQ((std::vector<int>(timed.begin(), timed.begin() + 4)), (std::vector<int>{1, 2, 3, 4}))
      << "not the first: it pays for loading its code";
  EXPECT_LE(timed.size(), 4U + 5000 / 512);
  for (std::size_t i = 5; i < timed.size(); ++i) EXPECT_EQ(timed[i] - timed[i - 1], 512);
}

TEST(CostsTest, FindGivesTheSameEntryAndSaysOnceThatItIsFresh) {
  const auto table = std::make_unique<CostTable>();
  bool fresh = false;
  Cost* const first = table->Find(99, &fresh);
  ASSERT_NE(first, nullptr);
  EXPECT_TRUE(fresh);
  EXPECT_EQ(table->Find(99, &fresh), first);
  EXPECT_FALSE(fresh);
  // Its neighbour wants the same place.
  Cost* const second = table->Find(99 + CostTable::kEntries, &fresh);
  EXPECT_TRUE(fresh);
  EXPECT_NE(second, first);
  EXPECT_EQ(table->Find(99, &fresh), first);
}

TEST(CostsTest, AFullTableKnowsWhatItKnewAndTakesNoMore) {
  const auto table = std::make_unique<CostTable>();
  bool fresh = false;
  for (std::uint64_t key = 1; key <= CostTable::kEntries; ++key) {
    ASSERT_NE(table->Find(key, &fresh), nullptr);
    ASSERT_TRUE(fresh);
  }
  EXPECT_EQ(table->Find(CostTable::kEntries + 1, &fresh), nullptr);
  EXPECT_FALSE(fresh);
  Cost* const known = table->Find(CostTable::kEntries, &fresh);
  ASSERT_NE(known, nullptr);
  EXPECT_FALSE(fresh);
  EXPECT_EQ(known->key.load(), CostTable::kEntries);
}

TEST(CostsTest, WhatIsForgottenIsLearnedAnewAndHidesNobody) {
  const auto table = std::make_unique<CostTable>();
  bool fresh = false;
  Cost* const gone = table->Find(5, &fresh);
  Cost* const behind = table->Find(5 + CostTable::kEntries, &fresh);
  ASSERT_NE(gone, nullptr);
  ASSERT_NE(behind, nullptr);
  for (int i = 0; i < 10; ++i) {
    static_cast<void>(WantsSample(*gone));
    Learn(*gone, 777, false);
    Learn(*behind, 888, false);
  }
  table->Forget(5);
  table->Forget(123'456);  // Never known.
  EXPECT_EQ(PredictedNs(*gone), kUnknownNs);
  EXPECT_EQ(ChargedNs(*gone), kUnknownNs);
  EXPECT_FALSE(WantsSample(*gone)) << "a first launch again";
  EXPECT_TRUE(WantsSample(*gone));
  EXPECT_EQ(table->Find(5 + CostTable::kEntries, &fresh), behind);
  EXPECT_FALSE(fresh);
  EXPECT_EQ(PredictedNs(*behind), 888U);
}

TEST(CostsTest, OfManyThreadsThatFindAKindFirstOneIsTold) {
  constexpr int kThreads = 4;
  constexpr std::uint64_t kKeys = 4000;
  const auto table = std::make_unique<CostTable>();
  std::atomic<int> fresh_count{0};
  std::atomic<int> ready{0};
  std::vector<std::vector<Cost*>> found(kThreads);
  std::vector<std::thread> threads;
  for (auto& own : found) {
    threads.emplace_back([&] {
      ready.fetch_add(1);
      while (ready.load() < kThreads) std::this_thread::yield();
      for (std::uint64_t i = 0; i < kKeys; ++i) {
        bool fresh = false;
        // Four keys want each place, so that probes race too.
        own.push_back(table->Find(1 + i / 4 * 8 + i % 4 * CostTable::kEntries, &fresh));
        if (fresh) fresh_count.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::uint32_t used = 0;
  for (std::uint32_t i = 0; i < CostTable::kEntries; ++i) {
    used += table->At(i).key.load() != 0 ? 1 : 0;
  }
  EXPECT_EQ(used, kKeys) << "a kind has two entries";
  EXPECT_EQ(fresh_count.load(), static_cast<int>(kKeys));
  for (const auto& own : found) EXPECT_EQ(own, found[0]);
}

TEST(CostsTest, TheChargeStaysWhileOthersAreThereOnceItIsKnown) {
  Cost cost{};
  EXPECT_EQ(ChargedNs(cost), kUnknownNs);
  for (const std::uint32_t ns : {4000U, 3000U, 5000U, 2000U}) {
    Learn(cost, ns, true);
    EXPECT_EQ(ChargedNs(cost), PredictedNs(cost));
  }
  Learn(cost, 1000, true);
  EXPECT_EQ(PredictedNs(cost), 1000U);
  EXPECT_EQ(ChargedNs(cost), 2000U);
  for (int i = 0; i < 100; ++i) Learn(cost, 9000, true);
  EXPECT_EQ(ChargedNs(cost), 2000U);
  Learn(cost, 1500, false);
  EXPECT_EQ(ChargedNs(cost), 1500U) << "nobody else is there";
}

}  // namespace
}  // namespace divvy::gate
