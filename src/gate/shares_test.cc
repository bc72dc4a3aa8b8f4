#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "gate/alone.h"
#include "gate/turns.h"

// What part of a GPU batch jobs get: turns, moments alone and charges together, on a GPU that is
// shared evenly by all streams with work.

namespace divvy::gate {
namespace {

constexpr std::uint64_t kUs = 1'000;

struct Load {
  std::uint32_t weight = 100;
  double unit_us = 1'000;      // a kernel or graph, alone
  double predicted = 1;        // times that
  double first_predicted = 0;  // so long as the first few have not ended; 0: likewise
  std::size_t depth = 50;      // units launched ahead, at most
  int step = 0;                // units after which it waits for all of them; 0: never
  double thinks_us = 0;        // then
};

// As the library does it: gate/library/batch.cc.
class Trainer {
 public:
  Trainer(Board& board, int slot, const Load& load, std::uint64_t now_ns)
      : board_(board), slot_(slot), load_(load), cpu_ns_(now_ns) {
    Slot& own = Own();
    own.job.job_class = JobClass::kBatch;
    own.job.weight = load.weight;
    own.pid = getpid();
    own.pid_namespace = OwnPidNamespace();
    own.start_time = StartTime(own.pid);
    own.mode.store(static_cast<std::uint32_t>(GateMode::kDevice));
    for (const Slot& other : board.slots) {
      if (IsBatch(other)) own.virtual_ns.store(other.virtual_ns.load());
    }
    own.live.store(1);
    board.batch_jobs.fetch_add(1);
  }

  void Launch(std::uint64_t now_ns) {
    while (now_ns >= cpu_ns_ && !IsWaiting(now_ns)) {
      if (pause_end_ns_ == 0) Charge(now_ns);
      if (charged_us_ != 0 && (pause_end_ns_ == 0 || now_ns < pause_end_ns_) &&
          LeadsTooFar(board_, slot_, now_ns)) {
        if (pause_end_ns_ == 0) pause_end_ns_ = now_ns + LongestPauseNs(board_);
        cpu_ns_ = now_ns + 200 * kUs;
        Own().last_launch_ns.store(now_ns);
        return;
      }
      if (pause_end_ns_ != 0) NotePause(Own());
      pause_end_ns_ = 0;
      queue_.push_back({.left_us = load_.unit_us, .is_unit = true});
      ++units_;
      if (charged_us_ != 0) PutMark(now_ns);
      cpu_ns_ += 5 * kUs;
    }
  }

  // Whether its stream has a kernel to run; passes marks and waits on the way.
  bool Runs() {
    while (!queue_.empty() && queue_.front().left_us <= 0) {
      const Item& item = queue_.front();
      const RunBit bit = RunBitOf(slot_);
      if (item.waits && (board_.may_run[bit.word].load() & bit.bit) == 0) return false;
      if (item.mark != 0) Own().passed[0].store(item.mark);
      launched_ -= item.is_unit ? 1 : 0;
      queue_.pop_front();
    }
    return !queue_.empty();
  }
  double LeftUs() const { return queue_.front().left_us; }
  void Run(double us) {
    queue_.front().left_us -= us;
    done_us_ += us;
  }

  void Keep(std::uint64_t now_ns) {
    if (now_ns < keep_ns_) return;
    keep_ns_ = now_ns + 10'000 * kUs;
    const std::uint64_t due = meter_.Step(board_, slot_, true, now_ns);
    if (due != 0) keep_ns_ = std::min(keep_ns_, due);
    scale_ = meter_.Scale(board_, now_ns);
    EndAloneIfOverdue(board_, now_ns);
  }

  double DoneUs() const { return done_us_; }

 private:
  struct Item {
    double left_us = 0;
    std::uint32_t mark = 0;
    bool waits = false;
    bool is_unit = false;
  };

  Slot& Own() { return board_.slots[slot_]; }

  bool IsWaiting(std::uint64_t now_ns) {
    if (pause_end_ns_ != 0) return false;
    if (load_.step != 0 && units_ == load_.step) {
      if (!queue_.empty()) return true;
      units_ = 0;
      cpu_ns_ = now_ns + static_cast<std::uint64_t>(load_.thinks_us * kUs);
      return cpu_ns_ > now_ns;
    }
    return launched_ >= load_.depth;
  }

  void Charge(std::uint64_t now_ns) {
    ++launched_;
    const bool is_known = load_.first_predicted == 0 || done_us_ > 5 * load_.unit_us;
    const double predicted = is_known ? load_.predicted : load_.first_predicted;
    account_ns_ += static_cast<std::uint64_t>(load_.unit_us * predicted * kUs);
    charged_us_ = 0;
    if (account_ns_ < kMarkNs) return;
    charged_us_ = static_cast<std::uint32_t>(account_ns_ / kUs);
    CatchUp(board_, slot_, now_ns);
    Own().virtual_ns.fetch_add(VirtualNs(account_ns_ * scale_ / kUnscaled, load_.weight));
    Own().last_launch_ns.store(now_ns);
    account_ns_ = 0;
  }

