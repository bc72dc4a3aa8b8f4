#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "gate/gate_fixture.h"

// That batch jobs share a GPU by weight, whatever their kernels are like: real processes, a
// simulated GPU.

namespace divvy::tests {
namespace {

// A job that has work for the GPU at all times.
struct Trainer {
  std::uint32_t weight;
  int kernels;  // A step.
  int us;       // A kernel.
  int blocks;   // 32 fill the GPU.
  bool graph = false;
};

class GateSharesTest : public GateTest {
 protected:
  // What part of the GPU time each got while all had all of it that they were given.
  std::vector<double> SharesOf(const std::vector<Trainer>& trainers) {
    std::vector<std::unique_ptr<test::RunningProgram>> programs;
    std::vector<const gate::Slot*> slots;
    for (const Trainer& trainer : trainers) {
      programs.push_back(Begin(trainer));
      EXPECT_TRUE(programs.back()->AwaitOutput("READY"));
      slots.push_back(Joined(slots));
      if (slots.back() == nullptr) return std::vector<double>(trainers.size(), 0);
    }
    EXPECT_TRUE(AwaitMeasurements(slots)) << "not all were alone three times";
    const std::vector<double> before = GpuSeconds(trainers, slots);
    constexpr double kSeconds = 1.5;
    const double from = Sum(before);
    EXPECT_TRUE(Await([&] { return Sum(GpuSeconds(trainers, slots)) > from + kSeconds; }));
    std::vector<double> shares = GpuSeconds(trainers, slots);
    const double all = Sum(shares) - from;
    for (std::size_t i = 0; i < shares.size(); ++i) {
      shares[i] = (shares[i] - before[i]) / all;
      std::printf("%s%.3f", i == 0 ? "shares " : " : ", shares[i]);
    }
    std::printf("\n");
    for (const auto& program : programs) {
      program->Signal(SIGTERM);
      EXPECT_EQ(program->Wait().exit_status, 0);
    }
    return shares;
  }

  // The times of two cores that do other things too may be odd once, not three times.
  void ExpectShares(const std::vector<Trainer>& trainers, const std::vector<double>& expected) {
    constexpr double kWithin = 0.2;
    bool fair = false;
    for (int attempt = 0; attempt < 3 && !fair && !HasFailure(); ++attempt) {
      const std::vector<double> shares = SharesOf(trainers);
      fair = true;
      for (std::size_t i = 0; i < shares.size(); ++i) {
        fair = fair && shares[i] > expected[i] * (1 - kWithin) &&
               shares[i] < expected[i] * (1 + kWithin);
      }
    }
    EXPECT_TRUE(fair);
  }

  // One of the two cannot be measured, and none is alone beside it.
  void ExpectNoMoments(const gate::Slot& unmeasurable, const gate::Slot& other) {
    EXPECT_TRUE(Await([&] { return unmeasurable.scale.load() == gate::kUnmeasurable; }));
    const std::uint64_t last = other.alone_ns.load();
    ASSERT_GE(SecondsToLaunch(other, 500), 0);
    EXPECT_EQ(other.alone_ns.load(), last);
    EXPECT_EQ(unmeasurable.alone_ns.load(), 0U);
  }

  std::unique_ptr<test::RunningProgram> Begin(const Trainer& trainer, Environment more = {}) const {
    more.insert({"DIVVY_WEIGHT", std::to_string(trainer.weight)});
    return Start(
        As::kBatch,
        {"train", "--kernels", std::to_string(trainer.kernels), "--us", std::to_string(trainer.us),
         "--blocks", std::to_string(trainer.blocks), "--graph", trainer.graph ? "1" : "0",
         "--stream", trainer.graph ? "own" : "default", "--secs", "60"},
        more);
  }

  // The one that is not among the others.
  const gate::Slot* Joined(const std::vector<const gate::Slot*>& others) {
    for (const gate::Slot& slot : OpenBoard()->slots) {
      if (slot.live.load() == 0) continue;
      bool known = false;
      for (const gate::Slot* const other : others) known = known || other == &slot;
      if (!known) return &slot;
    }
    ADD_FAILURE() << "it is not on the board";
    return nullptr;
  }

  static bool AwaitMeasurements(const std::vector<const gate::Slot*>& slots) {
    std::vector<std::uint64_t> last(slots.size(), 0);
    std::vector<int> times(slots.size(), 0);
    return Await([&] {
      bool enough = true;
      for (std::size_t i = 0; i < slots.size(); ++i) {
        const std::uint64_t now = slots[i]->alone_ns.load();
        if (now != last[i]) ++times[i];
        last[i] = now;
        enough = enough && times[i] >= 3;
      }
      return enough;
    });
  }

