#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "gate/alone.h"
#include "gate/turns.h"

namespace divvy::gate {

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

}  // namespace divvy::gate
