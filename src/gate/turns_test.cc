#include "gate/turns.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

namespace divvy::gate {
namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint32_t kHalfMs = 500;  // of a mark

// Batch jobs on one GPU that runs one piece of work at a time. Each launches a piece whenever it
// may, and the GPU serves whoever is there, favouring `greedy` where it is asked to.
class Machine {
 public:
  explicit Machine(const std::vector<std::uint32_t>& weights) : board_(std::make_unique<Board>()) {
    for (const std::uint32_t weight : weights) Add(weight);
  }

  int Add(std::uint32_t weight) {
    const auto slot = static_cast<int>(done_.size());
    Slot& own = board_->slots[slot];
    own.job.job_class = JobClass::kBatch;
    own.job.weight = weight;
    own.live.store(1);
    board_->batch_jobs.fetch_add(1);
    done_.push_back(0);
    idle_.push_back(false);
    return slot;
  }

  void SetIdle(int slot, bool idle) { idle_[static_cast<std::size_t>(slot)] = idle; }

  // As a launch does it: come back from idling, account, and only then look at the others.
  bool TryLaunch(int slot, std::uint64_t ns) {
    Slot& own = board_->slots[slot];
    if (LeadsTooFar(*board_, slot, now_)) {
      own.last_launch_ns.store(now_);  // It would, but waits.
      return false;
    }
    CatchUp(*board_, slot, now_);
    own.virtual_ns.fetch_add(VirtualNs(ns, own.job.weight));
    own.last_launch_ns.store(now_);
    done_[static_cast<std::size_t>(slot)] += ns;
    now_ += ns;
    return true;
  }

  // For `ns`, jobs come in a random order that favours the first.
  void Run(std::uint64_t ns, std::mt19937_64& random) {
    const std::uint64_t end = now_ + ns;
    while (now_ < end) {
      bool any = false;
      for (std::size_t i = 0; i < done_.size(); ++i) {
        if (idle_[i] || (i != 0 && random() % 3 == 0)) continue;
        any = TryLaunch(static_cast<int>(i), kMs / 2 + random() % kMs) || any;
      }
      if (!any) now_ += kMs / 5;
    }
  }

  std::uint64_t Done(int slot) const { return done_[static_cast<std::size_t>(slot)]; }
  void Wait(std::uint64_t ns) { now_ += ns; }
  Board& board() { return *board_; }
  std::uint64_t now() const { return now_; }

 private:
  std::unique_ptr<Board> board_;
  std::vector<std::uint64_t> done_;
  std::vector<bool> idle_;
  std::uint64_t now_ = 1'000 * kMs;
};

TEST(TurnsTest, VirtualTimeIsGpuTimeOverWeight) {
  EXPECT_EQ(VirtualNs(1000, 100), 1000U);
  EXPECT_EQ(VirtualNs(1000, 200), 500U);
  EXPECT_EQ(VirtualNs(1000, 50), 2000U);
  EXPECT_EQ(VirtualNs(1000, 0), VirtualNs(1000, 1)) << "a weight of nothing is the least there is";
}

TEST(TurnsTest, SharesFollowWeights) {
  const std::vector<std::vector<std::uint32_t>> cases{
      {100, 100},      {200, 100},      {100, 200},    {300, 100},
      {100, 100, 100}, {400, 200, 100}, {50, 100, 350}};
  std::mt19937_64 random(21);
  for (const auto& weights : cases) {
    Machine machine(weights);
    machine.Run(4'000 * kMs, random);
    std::uint64_t total = 0;
    std::uint32_t all = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      total += machine.Done(static_cast<int>(i));
      all += weights[i];
    }
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const double share =
          static_cast<double>(machine.Done(static_cast<int>(i))) / static_cast<double>(total);
      EXPECT_NEAR(share, static_cast<double>(weights[i]) / all, 0.03)
          << "job " << i << " of " << weights.size();
    }
  }
}

TEST(TurnsTest, AJobAloneNeverWaits) {
  Machine machine({100});
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(machine.TryLaunch(0, kMs));
}

TEST(TurnsTest, AnIdleJobHoldsNobodyBack) {
  Machine machine({100, 100});
  ASSERT_TRUE(machine.TryLaunch(1, kMs));
  machine.Wait(kIdleAfterNs + 1);
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(machine.TryLaunch(0, kMs)) << i;
}

