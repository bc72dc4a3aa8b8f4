#include "gate/alone.h"

#include <gtest/gtest.h>

// What a job is found to take.

#include "gate/test_alone.h"

namespace divvy::gate {
namespace {

TEST_F(AloneTest, EachLearnsWhatItsWorkTakesAlone) {
  const int right = Add(1.0, 4 * kMs);
  const int twice_too_long = Add(2.0, 4 * kMs);
  const int far_too_short = Add(0.2, 4 * kMs);
  EXPECT_DOUBLE_EQ(ScaleOf(right), 1);
  Run(10'000 * kMs);
  EXPECT_NEAR(ScaleOf(right), 1, 0.05);
  EXPECT_NEAR(ScaleOf(twice_too_long), 0.5, 0.025);
  EXPECT_NEAR(ScaleOf(far_too_short), 5, 0.25);
}

// Marks that were put before its kernels were known are passed for a while.
TEST_F(AloneTest, AMeasurementThatIsFarOffIsForgotten) {
  const int one = Add(0.04);
  const int other = Add(1.0);
  Run(3'000 * kMs);
  EXPECT_NEAR(ScaleOf(one), 25, 1.5);
  At(one).predicted = 1;
  // Marks do not go back.
  At(one).done_us = 25 * At(one).done_us + 1e6;
  ASSERT_TRUE(RunUntilAlone(one));
  Run(2 * kLongestAloneNs);
  EXPECT_NEAR(ScaleOf(one), 1, 0.05);
  EXPECT_NEAR(ScaleOf(other), 1, 0.05);
}

// What it launched while it had the GPU for itself has no marks, and cannot be stopped.
TEST_F(AloneTest, WhatWasLaunchedBeforeOthersCameIsWaitedFor) {
  const int one = Add(1.0);
  const int before = Add(1.0);
  Run(1'000 * kMs);
  EndJob(before);
  SlotOf(one).submitted[0].store(SlotOf(one).passed[0].load());
  At(one).is_unknown = true;
  At(one).under_way_ns = 400 * kMs;
  Run(100 * kMs);
  const int joins = Add(1.0);
  Run(300 * kMs);
  At(one).is_unknown = false;
  At(one).under_way_ns = 0;
  ASSERT_TRUE(RunUntilAlone(joins));
  Run(2 * kAloneNs);
  SlotOf(one).scale.store(kUnscaled);
  EXPECT_NEAR(ScaleOf(joins), 1, 0.05);
}

TEST_F(AloneTest, OneThatMeetsOthersIsNotMeasuredAndAllAreChargedAsPredicted) {
  const int one = Add(2.0);
  const int other = Add(0.5);
  Run(5'000 * kMs);
  EXPECT_NEAR(ScaleOf(one), 0.5, 0.025);
  At(one).is_measurable = false;
  At(one).times_alone = 0;
  Run(20'000 * kMs);
  EXPECT_EQ(At(one).times_alone, 0);
  EXPECT_DOUBLE_EQ(ScaleOf(other), 1);
}

// What was measured by then is the caller's to keep.
TEST_F(AloneTest, WhatWasMeasuredIsTakenOnceBesideOneThatCannotBe) {
  const int one = Add(2.0);
  const int other = Add(0.5);
  Run(5'000 * kMs);
  At(other).is_measurable = false;
  Run(100 * kMs);
  EXPECT_NEAR(At(one).meter.TakeScale(), 0.5 * kUnscaled, 0.025 * kUnscaled);
  EXPECT_EQ(At(one).meter.TakeScale(), kUnscaled);
  At(other).is_measurable = true;
  At(one).predicted = 1;
  Run(100 * kMs);
  EXPECT_DOUBLE_EQ(ScaleOf(one), 1) << "it is known already";
}

TEST_F(AloneTest, TwoThatCanBeMeasuredAgainDoNotWaitForEachOther) {
  const int one = Add(2.0);
  const int other = Add(0.5);
  At(one).is_measurable = At(other).is_measurable = false;
  Run(1'000 * kMs);
  At(one).is_measurable = At(other).is_measurable = true;
  Run(5'000 * kMs);
  EXPECT_NEAR(ScaleOf(one), 0.5, 0.025);
  EXPECT_NEAR(ScaleOf(other), 2, 0.1);
}

// Found out in the very moment in which it is alone.
TEST_F(AloneTest, OneThatBeginsToMeetOthersWhileAloneLearnsNothing) {
  const int one = Add(2.0);
  const int other = Add(0.5);
  ASSERT_TRUE(RunUntilAlone(one));
  Run(15 * kMs);
  At(one).is_measurable = false;
  Run(2 * kMs);
  EXPECT_TRUE(MayRun(other));
  Run(2 * kLongestAloneNs);
  EXPECT_EQ(SlotOf(one).scale.load(), kUnmeasurable);
  EXPECT_EQ(At(one).meter.TakeScale(), kUnscaled);
}

TEST_F(AloneTest, WhoComesAgainIsMeasuredAsIfForTheFirstTime) {
  const int one = Add(2.0);
  const int other = Add(1.0);
  Run(60'000 * kMs);
  EXPECT_NEAR(ScaleOf(one), 0.5, 0.025);
  EndJob(other);
  Run(2 * kRoundNs);
  At(one).predicted = 0.5;
  const int third = Add(1.0);
  Run(1'500 * kMs);
  EXPECT_NEAR(ScaleOf(one), 2, 0.1);
  EXPECT_NEAR(ScaleOf(third), 1, 0.05);
}

// Its queue is short just when its moment would be over if the others had stood still at once.
TEST_F(AloneTest, AShortQueueSaysNothingBeforeTheOthersStandStill) {
  const int one = Add(2.0);
  const int other = Add(1.0, 25 * kMs);
  At(other).has_long_stream = true;
  ASSERT_TRUE(RunUntilAlone(one));
  Run(15 * kMs);
  At(one).is_filled = false;
  Run(8 * kMs);
  At(one).is_filled = true;
  Run(2 * kLongestAloneNs);
  SlotOf(other).scale.store(kUnscaled);
  EXPECT_NEAR(ScaleOf(one), 0.5, 0.025);
}

TEST_F(AloneTest, CountersMayWrap) {
  const int one = Add(2.0);
  const int other = Add(1.0);
  At(one).done_us = 2.2e9;
  At(other).done_us = 4.294e9;
  Run(10'000 * kMs);
  EXPECT_NEAR(ScaleOf(one), 0.5, 0.025);
  EXPECT_NEAR(ScaleOf(other), 1, 0.05);
}

TEST_F(AloneTest, MarksOutOfOrderAreNoWorkBackwards) {
  const int one = Add(2.0, 0, 8'000);
  const int other = Add(1.0);
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(RunUntilAlone(one));
    Run(kMs);
    // Of a stream that got ahead.
    SlotOf(one).passed[0].fetch_add(60'000);
    At(one).meter.Step(*board_, slots_[static_cast<std::size_t>(one)], true, now_);
    Run(2 * kLongestAloneNs);
    SlotOf(other).scale.store(kUnscaled);
    const double scale = ScaleOf(one);
    EXPECT_TRUE(scale == 1 || std::abs(scale - 0.5) < 0.05) << scale;
  }
}

// What was under way when the others were stopped must not count: here it takes longer than the
// moment would.
TEST_F(AloneTest, ItIsNotAloneUntilTheOthersWorkIsDone) {
  const int one = Add(1.0, 30 * kMs);
  const int other = Add(1.0, 30 * kMs);
  ASSERT_TRUE(RunUntilAlone(one));
  ASSERT_TRUE(RunUntilAlone(other));
  Run(8'000 * kMs);
  EXPECT_NEAR(ScaleOf(one), 1, 0.05);
  EXPECT_NEAR(ScaleOf(other), 1, 0.05);
}

// Kernels, or graphs, of 15 ms: a mark is passed but seldom.
TEST_F(AloneTest, LongWorkIsMeasuredFromMarkToMark) {
  const int long_one = Add(1.5, 15 * kMs, 15'000);
  const int other = Add(1.0);
  Run(10'000 * kMs);
  EXPECT_NEAR(ScaleOf(long_one), 1 / 1.5, 0.07);
  EXPECT_NEAR(ScaleOf(other), 1, 0.05);
}

// Of work whose units are longer than a moment may be nothing can be known. To charge others by
// what theirs takes, and it as if nobody had been beside it, would be worse than nothing.
TEST_F(AloneTest, WhereOneCannotBeMeasuredAllStayAsPredictedAndItCostsNoMore) {
  const int one = Add(0.5);
  const int endless = Add(0.5, 120 * kMs, 120'000);
  Run(30'000 * kMs);
  EXPECT_DOUBLE_EQ(ScaleOf(one), 1);
  EXPECT_DOUBLE_EQ(ScaleOf(endless), 1);
  EXPECT_LT(At(one).alone_ns + At(endless).alone_ns, 1'500 * kMs);
  EndJob(endless);
  const int other = Add(0.25);
  Run(15'000 * kMs);
  EXPECT_NEAR(ScaleOf(one), 2, 0.1);
  EXPECT_NEAR(ScaleOf(other), 4, 0.2);
}

TEST_F(AloneTest, StreamsThatWaitForOneThatIsStoppedCountAsStopped) {
  const int one = Add(0.5, 3 * kMs);
  const int forked = Add(0.25, 3 * kMs);
  At(forked).has_dependent = true;
  Run(10'000 * kMs);
  EXPECT_NEAR(ScaleOf(one), 2, 0.1);
  EXPECT_NEAR(ScaleOf(forked), 4, 0.2);
}

TEST_F(AloneTest, AStreamThatRunsOnBesideOneThatIsStoppedIsWaitedFor) {
  const int one = Add(0.5);
  const int other = Add(1.0, 25 * kMs);
  At(other).has_long_stream = true;
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(RunUntilAlone(one));
    Run(2 * kLongestAloneNs);
    SlotOf(other).scale.store(kUnscaled);
    EXPECT_NEAR(ScaleOf(one), 2, 0.1);
  }
}

TEST_F(AloneTest, TimeThatALatencyJobTakesIsNotCounted) {
  const int one = Add(0.5);
  const int other = Add(0.5);
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(RunUntilAlone(i % 2 == 0 ? one : other));
    Run(3 * kMs);
    Interrupt(30 * kMs);
  }
  EXPECT_NEAR(ScaleOf(one), 2, 0.1);
  EXPECT_NEAR(ScaleOf(other), 2, 0.1);
}

TEST_F(AloneTest, AQueueThatRunsDryEndsItAndTimeWithoutWorkIsNotCounted) {
  const int one = Add(0.5);
  const int other = Add(1.0);
  ASSERT_TRUE(RunUntilAlone(one));
  Run(15 * kMs);
  At(one).is_filled = false;
  Run(kAloneNs);
  EXPECT_EQ(HowManyMayRun(), 2);
  At(one).is_filled = true;
  ASSERT_TRUE(RunUntilAlone(other));
  Run(2 * kAloneNs);
  EXPECT_NEAR(ScaleOf(one), 2, 0.1) << "of the time in which it was filled";
}

}  // namespace
}  // namespace divvy::gate
