#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "device/cuda_simulator/identity.h"
#include "gate/gate_fixture.h"
#include "gate/latency.h"
#include "gate/slices.h"

// Jobs are killed at random moments: those beside them go on, and nothing of the dead stays.

namespace divvy::tests {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A job goes on when it has launched this many more since the kill, which are two steps of two
// kernels or four graphs: at least one began and ended.
constexpr std::uint64_t kProgress = 4;
// What those take is in it. A gate that has been closed for 20 ms is looked at every 10. A machine
// that is busy with other things may let a job wait: so much is given to nine of ten, and what
// nine of ten such stretches take when nobody is killed.
constexpr double kGoesOnWithin = 0.1;
// Keepers look for the dead once a second.
constexpr std::chrono::seconds kClearedWithin{3};
// How long victims live, at most, from their start or from their first step.
constexpr milliseconds kWhileItStarts{30};
constexpr milliseconds kAtWork{20};

struct Job {
  As as;
  Words words;
  Environment more;
};

const Job kServing{
    As::kLatency, {"infer", "--kernels", "2", "--us", "700", "--rate", "400", "--secs", "100"}, {}};
const Job kTraining{
    As::kBatch, {"train", "--kernels", "2", "--us", "700", "--blocks", "64", "--secs", "100"}, {}};

// The same with graphs and in turns on the GPU, which the latency job interrupts.
Job Apart(const char* protection) {
  return {As::kLatency,
          {"infer", "--kernels", "4", "--us", "200", "--rate", "300", "--secs", "100", "--graph",
           "1", "--stream", "own"},
          {{"DIVVY_APART", "1"},
           {"DIVVY_PROTECT", protection},
           {"DIVVY_CUDA_SIM_SPEC", "mode=timeslice"},
           {"LD_PRELOAD", GATE_LIBRARY ":" RM_CONTROL}}};
}
Job InTurns(Environment more = {}) {
  more.insert(
      {{"DIVVY_CUDA_SIM_SPEC", "mode=timeslice"}, {"LD_PRELOAD", GATE_LIBRARY ":" RM_CONTROL}});
  return {As::kBatch,
          {"train", "--kernels", "20", "--us", "50", "--blocks", "64", "--secs", "100", "--graph",
           "1", "--stream", "own"},
          std::move(more)};
}

class GateKillTest : public GateTest {
 protected:
  // A job that outlives others; its place on the board.
  gate::Slot* StartSurvivor(const Job& job) {
    const bool latency = job.as == As::kLatency;
    survivors_.push_back({latency ? "inference" : "training", StartJob(job), nullptr, {}, {}});
    Survivor& survivor = survivors_.back();
    EXPECT_TRUE(survivor.program->AwaitOutput("READY"));
    survivor.slot = SlotOf(latency ? gate::JobClass::kLatency : gate::JobClass::kBatch);
    EXPECT_NE(survivor.slot, nullptr);
    return survivor.slot;
  }

  std::unique_ptr<test::RunningProgram> StartJob(const Job& job) const {
    return Start(job.as, job.words, job.more);
  }

  // Sees how soon each survivor goes on.
  void Kill(test::RunningProgram& victim) {
    if (IsClosed()) ++closed_;
    ASSERT_NO_FATAL_FAILURE(AwaitProgress(&Survivor::bereft, [&] { victim.Signal(SIGKILL); }));
    EXPECT_EQ(victim.Wait().signal, SIGKILL);
    ASSERT_NO_FATAL_FAILURE(AwaitProgress(&Survivor::unharmed, [] {}));
  }

  // Kills jobs like that, some while they start, most at work.
  void KillMany(const Job& victims, int count) {
    for (int i = 0; i < count; ++i) {
      const auto victim = StartJob(victims);
      const bool works = random_() % 4 != 0;
      ASSERT_TRUE(!works || victim->AwaitOutput("READY"));
      const std::chrono::microseconds most = works ? kAtWork : kWhileItStarts;
      std::this_thread::sleep_for(most * (random_() % 1000) / 1000);
      ASSERT_NO_FATAL_FAILURE(Kill(*victim)) << "victim " << i;
    }
    const Clock::time_point end = Clock::now();
    EXPECT_TRUE(Await([&] { return CountPlaces() == survivors_.size(); }))
        << "the dead are still on the board";
    EXPECT_LT(Clock::now() - end, kClearedWithin);
  }

  // After all kills so far; and the survivors' ends are ordinary ones.
  void ExpectAllWentOn() {
    for (Survivor& survivor : survivors_) {
      const double usual = NineOfTen(survivor.unharmed);
      const double most = NineOfTen(survivor.bereft);
      std::printf(
          "after %zu kills %s went on within %.0f ms, after nine of ten within %.0f (%.0f)\n",
          survivor.bereft.size(), survivor.name, survivor.bereft.back() * 1e3, most * 1e3,
          usual * 1e3);
      EXPECT_LT(most, kGoesOnWithin + usual) << survivor.name;
      survivor.program->Signal(SIGTERM);
      const test::Finished finished = survivor.program->Wait();
      EXPECT_EQ(finished.exit_status, 0) << finished.out << finished.err;
      EXPECT_EQ(ResultOf(finished)["errors"], 0);
    }
    survivors_.clear();
    if (closed_ > 0) std::printf("%d of them had the gate closed\n", closed_);
  }

  std::mt19937_64 random_{61};
  int closed_ = 0;  // Jobs that were killed while they kept the gate closed.