 private:
  static std::vector<double> GpuSeconds(const std::vector<Trainer>& trainers,
                                        const std::vector<const gate::Slot*>& slots) {
    std::vector<double> seconds;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const double launch = trainers[i].us * 1e-6 * (trainers[i].graph ? trainers[i].kernels : 1);
      seconds.push_back(static_cast<double>(slots[i]->launches.load()) * launch);
    }
    return seconds;
  }

  static double Sum(const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum;
  }
};

TEST_F(GateSharesTest, OfJobsWhoseKernelsFitSideBySide) {
  ExpectShares({{200, 10, 1000, 8}, {100, 10, 1000, 8}}, {2 / 3.0, 1 / 3.0});
}

TEST_F(GateSharesTest, OfJobsThatFillTheGpu) {
  ExpectShares({{200, 10, 1000, 32}, {100, 10, 1000, 32}}, {2 / 3.0, 1 / 3.0});
}

// Those that got little must be measured too, though their queues are hardly ever filled.
TEST_F(GateSharesTest, OfThreeJobsThatFillTheGpu) {
  ExpectShares({{300, 10, 1000, 32}, {200, 10, 1000, 32}, {100, 10, 1000, 32}},
               {1 / 2.0, 1 / 3.0, 1 / 6.0});
}

TEST_F(GateSharesTest, OfShortKernelsBesideLongOnes) {
  ExpectShares({{100, 20, 500, 32}, {100, 4, 5000, 32}}, {1 / 2.0, 1 / 2.0});
}

// Long units, each waited for: there is never more than one under way.
TEST_F(GateSharesTest, OfGraphsBesideKernels) {
  ExpectShares({{200, 10, 1000, 32, true}, {100, 10, 1000, 32}}, {2 / 3.0, 1 / 3.0});
}

// Its marks would hide each other.
TEST_F(GateSharesTest, OneWithMoreStreamsThanTracksIsNotMeasured) {
  const Words many{"train",     "--threads", std::to_string(gate::kTracks + 1),
                   "--stream",  "own",       "--blocks",
                   "4",         "--us",      "1000",
                   "--kernels", "10",        "--secs",
                   "60"};
  auto first = Start(As::kBatch, many);
  ASSERT_TRUE(first->AwaitOutput("READY"));
  const gate::Slot* streams = Joined({});
  ASSERT_NE(streams, nullptr);
  auto second = Begin({100, 10, 1000, 8});
  ASSERT_TRUE(second->AwaitOutput("READY"));
  const gate::Slot* other = Joined({streams});
  ASSERT_NE(other, nullptr);
  ExpectNoMoments(*streams, *other);
}

// The second of two has never seen what its kernels take alone, as the first has.
TEST_F(GateSharesTest, BesideThatOneWhoCameLaterGetsNoLess) {
  std::vector<std::unique_ptr<test::RunningProgram>> trainers;
  std::vector<const gate::Slot*> slots;
  for (int i = 0; i < 2; ++i) {
    trainers.push_back(Begin({100, 10, 1000, 32}));
    ASSERT_TRUE(trainers.back()->AwaitOutput("READY"));
    slots.push_back(Joined(slots));
    ASSERT_NE(slots.back(), nullptr);
    ASSERT_GE(SecondsToLaunch(*slots.back(), 200), 0);
  }
  ASSERT_TRUE(Await([&] { return slots[0]->scale.load() != 0 && slots[1]->scale.load() != 0; }));
  auto unmeasurable =
      Start(As::kBatch, {"train", "--threads", std::to_string(gate::kTracks + 1), "--stream", "own",
                         "--blocks", "1", "--us", "1000", "--kernels", "2", "--secs", "60"});
  ASSERT_TRUE(unmeasurable->AwaitOutput("READY"));
  int fair = 0;
  for (int window = 0; window < 8; ++window) {
    const std::uint64_t first = slots[0]->launches.load();
    const std::uint64_t second = slots[1]->launches.load();
    ASSERT_GE(SecondsToLaunch(*slots[0], 200), 0);
    const double part = static_cast<double>(slots[1]->launches.load() - second) /
                        static_cast<double>(slots[0]->launches.load() - first);
    std::printf("%.2f ", part);
    fair += part > 0.75 && part < 1.33 ? 1 : 0;
  }
  std::printf("\n");
  EXPECT_GE(fair, 4);
}

// It waits for what is slow on the other one.
TEST_F(GateSharesTest, OneThatUsesTwoGpusIsNotMeasured) {
  const Environment machine{{"DIVVY_CUDA_SIM_SPEC", "gpus=2"}};
  auto first = Start(As::kBatch,
                     {"train", "--threads", "2", "--gpus", "2", "--us", "1000", "--blocks", "8",
                      "--kernels", "10", "--secs", "60"},
                     machine);
  ASSERT_TRUE(first->AwaitOutput("READY"));
  const gate::Slot* both = Joined({});
  ASSERT_NE(both, nullptr);
  auto second = Begin({100, 10, 1000, 8}, machine);
  ASSERT_TRUE(second->AwaitOutput("READY"));
  const gate::Slot* other = Joined({both});
  ASSERT_NE(other, nullptr);
  ExpectNoMoments(*both, *other);
  first->Signal(SIGTERM);  // Nobody else would remove the board of the second GPU.
  EXPECT_EQ(first->Wait().exit_status, 0);
}

// Which is captured once, and launched as a graph that does not say what is in it.
TEST_F(GateSharesTest, OneWhoseGraphsMeetOthersIsNotMeasured) {
  auto first = Start(As::kBatch, {"train", "--nccl", "--graph", "1", "--stream", "own", "--us",
                                  "1000", "--kernels", "4", "--blocks", "8", "--secs", "60"});
  ASSERT_TRUE(first->AwaitOutput("READY"));
  const gate::Slot* rank = Joined({});
  ASSERT_NE(rank, nullptr);
  auto second = Begin({100, 10, 1000, 8});
  ASSERT_TRUE(second->AwaitOutput("READY"));
  const gate::Slot* other = Joined({rank});
  ASSERT_NE(other, nullptr);
  ExpectNoMoments(*rank, *other);
}

// As PyTorch's pool of them has.
TEST_F(GateSharesTest, OneWhoseStreamsWorkOneAfterAnotherIsMeasured) {
  auto first = Start(As::kBatch, {"train", "--stream", "pool", "--blocks", "8", "--us", "1000",
                                  "--kernels", "10", "--secs", "60"});
  ASSERT_TRUE(first->AwaitOutput("READY"));
  const gate::Slot* streams = Joined({});
  ASSERT_NE(streams, nullptr);
  auto second = Begin({100, 10, 1000, 8});
  EXPECT_TRUE(AwaitMeasurements({streams}));
  EXPECT_TRUE(Await(
      [&] { return streams->scale.load() != 0 && streams->scale.load() != gate::kUnmeasurable; }));
}

// What it learned of its kernels beside the other holds no more; and those are so long that the
// next one to be timed in any case is not launched before the test is over.
TEST_F(GateSharesTest, OneThatIsLeftAloneIsChargedWhatItTakesAlone) {
  auto first = Begin({100, 1, 30'000, 32});
  ASSERT_TRUE(first->AwaitOutput("READY"));
  const gate::Slot* leaves = Joined({});
  ASSERT_NE(leaves, nullptr);
  auto second = Begin({100, 1, 30'000, 32});
  ASSERT_TRUE(second->AwaitOutput("READY"));
  const gate::Slot* stays = Joined({leaves});
  ASSERT_NE(stays, nullptr);
  const auto charged_ms = [stays] {
    const std::uint64_t launches = stays->launches.load();
    const std::uint64_t charged_ns = stays->gpu_ns.load();
    if (SecondsToLaunch(*stays, 10) < 0) return 0.0;
    return static_cast<double>(stays->gpu_ns.load() - charged_ns) / 1e6 /
           static_cast<double>(stays->launches.load() - launches);
  };
  EXPECT_TRUE(Await([&] { return charged_ms() > 45; })) << "beside the other, it seems to take 60";
  first->Signal(SIGTERM);
  EXPECT_EQ(first->Wait().exit_status, 0);
  EXPECT_TRUE(Await([&] { return std::abs(charged_ms() - 30) < 3; }));
}

// They have one handle.
TEST_F(GateSharesTest, DefaultStreamsOfThreadsHaveTracksOfTheirOwn) {
  auto first = Start(As::kBatch, {"train", "--threads", "3", "--stream", "ptds", "--blocks", "8",
                                  "--us", "1000", "--kernels", "10", "--secs", "60"});
  ASSERT_TRUE(first->AwaitOutput("READY"));
  const gate::Slot* streams = Joined({});
  ASSERT_NE(streams, nullptr);
  auto second = Begin({100, 10, 1000, 8});
  EXPECT_TRUE(Await([&] {
    int used = 0;
    for (const auto& passed : streams->passed) used += passed.load() != 0 ? 1 : 0;
    return used == 3;
  }));
  EXPECT_TRUE(AwaitMeasurements({streams}));
}

}  // namespace
}  // namespace divvy::tests