  void PutMark(std::uint64_t now_ns) {
    if (board_.batch_jobs.load() < 2) return;
    const std::uint32_t at = Own().submitted[0].load() + charged_us_;
    std::uint32_t mark = PlainMark(at);
    free_us_ += std::uint64_t{charged_us_} * scale_ / kUnscaled;
    if (free_us_ >= 1'000) {
      free_us_ = 0;
      queue_.push_back({.mark = MarkBeforeWait(at)});
      queue_.push_back({.waits = true});
      mark = MarkBehindWait(at);
    }
    queue_.push_back({.mark = mark});
    NoteMark(board_, slot_, 0, mark, now_ns);
    Own().last_launch_ns.store(now_ns);
  }

  Board& board_;
  const int slot_;
  const Load load_;
  AloneMeter meter_;
  std::deque<Item> queue_;
  std::size_t launched_ = 0;  // units in it
  int units_ = 0;             // of this step
  std::uint64_t account_ns_ = 0;
  std::uint32_t charged_us_ = 0;
  std::uint64_t free_us_ = 0;
  std::uint32_t scale_ = kUnscaled;
  std::uint64_t pause_end_ns_ = 0;  // at the latest; 0: it is not in one
  std::uint64_t cpu_ns_;
  std::uint64_t keep_ns_ = 0;
  double done_us_ = 0;
};

class Gpu {
 public:
  Gpu() {
    for (auto& word : board_->may_run) word.store(UINT32_MAX);
  }

  void Add(const Load& load) {
    trainers_.push_back(
        std::make_unique<Trainer>(*board_, static_cast<int>(trainers_.size()), load, now_));
  }

  void Run(std::uint64_t seconds) {
    for (const std::uint64_t end = now_ + seconds * 1'000'000 * kUs; now_ < end;) {
      for (const auto& trainer : trainers_) trainer->Launch(now_);
      RunStep();
      now_ += kStepNs;
      for (const auto& trainer : trainers_) trainer->Keep(now_);
    }
  }

  // Of the time that the first `expected.size()` jobs get together, so much is each one's, within
  // a `part` of it. Takes so many seconds.
  void ExpectShares(const std::vector<double>& expected, double part, std::uint64_t seconds) {
    std::vector<double> shares;
    for (std::size_t i = 0; i < expected.size(); ++i) shares.push_back(-trainers_[i]->DoneUs());
    Run(seconds);
    double all = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) all += shares[i] += trainers_[i]->DoneUs();
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(shares[i] / all, expected[i], part * expected[i]) << "job " << i;
  }

 private:
  static constexpr std::uint64_t kStepNs = 50 * kUs;

  void RunStep() {
    for (double us = static_cast<double>(kStepNs) / kUs; us > 1e-6;) {
      running_.clear();
      double least = us;
      for (const auto& trainer : trainers_) {
        if (trainer->Runs()) running_.push_back(trainer.get());
      }
      if (running_.empty()) return;
      const auto count = static_cast<double>(running_.size());
      for (const Trainer* trainer : running_) least = std::min(least, trainer->LeftUs() * count);
      for (Trainer* trainer : running_) trainer->Run(least / count);
      us -= least;
    }
  }

