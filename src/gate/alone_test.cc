#include "gate/alone.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "gate/turns.h"

namespace divvy::gate {
namespace {

// A GPU that batch jobs share evenly, with a queue of each that is filled and a keeper that looks
// every 10 ms, and when it is due.
class AloneTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kMs = 1'000'000;
  static constexpr std::uint64_t kStepNs = 100'000;
  static constexpr std::uint64_t kRoundNs = 10 * kMs;

  struct Job {
    double predicted = 1;  // microseconds of work, as predicted, that the GPU does alone in one
    std::uint64_t under_way_ns = 0;  // what it still does when it is to stop, at most
    std::uint32_t unit_us = 500;     // it passes a mark after so much predicted work
    AloneMeter meter;
    bool runs = true;  // its keeper
    bool has_ended = false;
    bool is_filled = true;
    // Its kernels are new, and it puts no marks.
    bool is_unknown = false;
    // It has a second stream, which waits for the first one's work and never comes to a wait.
    bool has_dependent = false;
    // What is under way when it is to stop is in a second stream, and the first one stops at once.
    bool has_long_stream = false;
    bool is_measurable = true;
    // Its context is broken: what was submitted never comes to its end.
    bool is_broken = false;
    std::uint64_t next_ns = 0;
    std::uint64_t rest_ns = 0;     // of what was under way when it was stopped
    std::uint64_t stopped_ns = 0;  // since when it may not run; 0: it may
    double done_us = 0;
    std::uint64_t alone_ns = 0;  // the time in which nobody else might run
    int times_alone = 0;
  };

  AloneTest() {
    for (auto& word : board_->may_run) word.store(UINT32_MAX);
  }

  int Add(double predicted, std::uint64_t under_way_ns = 0, std::uint32_t unit_us = 500) {
    const auto index = static_cast<int>(jobs_.size());
    // Slots on both sides of the border between the words.
    const int slot = kFirstSlot + index;
    slots_.push_back(slot);
    Slot& own = board_->slots[slot];
    own.job.job_class = JobClass::kBatch;
    own.job.weight = 100;
    own.pid = getpid();
    own.pid_namespace = OwnPidNamespace();
    own.start_time = StartTime(own.pid);
    own.live.store(1);
    own.mode.store(static_cast<std::uint32_t>(GateMode::kDevice));
    board_->batch_jobs.fetch_add(1);
    Job& job = jobs_.emplace_back();
    job.predicted = predicted;
    job.under_way_ns = under_way_ns;
    job.unit_us = unit_us;
    return index;
  }

  Job& At(int index) { return jobs_[static_cast<std::size_t>(index)]; }
  Slot& SlotOf(int index) { return board_->slots[slots_[static_cast<std::size_t>(index)]]; }
  bool MayRun(int index) {
    const RunBit own = RunBitOf(slots_[static_cast<std::size_t>(index)]);
    return (board_->may_run[own.word].load() & own.bit) != 0;
  }
  int HowManyMayRun() {
    int count = 0;
    for (std::size_t i = 0; i < jobs_.size(); ++i) count += MayRun(static_cast<int>(i)) ? 1 : 0;
    return count;
  }
  double ScaleOf(int index) {
    return static_cast<double>(At(index).meter.Scale(*board_, now_)) / kUnscaled;
  }
  void EndJob(int index) {
    SlotOf(index).live.store(0);
    board_->batch_jobs.fetch_sub(1);
    At(index).runs = false;
    At(index).has_ended = true;
  }

  static void PassMarks(const Job& job, Slot& slot) {
    const auto units = static_cast<std::uint32_t>(
        static_cast<std::uint64_t>(job.done_us / job.unit_us) % (UINT32_MAX + 1ULL));
    slot.passed[0].store(PlainMark(units * job.unit_us));
    slot.submitted[0].store(PlainMark(units * job.unit_us) +
                            (job.is_filled ? job.unit_us + kShortQueueUs : 0));
    if (job.has_dependent || job.has_long_stream) slot.submitted[1].store(2);
  }

