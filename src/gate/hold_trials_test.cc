#include "gate/hold_trials.h"

#include <gtest/gtest.h>

#include <random>

namespace divvy::gate {
namespace {

// Of the last `among` requests, all in a row, how many were held: each takes what `ns` says.
template <typename Ns>
int HeldAmong(HoldTrials& trials, int requests, int among, Ns ns) {
  int held = 0;
  for (int i = 0; i < requests; ++i) {
    const bool hold = trials.Next();
    trials.Add(hold, ns(hold));
    if (i >= requests - among) held += hold ? 1 : 0;
  }
  return held;
}

TEST(HoldTrialsTest, BothWaysAreTriedFirst) {
  HoldTrials trials;
  EXPECT_EQ(trials.MedianNs(true), 0U);
  EXPECT_EQ(HeldAmong(trials, 8, 8, [](bool held) { return held ? 1'000 : 1'001; }), 4);
  EXPECT_EQ(trials.Count(true), 4U);
  EXPECT_EQ(trials.MedianNs(true), 1'000U);
  EXPECT_EQ(trials.MedianNs(false), 1'001U);
}

TEST(HoldTrialsTest, TheFasterWayIsKeptAndTheOtherTriedNowAndThen) {
  std::mt19937 random(3);
  for (const bool worth : {true, false}) {
    HoldTrials trials;
    const int held = HeldAmong(trials, 360, 320, [&](bool hold) {
      return (hold == worth ? 2'300'000 : 2'620'000) + random() % 100'000;
    });
    EXPECT_EQ(held, worth ? 315 : 5);
  }
}

TEST(HoldTrialsTest, WhatMakesNoDifferenceIsTriedInTurn) {
  HoldTrials trials;
  EXPECT_EQ(HeldAmong(trials, 200, 100, [](bool) { return 2'300'000; }), 50);
}

TEST(HoldTrialsTest, FollowsWhenItTurns) {
  HoldTrials trials;
  EXPECT_GT(HeldAmong(trials, 100, 50, [](bool hold) { return hold ? 100 : 200; }), 40);
  // Both ways take long to be seen anew: one is tried rarely.
  EXPECT_LT(HeldAmong(trials, 300, 50, [](bool hold) { return hold ? 200 : 100; }), 10);
}

TEST(HoldTrialsTest, OneOutlierDecidesNothing) {
  HoldTrials trials;
  int i = 0;
  HeldAmong(trials, 100, 1, [&](bool hold) { return hold ? (++i % 8 == 0 ? 9'000 : 100) : 200; });
  EXPECT_GT(HeldAmong(trials, 64, 64, [](bool hold) { return hold ? 100 : 200; }), 50);
}

TEST(HoldTrialsTest, HoldsThatHurtTheirRequestAreGivenUpWhateverTheyWin) {
  HoldTrials trials;
  int held = 0;
  for (int i = 0; i < 200; ++i) {
    const bool hold = trials.Next();
    trials.AddBearer(hold, hold ? 110 : 100);
    trials.Add(hold, hold ? 100 : 200);
    if (i >= 100) held += hold ? 1 : 0;
  }
  EXPECT_LT(held, 10);
  EXPECT_GT(held, 0) << "it may have changed";
}

TEST(HoldTrialsTest, WhereNothingComesInARowThereIsNothingToHoldFor) {
  HoldTrials trials;
  for (int i = 0; i < 200; ++i) {
    const bool hold = trials.Next();
    EXPECT_TRUE(!hold || i < 64) << i;
    trials.AddBearer(hold, 100);
  }
}

TEST(HoldTrialsTest, HoldsThatNeverComeAboutAreWishedForAndCostNoDecision) {
  HoldTrials trials;
  for (int i = 0; i < 100; ++i) {
    const bool hold = trials.Next();
    EXPECT_TRUE(hold || i < 5);
    trials.Add(false, 1'000);
  }
}

}  // namespace
}  // namespace divvy::gate