  std::unique_ptr<Board> board_ = std::make_unique<Board>();
  std::vector<std::unique_ptr<Trainer>> trainers_;
  std::vector<Trainer*> running_;
  std::uint64_t now_ = 1'000'000'000'000;
};

TEST(SharesTest, FollowWeightsThoughOneIsPredictedTwiceTooLong) {
  Gpu gpu;
  gpu.Add({.weight = 200});
  gpu.Add({.weight = 100, .predicted = 2});
  gpu.Run(2);
  gpu.ExpectShares({2 / 3.0, 1 / 3.0}, 0.1, 4);
}

// It may launch on while it is alone, but not fill its queue so far that it has won by that.
TEST(SharesTest, OneThatLaunchesFarAheadGetsNoMore) {
  Gpu gpu;
  gpu.Add({.weight = 100, .unit_us = 5'000, .depth = 1'000});
  gpu.Add({.weight = 300, .depth = 20});
  gpu.Run(2);
  gpu.ExpectShares({1 / 4.0, 3 / 4.0}, 0.15, 4);
}

TEST(SharesTest, AJobThatItsCpuSlowsChangesNothingForTheOthers) {
  Gpu gpu;
  gpu.Add({.weight = 200});
  gpu.Add({.weight = 100, .predicted = 2});
  gpu.Add({.unit_us = 50, .step = 10, .thinks_us = 8'000});
  gpu.Run(3);
  gpu.ExpectShares({2 / 3.0, 1 / 3.0}, 0.1, 4);
}

TEST(SharesTest, OfOneThatWaitsAfterEachStep) {
  Gpu gpu;
  gpu.Add({.weight = 200});
  gpu.Add({.weight = 100, .predicted = 2});
  gpu.Add({.weight = 100, .unit_us = 250, .predicted = 2, .step = 16, .thinks_us = 50});
  gpu.Run(3);
  gpu.ExpectShares({0.5, 0.25, 0.25}, 0.1, 4);
}

// The graph that the GPU is at when the others stand still was done in part before.
TEST(SharesTest, OfOneThatWaitsAfterEachGraph) {
  for (const double ms : {5, 10, 18}) {
    Gpu gpu;
    gpu.Add({.unit_us = ms * 1'000, .step = 1, .thinks_us = 500});
    gpu.Add({});
    gpu.Run(20);
    SCOPED_TRACE(ms);
    gpu.ExpectShares({0.5, 0.5}, 0.03, 10);
  }
}

// Whose neighbour is known to take longer than predicted, and would alone be charged for that.
TEST(SharesTest, OfOneThatWaitsAfterEachGraphWhereAllArePredictedTooShort) {
  Gpu gpu;
  gpu.Add({.unit_us = 1'000, .predicted = 0.34, .depth = 30});
  gpu.Add({.unit_us = 3'000, .predicted = 0.34, .step = 1, .thinks_us = 500});
  gpu.Run(10);
  gpu.ExpectShares({0.5, 0.5}, 0.15, 12);
}

// What one does while it is alone, and has launched by then, is more than the others may lag behind
// otherwise.
TEST(SharesTest, OfALittleWeightBesideAGreatOne) {
  Gpu gpu;
  gpu.Add({.weight = 1'000, .unit_us = 500, .depth = 200});
  gpu.Add({.weight = 100, .unit_us = 500, .depth = 200});
  gpu.Run(10);
  gpu.ExpectShares({10 / 11.0, 1 / 11.0}, 0.05, 30);
}

// It may have less of what is predicted under way.
TEST(SharesTest, OfOneThatIsPredictedFarTooShort) {
  Gpu gpu;
  gpu.Add({.weight = 300, .unit_us = 500, .depth = 200});
  gpu.Add({.weight = 100, .unit_us = 500, .predicted = 1 / 8.0, .depth = 1'000});
  gpu.Run(10);
  gpu.ExpectShares({3 / 4.0, 1 / 4.0}, 0.05, 30);
}

// It is not alone before those have ended.
TEST(SharesTest, OfOneThatWaitsAfterEachStepBesideLongKernels) {
  for (const int step : {12, 20, 32, 48}) {
    Gpu gpu;
    gpu.Add({.unit_us = 250, .predicted = 2, .step = step, .thinks_us = 50});
    gpu.Add({.unit_us = 15'000, .depth = 6});
    gpu.Run(4);
    SCOPED_TRACE(step);
    gpu.ExpectShares({0.5, 0.5}, 0.15, 4);
  }
}

// Of what it launched first nobody knew what it would take.
TEST(SharesTest, OneThatJoinsFarAheadIsChargedRightSoon) {
  Gpu gpu;
  gpu.Add({});
  gpu.Add({});
  gpu.Run(3);
  gpu.Add({.unit_us = 2'000, .first_predicted = 1 / 40.0, .depth = 200});
  gpu.Run(6);
  gpu.ExpectShares({1 / 3.0, 1 / 3.0, 1 / 3.0}, 0.1, 4);
}

// One that leads launches one in each pause.
TEST(SharesTest, OfOneWhoseKernelsTakeMilliseconds) {
  for (const double us : {5'000, 10'000}) {
    Gpu gpu;
    gpu.Add({.weight = 100, .unit_us = us, .depth = 20});
    gpu.Add({.weight = 300, .unit_us = 500, .depth = 100});
    gpu.Add({.weight = 200, .unit_us = 500, .depth = 100});
    gpu.Add({.weight = 100, .unit_us = 500, .depth = 100});
    gpu.Run(5);
    SCOPED_TRACE(us);
    gpu.ExpectShares({1 / 7.0, 3 / 7.0, 2 / 7.0, 1 / 7.0}, 0.1, 12);
  }
}

TEST(SharesTest, FollowWeightsWhateverJobsAreLike) {
  for (unsigned seed = 0; seed < 10; ++seed) {
    std::mt19937 random(seed);
    const auto between = [&](double least, double most) {
      return least * std::pow(most / least, std::uniform_real_distribution(0.0, 1.0)(random));
    };
    Gpu gpu;
    std::vector<double> expected;
    double all = 0;
    for (unsigned i = 0; i < 2 + seed % 3; ++i) {
      const double unit_us = between(100, 5'000);
      const auto weight = static_cast<std::uint32_t>(between(100, 300));
      gpu.Add({.weight = weight,
               .unit_us = unit_us,
               .predicted = between(1 / 3.0, 3),
               .depth = static_cast<std::size_t>(between(10'000, 100'000) / unit_us) + 1});
      expected.push_back(weight);
      all += weight;
    }
    for (double& share : expected) share /= all;
    gpu.Run(3);
    SCOPED_TRACE(seed);
    gpu.ExpectShares(expected, 0.1, 12);
  }
}

}  // namespace
}  // namespace divvy::gate
