#include "gate/alone.h"

#include <gtest/gtest.h>

// Who is alone and when, and that nobody stays stopped.

#include "gate/test_alone.h"

namespace divvy::gate {
namespace {

TEST_F(AloneTest, InAHundredthOfTheTimeInTurn) {
  for (int i = 0; i < 4; ++i) Add(1.0, 2 * kMs);
  Run(20'000 * kMs);
  for (Job& job : jobs_) {
    job.alone_ns = 0;
    job.times_alone = 0;
  }
  Run(60'000 * kMs);
  std::uint64_t all = 0;
  for (const Job& job : jobs_) {
    all += job.alone_ns;
    EXPECT_NEAR(job.times_alone, jobs_[0].times_alone, 1);
    EXPECT_GT(job.times_alone, 5);
  }
  EXPECT_LT(all, 660 * kMs);
}

TEST_F(AloneTest, ANewJobIsMeasuredSoonBesideSomeThatAreNot) {
  // Their moments are long, and the times between them are accordingly.
  Add(1.0, 25 * kMs);
  Add(1.0, 25 * kMs);
  Run(60'000 * kMs);
  const int fresh = Add(3.0);
  Run(1'500 * kMs);
  EXPECT_NEAR(ScaleOf(fresh), 1 / 3.0, 0.02);
  EXPECT_GT(At(fresh).times_alone, 1);
}

TEST_F(AloneTest, NobodyIsAloneUnlessTwoAreAtWorkAndOneHasAFilledQueue) {
  const int one = Add(1.0);
  Run(5'000 * kMs);
  EXPECT_EQ(SlotOf(one).alone_ns.load(), 0U) << "there is nobody else";
  const int other = Add(1.0);
  At(one).is_filled = false;
  At(other).is_filled = false;
  EXPECT_FALSE(RunUntilAlone(one, 5'000 * kMs));
  EXPECT_FALSE(RunUntilAlone(other, 5'000 * kMs));
  At(other).is_filled = true;
  EXPECT_TRUE(RunUntilAlone(one)) << "it might be one that lets the other catch up";
  EXPECT_TRUE(RunUntilAlone(other));
}

TEST_F(AloneTest, NobodyIsAloneBesideOneThatCannotWaitOnTheGpu) {
  const int one = Add(1.0);
  const int other = Add(1.0);
  const int third = Add(1.0);
  SlotOf(third).mode.store(static_cast<std::uint32_t>(GateMode::kHost));
  EXPECT_FALSE(RunUntilAlone(one, 5'000 * kMs));
  EXPECT_FALSE(RunUntilAlone(other, 5'000 * kMs));
  EndJob(third);
  EXPECT_TRUE(RunUntilAlone(one));
}

TEST_F(AloneTest, NobodyIsAloneBesideOneWhoseKernelsAreNotKnownYet) {
  const int one = Add(1.0);
  const int other = Add(1.0);
  At(other).is_unknown = true;
  EXPECT_FALSE(RunUntilAlone(one, 5'000 * kMs));
  At(other).is_unknown = false;
  EXPECT_TRUE(RunUntilAlone(one));
  EXPECT_TRUE(RunUntilAlone(other));
}

// What it would learn is in units that were taken into what is charged meanwhile.
TEST_F(AloneTest, AMomentInWhichOthersBecomeUnmeasurableEndsAndTeachesNothing) {
  const int one = Add(2.0);
  const int other = Add(0.5);
  Run(5'000 * kMs);
  ASSERT_TRUE(RunUntilAlone(one));
  At(other).is_measurable = false;
  EXPECT_NEAR(At(one).meter.TakeScale(), 0.5 * kUnscaled, 0.025 * kUnscaled);
  Run(30 * kMs);
  EXPECT_EQ(HowManyMayRun(), 2);
  Run(200 * kMs);
  EXPECT_EQ(At(one).meter.TakeScale(), kUnscaled);
}

// Which would stop it for nothing: all are charged as predicted.
TEST_F(AloneTest, NobodyThatIsNewIsMeasuredBesideOneThatCannotBe) {
  const int one = Add(2.0);
  At(one).is_measurable = false;
  const int fresh = Add(0.5);
  EXPECT_FALSE(RunUntilAlone(fresh, 5'000 * kMs));
  At(one).is_measurable = true;
  EXPECT_TRUE(RunUntilAlone(fresh));
}

// Kernels that are longer than a moment, and a machine that wakes everybody late.
TEST_F(AloneTest, LongMomentsAreAsRareThoughTheyEndLate) {
  Add(1.0, 300 * kMs);
  Add(1.0, 300 * kMs);
  late_ns_ = 8 * kStepNs;  // 1.3 ms from look to look: the last one is 1.1 late.
  Run(20'000 * kMs);
  for (Job& job : jobs_) job.alone_ns = 0;
  Run(120'000 * kMs);
  EXPECT_LT(At(0).alone_ns + At(1).alone_ns, 1'500 * kMs);
}

TEST_F(AloneTest, OneWhoseQueueIsShortKeepsNobodyFromBeingMeasured) {
  const int one = Add(2.0);
  const int other = Add(1.0);
  const int small = Add(3.0);
  At(small).is_filled = false;
  Run(10'000 * kMs);
  EXPECT_NEAR(ScaleOf(one), 0.5, 0.025);
  EXPECT_NEAR(ScaleOf(other), 1, 0.05);
  EXPECT_NEAR(ScaleOf(small), 1 / 3.0, 0.03) << "no more than all of the time";
  At(small).predicted = 1;
  At(small).done_us += 1e6;  // Marks do not go back.
  Run(30'000 * kMs);
  EXPECT_NEAR(ScaleOf(small), 1, 0.05) << "as predicted";
}

// Its owner is stopped in it.
TEST_F(AloneTest, AMomentThatOthersEndIsNotFollowedSoon) {
  const int one = Add(1.0);
  const int other = Add(1.0);
  Run(60'000 * kMs);
  ASSERT_TRUE(RunUntilAlone(one));
  At(one).runs = false;
  Run(100 * kMs);
  EXPECT_TRUE(MayRun(other));
  At(one).runs = true;
  EXPECT_FALSE(RunUntilAlone(other, 5'000 * kMs));
}

TEST_F(AloneTest, OneThatIsBrokenKeepsNobodyFromBeingMeasured) {
  const int one = Add(2.0);
  const int other = Add(1.0);
  const int broken = Add(1.0);
  At(broken).is_broken = true;
  SlotOf(broken).submitted[0].store(50'000);
  SlotOf(broken).last_launch_ns.store(now_);
  Run(10'000 * kMs);
  EXPECT_NEAR(ScaleOf(one), 0.5, 0.025);
  EXPECT_NEAR(ScaleOf(other), 1, 0.05);
}

// As they would stand in a file that outlived the machine's start.
TEST_F(AloneTest, TimesFarAheadAreNone) {
  constexpr std::uint64_t kHour = 3'600'000 * kMs;
  board_->alone_soon_ns.store(now_ + kHour);
  board_->alone_next_ns.store(now_ + kHour);
  board_->alone_until_ns.store(now_ + kHour);
  const int one = Add(2.0);
  const int other = Add(1.0);
  board_->alone_slot.store(slots_[static_cast<std::size_t>(one)]);
  Run(10'000 * kMs);
  EXPECT_NEAR(ScaleOf(one), 0.5, 0.025);
  EXPECT_NEAR(ScaleOf(other), 1, 0.05);
}

TEST_F(AloneTest, LatencyJobsAreNotAskedAndNotHeld) {
  const int one = Add(1.0);
  const int other = Add(1.0);
  SlotOf(other).job.job_class = JobClass::kLatency;
  EXPECT_FALSE(RunUntilAlone(one, 5'000 * kMs));
}

TEST_F(AloneTest, OneThatIsKilledWhileAloneStopsNobody) {
  const int one = Add(1.0);
  const int other = Add(1.0);
  ASSERT_TRUE(RunUntilAlone(one));
  At(one).runs = false;
  SlotOf(one).start_time = 1;  // Of another process, by now; nobody has reaped it.
  Run(2 * kRoundNs);
  EXPECT_TRUE(MayRun(other));
  EXPECT_EQ(board_->alone_until_ns.load(), 0U);
}

TEST_F(AloneTest, OneThatIsPausedWhileAloneStopsOthersForNoLonger) {
  const int one = Add(1.0);
  const int other = Add(1.0);
  ASSERT_TRUE(RunUntilAlone(one));
  At(one).runs = false;
  Run(kLongestAloneNs + 2 * kRoundNs);
  EXPECT_TRUE(MayRun(other));
  // It comes back in the middle of the other's, and leaves it alone.
  ASSERT_TRUE(RunUntilAlone(other));
  At(one).runs = true;
  Advance();
  EXPECT_TRUE(MayRun(other));
  EXPECT_FALSE(MayRun(one));
  Run(20'000 * kMs);
  EXPECT_NEAR(ScaleOf(one), 1, 0.05);
  EXPECT_NEAR(ScaleOf(other), 1, 0.05);
}

TEST_F(AloneTest, OneThatIsPausedForLongKeepsNobodyFromBeingMeasured) {
  const int one = Add(1.0);
  const int other = Add(2.0);
  for (const bool everybody : {false, true}) {
    ASSERT_TRUE(RunUntilAlone(one));
    Run(3 * kMs);
    At(one).runs = false;
    if (everybody) {
      At(other).runs = false;
      Run(kMs);
      now_ += 3'600'000 * kMs;
    } else {
      Run(60'000 * kMs);
    }
    At(one).runs = true;
    At(other).runs = true;
    ASSERT_TRUE(RunUntilAlone(other, 8'000 * kMs)) << everybody;
    Run(8'000 * kMs);
    EXPECT_NEAR(ScaleOf(one), 1, 0.05);
    EXPECT_NEAR(ScaleOf(other), 0.5, 0.025);
  }
}

// Paused between taking the moment and stopping the others, which it does when its time is over.
TEST_F(AloneTest, WhoIsStoppedForNobodyRunsAgainSoon) {
  const int one = Add(1.0);
  const int other = Add(1.0);
  At(one).runs = false;
  const RunBit bit = RunBitOf(slots_[static_cast<std::size_t>(one)]);
  for (int i = 0; i < kSlots / 32; ++i) board_->may_run[i].store(i == bit.word ? bit.bit : 0);
  ASSERT_FALSE(MayRun(other));
  Run(2 * kRoundNs);
  EXPECT_TRUE(MayRun(other));
}

TEST_F(AloneTest, AJobThatMovedToAnotherSlotMeasuresAnew) {
  const int one = Add(1.0);
  const int other = Add(1.0);
  ASSERT_TRUE(RunUntilAlone(one));
  // It left, and joined again, elsewhere.
  SlotOf(one).live.store(0);
  slots_[static_cast<std::size_t>(one)] = kFirstSlot + 7;
  Slot& moved = SlotOf(one);
  moved.job.job_class = JobClass::kBatch;
  moved.pid = getpid();
  moved.pid_namespace = OwnPidNamespace();
  moved.start_time = StartTime(moved.pid);
  moved.mode.store(static_cast<std::uint32_t>(GateMode::kDevice));
  moved.live.store(1);
  Run(3 * kRoundNs);
  EXPECT_EQ(HowManyMayRun(), 2);
  EXPECT_TRUE(RunUntilAlone(one));
  EXPECT_TRUE(RunUntilAlone(other));
}

// Whatever happens, nobody is stopped for longer than a moment, and two are never alone at once.
TEST_F(AloneTest, NobodyIsStoppedForLong) {
  std::mt19937_64 random(31);
  for (int round = 0; round < 40; ++round) {
    board_ = std::make_unique<Board>();
    for (auto& word : board_->may_run) word.store(UINT32_MAX);
    jobs_.clear();
    slots_.clear();
    const int count = 2 + static_cast<int>(random() % 4);
    for (int i = 0; i < count; ++i)
      Add(0.25 * static_cast<double>(1 + random() % 8), random() % (8 * kMs),
          500 + static_cast<std::uint32_t>(random() % 4'000));
    std::uint64_t without_keepers = 0;
    for (int step = 0; step < 20'000; ++step) {
      Advance();
      bool any_keeper = false;
      for (const Job& job : jobs_) any_keeper = any_keeper || job.runs;
      without_keepers = any_keeper ? without_keepers : now_;
      for (const Job& job : jobs_) {
        if (job.stopped_ns == 0) continue;
        ASSERT_LE(now_ - std::max(job.stopped_ns, without_keepers), kLongestAloneNs + 2 * kRoundNs)
            << "round " << round << ", step " << step;
      }
      if (random() % 500 == 0) {
        Job& job = At(static_cast<int>(random() % static_cast<std::uint64_t>(count)));
        (random() % 2 == 0 ? job.runs : job.is_filled) = random() % 3 != 0;
      }
    }
  }
}

}  // namespace
}  // namespace divvy::gate