TEST(TurnsTest, AJobThatNeverLaunchedHoldsNobodyBack) {
  Machine machine({100, 100});
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(machine.TryLaunch(0, kMs)) << i;
}

TEST(TurnsTest, OneBackFromIdlingDoesNotHoldTheGpuUntilItCaughtUp) {
  std::mt19937_64 random(22);
  Machine machine({100, 100});
  machine.Run(200 * kMs, random);
  machine.SetIdle(1, true);
  machine.Run(3'000 * kMs, random);
  machine.SetIdle(1, false);
  const std::uint64_t before[] = {machine.Done(0), machine.Done(1)};
  machine.Run(1'000 * kMs, random);
  const double ratio = static_cast<double>(machine.Done(0) - before[0]) /
                       static_cast<double>(machine.Done(1) - before[1]);
  EXPECT_GT(ratio, 0.8);
  EXPECT_LT(ratio, 1.25);
}

TEST(TurnsTest, CatchingUpNeverTakesAway) {
  Machine machine({100, 100});
  ASSERT_TRUE(machine.TryLaunch(1, kMs));
  machine.board().slots[0].virtual_ns.store(50 * kMs);
  machine.board().slots[1].virtual_ns.store(60 * kMs);
  machine.Wait(kIdleAfterNs);
  machine.board().slots[0].last_launch_ns.store(machine.now());
  CatchUp(machine.board(), 1, machine.now());
  EXPECT_EQ(machine.board().slots[1].virtual_ns.load(), 60 * kMs) << "who was ahead stays ahead";
}

// Two jobs that mark their work, both with filled queues.
class MarkedTurnsTest : public ::testing::Test {
 protected:
  MarkedTurnsTest() : board_(std::make_unique<Board>()) {
    for (Slot* slot : {&one_, &other_}) {
      slot->job.job_class = JobClass::kBatch;
      slot->live.store(1);
      slot->mode.store(static_cast<std::uint32_t>(GateMode::kDevice));
      Fill(*slot);
    }
    board_->batch_jobs.store(2);
  }

  void Mark(Slot& slot) {
    NoteMark(*board_, IndexOf(slot), 0, slot.submitted[0].load() + kHalfMs, now_);
    slot.last_launch_ns.store(now_);
  }
  void Fill(Slot& slot) {
    Mark(slot);
    Mark(slot);
  }
  int IndexOf(const Slot& slot) const { return static_cast<int>(&slot - board_->slots); }
  static void RunDry(Slot& slot) { slot.passed[0].store(slot.submitted[0].load()); }
  void Idle(Slot& slot) {
    RunDry(slot);
    static_cast<void>(LeadsTooFar(*board_, 1 - IndexOf(slot), now_));  // It is seen.
    now_ += kStepEndNs + 1;
  }
  bool OneLeadsTooFar() { return LeadsTooFar(*board_, 0, now_); }

  std::unique_ptr<Board> board_;
  Slot& one_ = board_->slots[0];
  Slot& other_ = board_->slots[1];
  std::uint64_t now_ = 1'000 * kMs;
};

TEST_F(MarkedTurnsTest, OnlyAFilledQueueHoldsOthersBack) {
  one_.virtual_ns.store(kMayLeadNs + 1);
  EXPECT_TRUE(OneLeadsTooFar());
  RunDry(other_);
  EXPECT_TRUE(OneLeadsTooFar()) << "between two steps";
  now_ += kStepEndNs;
  EXPECT_FALSE(OneLeadsTooFar());
  Mark(other_);
  EXPECT_FALSE(OneLeadsTooFar()) << "its CPU does not keep up";
  Mark(other_);
  EXPECT_TRUE(OneLeadsTooFar());
  RunDry(other_);
  EXPECT_TRUE(OneLeadsTooFar()) << "between two steps again";
}

TEST_F(MarkedTurnsTest, WhoWaitsForItsOwnWorkIsWaitedForButNotForEver) {
  one_.virtual_ns.store(kMayLeadNs + 1);
  now_ += kIdleAfterNs + 1;
  EXPECT_TRUE(OneLeadsTooFar()) << "it launches nothing, but there is work of its";
  now_ += kStuckAfterNs;
  EXPECT_FALSE(OneLeadsTooFar()) << "its last mark was passed by an earlier one";
}

// Marks of streams that share a track hide each other, and what stands behind a collective
// operation waits for other GPUs.
TEST_F(MarkedTurnsTest, WhoCannotBeMeasuredIsNotWaitedForLongAfterItsLastLaunch) {
  one_.virtual_ns.store(kMayLeadNs + 1);
  other_.scale.store(kUnmeasurable);
  EXPECT_TRUE(OneLeadsTooFar());
  now_ += kIdleAfterNs;
  EXPECT_FALSE(OneLeadsTooFar());
}

TEST_F(MarkedTurnsTest, WhatTheGpuWroteForAnotherJobIsNoWork) {
  for (const std::uint32_t late : {other_.submitted[0].load() + 1, 0x8000'0000U, 0xC000'0000U}) {
    other_.passed[0].store(late);
    EXPECT_FALSE(HasFilledQueue(other_, now_)) << late;
  }
}

TEST_F(MarkedTurnsTest, APauseIsAsLongAsAllOthersNeedToCatchUp) {
  EXPECT_EQ(LongestPauseNs(*board_), 2 * kMayLeadNs);
  board_->batch_jobs.store(8);
  EXPECT_EQ(LongestPauseNs(*board_), 8 * kMayLeadNs);
}

TEST_F(MarkedTurnsTest, WhoIsAloneOnTheGpuWaitsForNobodyButForItsOwnQueue) {
  one_.virtual_ns.store(kMayLeadNs + 1);
  board_->alone_slot.store(1);
  board_->alone_until_ns.store(now_ + kMs);
  EXPECT_TRUE(OneLeadsTooFar()) << "it is the other that is alone";
  board_->alone_slot.store(0);
  EXPECT_FALSE(OneLeadsTooFar());
  const std::uint32_t submitted = one_.submitted[0].load();
  one_.submitted[0].store(one_.passed[0].load() + static_cast<std::uint32_t>(kAloneQueueUs));
  EXPECT_TRUE(OneLeadsTooFar()) << "that is more than it can do meanwhile";
  one_.submitted[0].store(one_.passed[0].load() + static_cast<std::uint32_t>(kAloneQueueUs) / 4);
  EXPECT_FALSE(OneLeadsTooFar());
  one_.scale.store(4 * kUnscaled);
  EXPECT_TRUE(OneLeadsTooFar()) << "it takes longer than predicted";
  one_.scale.store(kUnmeasurable);
  EXPECT_FALSE(OneLeadsTooFar());
  one_.submitted[0].store(submitted);
  board_->alone_until_ns.store(0);
  EXPECT_TRUE(OneLeadsTooFar());
}

TEST_F(MarkedTurnsTest, CountersMayWrap) {
  for (const std::uint32_t at : {UINT32_MAX - 1000, UINT32_MAX - 700, UINT32_MAX, 0U, 1U}) {
    other_.passed[0].store(at);
    NoteMark(*board_, 1, 0, at + 999, now_);
    other_.short_since_ns.store(now_ - kStepEndNs);
    one_.virtual_ns.store(kMayLeadNs + 1);
    EXPECT_FALSE(OneLeadsTooFar()) << at;
    NoteMark(*board_, 1, 0, at + 1000, now_);
    EXPECT_TRUE(OneLeadsTooFar()) << at;
  }
}

TEST_F(MarkedTurnsTest, StreamsAreCountedApart) {
  one_.virtual_ns.store(kMayLeadNs + 1);
  RunDry(other_);
  ASSERT_TRUE(OneLeadsTooFar());
  now_ += kStepEndNs;
  NoteMark(*board_, 1, 1, kHalfMs, now_);
  other_.last_launch_ns.store(now_);
  EXPECT_FALSE(OneLeadsTooFar());
  NoteMark(*board_, 1, 2, kHalfMs, now_);
  EXPECT_TRUE(OneLeadsTooFar()) << "half a millisecond on each of two";
  other_.passed[2].store(kHalfMs);  // The later one first.
  other_.passed[1].store(kHalfMs);
  now_ += kStepEndNs;
  static_cast<void>(OneLeadsTooFar());  // It is seen.
  now_ += kStepEndNs;
  EXPECT_FALSE(OneLeadsTooFar());
}

TEST_F(MarkedTurnsTest, TimeWithoutWorkIsNoClaim) {
  Idle(other_);
  one_.virtual_ns.store(5'000 * kMs);
  CatchUp(*board_, 1, now_);
  EXPECT_EQ(other_.virtual_ns.load(), 5'000 * kMs - kMostClaimNs);
  one_.virtual_ns.store(other_.virtual_ns.load() + kMayLeadNs);
  const std::uint64_t before = other_.virtual_ns.load();
  CatchUp(*board_, 1, now_);
  EXPECT_EQ(other_.virtual_ns.load(), before) << "what it has a claim on stays";
}

// A job with a filled queue was not idle: others got ahead while they were alone. Nor was one whose
// queue ran short just now, as it does in a pause.
TEST_F(MarkedTurnsTest, WhatOthersDidAloneIsNotForgotten) {
  one_.job.weight = 50;
  const std::uint64_t before = 5'000 * kMs - kMostClaimNs - VirtualNs(kMomentNs, 50);
  for (const bool is_dry : {false, true}) {
    if (is_dry) RunDry(other_);
    one_.virtual_ns.store(5'000 * kMs);
    static_cast<void>(OneLeadsTooFar());  // It is seen.
    other_.virtual_ns.store(before);
    CatchUp(*board_, 1, now_);
    EXPECT_EQ(other_.virtual_ns.load(), before);
    other_.virtual_ns.store(before - kMs);
    CatchUp(*board_, 1, now_);
    EXPECT_EQ(other_.virtual_ns.load(), before) << "they cannot have got further";
  }
  Idle(other_);
  CatchUp(*board_, 1, now_);
  EXPECT_EQ(other_.virtual_ns.load(), 5'000 * kMs - kMostClaimNs);
}

// Others may be far apart, after a moment in which one of them was alone; and one may be at a graph
// that it launched long ago.
TEST_F(MarkedTurnsTest, WhoComesBackDoesNotWaitForTheLeastOfTheOthers) {
  Slot& third = board_->slots[2];
  third.job.job_class = JobClass::kBatch;
  third.live.store(1);
  third.mode.store(static_cast<std::uint32_t>(GateMode::kDevice));
  board_->batch_jobs.store(3);
  for (Slot* slot : {&one_, &other_, &third}) slot->job.weight = 100;
  const std::uint64_t furthest = VirtualNs(kMomentNs, 100);
  for (const bool is_long_ago : {false, true}) {
    for (const std::uint64_t apart : {std::uint64_t{0}, kMostClaimNs / 2, kMostClaimNs,
                                      2 * kMostClaimNs, furthest, 2 * furthest}) {
      Fill(third);
      other_.virtual_ns.store(0);
      Idle(other_);
      if (is_long_ago) now_ += kIdleAfterNs;
      Fill(one_);
      one_.virtual_ns.store(5'000 * kMs);
      third.virtual_ns.store(5'000 * kMs - apart);
      CatchUp(*board_, 1, now_);
      Fill(other_);
      const std::uint64_t back = other_.virtual_ns.load();
      EXPECT_GE(back, 5'000 * kMs - kMostClaimNs - furthest) << "no claim to more, at " << apart;
      EXPECT_EQ(LeadsTooFar(*board_, 1, now_), apart > furthest) << "at " << apart;
    }
  }
}

// Who waits for the one that comes back has no filled queue; it is what it comes back to all the
// same.
TEST_F(MarkedTurnsTest, AJobWithAShortQueueIsNotStarvedByOneThatComesBack) {
  RunDry(one_);
  Idle(other_);
  one_.virtual_ns.store(5'000 * kMs);
  CatchUp(*board_, 1, now_);
  EXPECT_EQ(other_.virtual_ns.load(), 5'000 * kMs - kMostClaimNs);
}

// A job of 1 ms of GPU time in every 4, beside one that takes what there is.
TEST_F(MarkedTurnsTest, AJobThatItsCpuSlowsSlowsNobody) {
  int waits = 0;
  for (int ms = 0; ms < 4'000; ++ms) {
    now_ += kMs;
    if (ms % 4 == 0) {
      CatchUp(*board_, 1, now_);
      Mark(other_);
      other_.virtual_ns.fetch_add(kMs);
      EXPECT_FALSE(LeadsTooFar(*board_, 1, now_));
    } else if (ms % 4 == 1) {
      RunDry(other_);
    }
    CatchUp(*board_, 0, now_);
    Mark(one_);
    if (OneLeadsTooFar()) {
      ++waits;
    } else {
      one_.virtual_ns.fetch_add(kMs);
    }
  }
  EXPECT_EQ(waits, 0);
}

// 3 ms of GPU time in every 12, all launched at once: while they are under way it has a filled
// queue.
TEST_F(MarkedTurnsTest, TimeThatAJobHadNoUseForCountsAsUsed) {
  int waits = 0;
  for (int ms = 0; ms < 4'800; ++ms) {
    now_ += kMs;
    if (ms % 12 == 0) {
      CatchUp(*board_, 1, now_);
      other_.virtual_ns.fetch_add(3 * kMs);
      for (int i = 0; i < 6; ++i) Mark(other_);
    } else if (ms % 12 == 3) {
      RunDry(other_);
    }
    CatchUp(*board_, 0, now_);
    Mark(one_);
    OneLeadsTooFar() ? static_cast<void>(++waits)
                     : static_cast<void>(one_.virtual_ns.fetch_add(kMs));
  }
  EXPECT_LT(waits, 50) << "of the 1600 in which the other has work";
}

TEST_F(MarkedTurnsTest, TimeWithoutWorkCountsByWeightAndTakesNobodyBeyondTheOthers) {
  const auto after_gap = [&](std::uint32_t weight, std::uint64_t ns) {
    other_.job.weight = weight;
    other_.virtual_ns.store(80 * kMs);
    one_.virtual_ns.store(100 * kMs);
    RunDry(other_);
    static_cast<void>(OneLeadsTooFar());  // It is seen.
    now_ += ns;
    one_.last_launch_ns.store(now_);
    Fill(other_);
    return other_.virtual_ns.load();
  };
  EXPECT_EQ(after_gap(100, 5 * kMs), 85 * kMs);
  EXPECT_EQ(after_gap(1000, 5 * kMs), 80 * kMs + kMs / 2)
      << "its right to the GPU is ten times that";
  EXPECT_EQ(after_gap(100, 500 * kMs), 100 * kMs - kBehindAfterIdleNs);
  EXPECT_EQ(after_gap(100, kStepEndNs), 80 * kMs);
  // Of two others it is the least that counts.
  Slot& third = board_->slots[2];
  third.job.job_class = JobClass::kBatch;
  third.live.store(1);
  third.virtual_ns.store(90 * kMs);
  third.last_launch_ns.store(now_ + 500 * kMs);
  EXPECT_EQ(after_gap(100, 500 * kMs), 90 * kMs - kBehindAfterIdleNs);
  third.virtual_ns.store(82 * kMs);
  third.last_launch_ns.store(now_ + 500 * kMs);
  EXPECT_EQ(after_gap(100, 500 * kMs), 80 * kMs) << "it is not far behind";
}

TEST_F(MarkedTurnsTest, WhoLetOthersCatchUpIsNotChargedForIt) {
  other_.virtual_ns.store(100 * kMs);
  RunDry(one_);
  static_cast<void>(LeadsTooFar(*board_, 1, now_));  // It is seen.
  now_ += 10 * kMs;
  other_.last_launch_ns.store(now_);
  NotePause(one_);
  Fill(one_);
  EXPECT_EQ(one_.virtual_ns.load(), 0U);
}

TEST(TurnsTest, NobodyLeadsByMoreThanItMay) {
  std::mt19937_64 random(23);
  Machine machine({100, 250, 100});
  for (int i = 0; i < 200; ++i) {
    machine.Run(20 * kMs, random);
    std::uint64_t least = UINT64_MAX;
    std::uint64_t most = 0;
    for (int slot = 0; slot < 3; ++slot) {
      const std::uint64_t time = machine.board().slots[slot].virtual_ns.load();
      least = std::min(least, time);
      most = std::max(most, time);
    }
    ASSERT_LE(most - least, kMayLeadNs + 2 * kMs);
  }
}

TEST(TurnsTest, LatencyJobsAndFreeSlotsTakeNoTurns) {
  Machine machine({100, 100, 100});
  for (int slot = 0; slot < 3; ++slot)
    machine.board().slots[slot].last_launch_ns.store(machine.now());
  machine.board().slots[0].virtual_ns.store(1'000 * kMs);
  EXPECT_TRUE(LeadsTooFar(machine.board(), 0, machine.now()));
  machine.board().slots[1].job.job_class = JobClass::kLatency;
  machine.board().slots[2].live.store(0);
  EXPECT_FALSE(LeadsTooFar(machine.board(), 0, machine.now()));
}

}  // namespace
}  // namespace divvy::gate