 private:
  struct Survivor {
    const char* name;
    std::unique_ptr<test::RunningProgram> program;
    gate::Slot* slot;
    // Until it had gone on: from each kill, and from a moment shortly after.
    std::vector<double> bereft;
    std::vector<double> unharmed;
  };

  static double NineOfTen(std::vector<double>& seconds) {
    std::ranges::sort(seconds);
    return seconds[seconds.size() * 9 / 10];
  }

  void AwaitProgress(std::vector<double> Survivor::* seconds, const std::function<void()>& from) {
    std::vector<std::uint64_t> targets;
    for (const Survivor& each : survivors_) targets.push_back(each.slot->launches + kProgress);
    from();
    const Clock::time_point start = Clock::now();
    std::vector<double> took(survivors_.size(), -1);
    const auto have_gone_on = [&] {
      for (std::size_t i = 0; i < took.size(); ++i) {
        if (took[i] >= 0 || survivors_[i].slot->launches < targets[i]) continue;
        took[i] = std::chrono::duration<double>(Clock::now() - start).count();
      }
      return std::ranges::all_of(took, [](double each) { return each >= 0; });
    };
    ASSERT_TRUE(Await(have_gone_on)) << "somebody hangs";
    for (std::size_t i = 0; i < took.size(); ++i) (survivors_[i].*seconds).push_back(took[i]);
  }

  std::size_t CountPlaces() const {
    const auto taken = [](const gate::Slot& slot) { return slot.live.load() != 0; };
    return static_cast<std::size_t>(std::ranges::count_if(board_->slots, taken));
  }

  // Whether another than the survivors keeps the gate closed.
  bool IsClosed() const {
    return std::ranges::any_of(board_->slots, [&](const gate::Slot& slot) {
      return slot.level.load() != gate::kOpen && slot.live.load() != 0 &&
             std::ranges::none_of(survivors_,
                                  [&](const Survivor& each) { return each.slot == &slot; });
    });
  }

  std::vector<Survivor> survivors_;
};

TEST_F(GateKillTest, TrainingGoesOnWhenInferenceIsKilled) {
  StartSurvivor(kTraining);
  ASSERT_NO_FATAL_FAILURE(KillMany(kServing, 100));
  ExpectAllWentOn();
  EXPECT_GT(closed_, 20);
}

TEST_F(GateKillTest, InferenceGoesOnWhenTrainingIsKilled) {
  StartSurvivor(kServing);
  ASSERT_NO_FATAL_FAILURE(KillMany(kTraining, 100));
  ExpectAllWentOn();
}

// In the moments in which it has the GPU to itself, and others wait there (gate/alone.h).
TEST_F(GateKillTest, TrainingGoesOnWhenTrainingThatIsAloneIsKilled) {
  const gate::Slot* const survivor = StartSurvivor(kTraining);
  for (int i = 0; i < 20; ++i) {
    const auto victim = StartJob(kTraining);
    ASSERT_TRUE(victim->AwaitOutput("READY"));
    ASSERT_TRUE(Await([&] {
      return board_->alone_until_ns != 0 && &board_->slots[board_->alone_slot] != survivor;
    }));
    std::this_thread::sleep_for(kAtWork * (random_() % 1000) / 1000);
    ASSERT_NO_FATAL_FAILURE(Kill(*victim)) << "victim " << i;
  }
  ExpectAllWentOn();
}

TEST_F(GateKillTest, TrainingHasTheDriversTurnsAgainWhenInferenceThatIsApartIsKilled) {
  const gate::Slot* const training = StartSurvivor(InTurns());
  const auto has_turns_of = [&](std::uint32_t us) {
    return Await([&] { return training->slice_us.load() == us; });
  };
  for (const bool balanced : {false, true}) {
    const Job serving = Apart(balanced ? "balanced" : "tight");
    ASSERT_NO_FATAL_FAILURE(KillMany(serving, 25));
    ASSERT_TRUE(has_turns_of(gate::kDriverSliceUs));
    // One more, with all that it may have of training.
    const auto last = StartJob(serving);
    const std::uint32_t openness = balanced ? gate::kBalanced : gate::kTight;
    ASSERT_TRUE(has_turns_of(gate::BatchSliceUs(openness, 0)));
    ASSERT_NO_FATAL_FAILURE(Kill(*last));
    ASSERT_TRUE(has_turns_of(gate::kDriverSliceUs));
  }
  ExpectAllWentOn();
}

TEST_F(GateKillTest, InferenceThatIsApartGoesOnWhenTrainingIsKilled) {
  for (const char* const protection : {"tight", "balanced"}) {
    StartSurvivor(Apart(protection));
    ASSERT_NO_FATAL_FAILURE(KillMany(InTurns(), 25));
    ExpectAllWentOn();
  }
}

TEST_F(GateKillTest, BothGoOnWhenTheServerOfMpsIsKilled) {
  StartSurvivor(Apart("tight"));
  // A client of it makes no channels of its own, so that nothing can be set for it.
  StartSurvivor(InTurns({{"DIVVY_MPS", "1"}, {"DIVVY_SIM_RM", "refuse"}}));
  const Job server =
      InTurns({{"DIVVY_CLASS", "server"}, {"DIVVY_GPU_UUID", device::cuda_simulator::UuidText(0)}});
  ASSERT_NO_FATAL_FAILURE(KillMany(server, 40));
  ExpectAllWentOn();
}

}  // namespace
}  // namespace divvy::tests