  void Advance() {
    std::vector<Job*> running;
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      Job& job = jobs_[i];
      if (MayRun(static_cast<int>(i))) {
        job.stopped_ns = 0;
      } else if (job.stopped_ns == 0) {
        job.stopped_ns = now_;
        job.rest_ns = job.under_way_ns == 0 ? 0
                      : job.has_long_stream ? job.under_way_ns
                                            : 1 + random_() % job.under_way_ns;
      }
      const bool runs = job.stopped_ns == 0 || now_ < job.stopped_ns + job.rest_ns;
      if (runs && !job.has_ended && !job.is_broken && now_ >= latency_until_ns_)
        running.push_back(&job);
    }
    now_ += kStepNs;
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      Job& job = jobs_[i];
      if (std::find(running.begin(), running.end(), &job) != running.end()) {
        job.done_us += job.predicted * (kStepNs / 1e3) / static_cast<double>(running.size());
        SlotOf(static_cast<int>(i)).last_launch_ns.store(now_);
        if (!job.is_unknown && !(job.has_long_stream && job.stopped_ns != 0))
          PassMarks(job, SlotOf(static_cast<int>(i)));
      }
      const bool has_stopped = std::find(running.begin(), running.end(), &job) == running.end();
      if (job.has_long_stream) SlotOf(static_cast<int>(i)).passed[1].store(has_stopped ? 2 : 0);
      if (job.stopped_ns != 0 && !job.is_broken && (has_stopped || job.has_long_stream) &&
          !IsAtWait(SlotOf(static_cast<int>(i)).passed[0].load()))
        SlotOf(static_cast<int>(i)).passed[0].fetch_add(1);
    }
    if (HowManyMayRun() == 1) {
      for (std::size_t i = 0; i < jobs_.size(); ++i) {
        Job& job = jobs_[i];
        if (!MayRun(static_cast<int>(i))) continue;
        job.alone_ns += kStepNs;
        if (job_alone_ != static_cast<int>(i)) ++job.times_alone;
        job_alone_ = static_cast<int>(i);
      }
    } else {
      job_alone_ = -1;
    }
    Keep();
  }

  void Keep() {
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      Job& job = jobs_[i];
      if (!job.runs || now_ < job.next_ns) continue;
      job.next_ns = now_ + kRoundNs;
      const std::uint64_t due = job.meter.Step(*board_, slots_[i], job.is_measurable, now_);
      if (due != 0) job.next_ns = std::min(job.next_ns, due);
      job.next_ns += late_ns_;
      EndAloneIfOverdue(*board_, now_);
    }
  }

  void Run(std::uint64_t ns) {
    for (const std::uint64_t end = now_ + ns; now_ < end;) Advance();
  }
  // False if nobody is by then.
  bool RunUntilAlone(int index, std::uint64_t at_most = 30'000 * kMs) {
    for (const std::uint64_t end = now_ + at_most; now_ < end;) {
      Advance();
      if (HowManyMayRun() == 1 && MayRun(index)) return true;
    }
    return false;
  }

  // A latency job has the GPU, and the gate closed, for a while.
  void Interrupt(std::uint64_t ns) {
    Slot& slot = board_->slots[2];
    slot.job.job_class = JobClass::kLatency;
    slot.live.store(1);
    slot.closed_since_ns.store(now_);
    latency_until_ns_ = now_ + ns;
    Run(ns);
    slot.closed_ns.fetch_add(ns);
    slot.closed_since_ns.store(0);
  }

  static constexpr int kFirstSlot = 31;
  std::mt19937_64 random_{7};
  std::uint64_t latency_until_ns_ = 0;
  std::uint64_t late_ns_ = 0;  // by which keepers wake
  std::unique_ptr<Board> board_ = std::make_unique<Board>();
  std::vector<Job> jobs_;
  std::vector<int> slots_;
  int job_alone_ = -1;
  std::uint64_t now_ = 1'000 * kMs;
};

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
