#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>

#include "device/cuda_simulator/identity.h"
#include "gate/gate_fixture.h"
#include "gate/latency.h"
#include "gate/slices.h"

// That latency jobs which are apart interrupt batch jobs: real processes, a simulated GPU whose
// kernel module (rm_control.c) sets time slices as it is asked.

namespace divvy::tests {
namespace {

class GateSlicesTest : public GateTest {
 protected:
  // Turns of the driver's are so long here that who has to wait for one is told from who has not.
  static constexpr const char* kMachine = "mode=timeslice slice_us=40000";

  static Environment With(Environment more) {
    more.insert({{"LD_PRELOAD", GATE_LIBRARY ":" RM_CONTROL}, {"DIVVY_CUDA_SIM_SPEC", kMachine}});
    return more;
  }
  static Environment Apart(Environment more = {}) {
    more["DIVVY_APART"] = "1";
    return With(std::move(more));
  }

  // A trainer at work; its place on the board.
  std::unique_ptr<test::RunningProgram> StartTrainer(Environment more = {}) {
    auto trainer = Start(As::kBatch, kTraining, With(std::move(more)));
    EXPECT_TRUE(trainer->AwaitOutput("READY"));
    EXPECT_TRUE(Await([&] { return SlotOf(gate::JobClass::kBatch) != nullptr; }));
    trainer_ = SlotOf(gate::JobClass::kBatch);
    return trainer;
  }

  static std::string Stop(test::RunningProgram& job) {
    job.Signal(SIGTERM);
    const test::Finished finished = job.Wait();
    EXPECT_EQ(finished.exit_status, 0) << finished.out << finished.err;
    return finished.err;
  }

  bool TrainersSliceBecomes(std::uint32_t us) const {
    return Await([&] { return trainer_->slice_us.load() == us; });
  }

  static const Words kTraining;
  gate::Slot* trainer_ = nullptr;
};

const Words GateSlicesTest::kTraining{"train",    "--kernels", "10",     "--us", "5000",
                                      "--blocks", "64",        "--secs", "60"};
const Words kServing{"infer", "--kernels",  "4",  "--us",   "250", "--blocks",
                     "64",    "--requests", "40", "--rate", "20"};

TEST_F(GateSlicesTest, RequestsInterruptTrainingWithoutMarkers) {
  bool faster = false;
  for (int attempt = 0; attempt < 3 && !faster; ++attempt) {
    auto ungated = Start(As::kUngated, kTraining, {{"DIVVY_CUDA_SIM_SPEC", kMachine}});
    EXPECT_TRUE(ungated->AwaitOutput("READY"));
    const double slow = ResultOf(Run(As::kUngated, kServing))["p50_ms"];
    Stop(*ungated);
    auto trainer = StartTrainer();
    const test::Finished served = Run(As::kLatency, kServing, Apart());
    EXPECT_EQ(served.exit_status, 0) << served.err;
    const double fast = ResultOf(served)["p50_ms"];
    const Coverage coverage = CoverageIn(Stop(*trainer));
    std::printf("request %.2f ms in turns of the driver's, %.2f interrupting\n", slow, fast);
    faster = fast < slow / 2;
    // A few may be put in the moment in which the latency job joins.
    EXPECT_LT(coverage.markers, 20U);
    EXPECT_GT(coverage.kernels, 0U);
  }
  EXPECT_TRUE(faster);
}

TEST_F(GateSlicesTest, WhereSlicesAreRefusedMarkersHoldTrainingBack) {
  auto trainer = StartTrainer({{"DIVVY_SIM_RM", "refuse"}});
  const test::Finished served = Run(As::kLatency, kServing, Apart({{"DIVVY_SIM_RM", "refuse"}}));
  EXPECT_EQ(test::CountOf(served.err, "does not set time slices"), 1) << served.err;
  EXPECT_EQ(ResultOf(served)["errors"], 0);
  EXPECT_EQ(trainer_->slice_us.load(), 0U);
  EXPECT_GT(CoverageIn(Stop(*trainer)).markers, 0U);
}

TEST_F(GateSlicesTest, OneThatCannotBeInterruptedIsHeldBackByMarkers) {
  auto trainer = StartTrainer({{"DIVVY_SIM_RM", "refuse"}});
  const test::Finished served = Run(As::kLatency, kServing, Apart());
  EXPECT_EQ(test::CountOf(served.err, "does not set time slices"), 0) << served.err;
  EXPECT_GT(CoverageIn(Stop(*trainer)).markers, 0U);
}

TEST_F(GateSlicesTest, SlicesFollowWhoIsOnTheBoard) {
  auto trainer = StartTrainer();
  EXPECT_TRUE(TrainersSliceBecomes(gate::kDriverSliceUs)) << "nobody is apart";
  gate::Slot* latency = JoinAsLatencyJob();
  latency->apart.store(1);
  EXPECT_TRUE(TrainersSliceBecomes(gate::BatchSliceUs(gate::kTight, 0)));
  latency->stepwise_us.store(6'000);
  EXPECT_TRUE(TrainersSliceBecomes(gate::BatchSliceUs(gate::kTight, 6'000)));
  latency->stepwise_us.store(20'000);
  latency->openness.store(gate::kBalanced);
  EXPECT_TRUE(TrainersSliceBecomes(gate::BatchSliceUs(gate::kBalanced, 20'000)));
  latency->openness.store(gate::kNoProtection);
  EXPECT_TRUE(TrainersSliceBecomes(gate::kDriverSliceUs));
  Stop(*trainer);
}

TEST_F(GateSlicesTest, LaunchingKernelByKernelIsTold) {
  struct Case {
    Words words;
    std::uint32_t least_us;  // of its kernels between two waits; 0: it is not told
    std::uint32_t most_us;
  };
  const std::vector<Case> cases = {
      {{"--graph", "1", "--kernels", "40"}, 0, 0},
      {{"--graph", "0", "--kernels", "40"}, 800, UINT32_MAX},
      // Requests that wait several times: for its first, before it marks them, each wait ends one.
      {{"--graph", "1", "--kernels", "4", "--marked", "--waits", "20"}, 0, 0},
      {{"--graph", "0", "--kernels", "40", "--marked", "--waits", "8"}, 800, 4 * 800},
      {{"--graph", "0", "--kernels", "4", "--marked", "--waits", "20"}, 0, 0}};
  for (const auto& [words, least_us, most_us] : cases) {
    Words all{"infer", "--us", "20", "--rate", "50", "--secs", "60", "--stream", "own"};
    all.insert(all.end(), words.begin(), words.end());
    auto job = Start(As::kLatency, all, Apart());
    ASSERT_TRUE(job->AwaitOutput("READY"));
    ASSERT_TRUE(Await([&] {
      const gate::Slot* slot = SlotOf(gate::JobClass::kLatency);
      return slot != nullptr && slot->apart.load() == 1 && slot->requests.load() > 40;
    }));
    const std::uint32_t us = SlotOf(gate::JobClass::kLatency)->stepwise_us.load();
    EXPECT_GE(us, least_us) << ::testing::PrintToString(words);
    EXPECT_LE(us, most_us) << ::testing::PrintToString(words);
    Stop(*job);
  }
}

TEST_F(GateSlicesTest, ClientsOfAServerWithOurLibraryPutNoMarkersUntilItIsGone) {
  auto server = Start(
      As::kUngated, kTraining,
      With({{"DIVVY_CLASS", "server"}, {"DIVVY_GPU_UUID", device::cuda_simulator::UuidText(0)}}));
  ASSERT_TRUE(server->AwaitOutput("READY"));
  ASSERT_TRUE(Await([&] { return SlotOf(gate::JobClass::kServer) != nullptr; }));
  // A client makes no channels of its own, so that nothing can be set for it.
  auto client = StartTrainer({{"DIVVY_MPS", "1"}, {"DIVVY_SIM_RM", "refuse"}});
  gate::Slot* latency = JoinAsLatencyJob();
  latency->apart.store(1);
  gate::Slot* turns = SlotOf(gate::JobClass::kServer);
  EXPECT_TRUE(Await([&] { return turns->slice_us.load() == gate::BatchSliceUs(gate::kTight, 0); }));
  EXPECT_EQ(turns->launches.load(), 0U) << "its own launches are not ours to count";
  ASSERT_GE(SecondsToLaunch(*trainer_, 10), 0);
  const std::uint64_t before = trainer_->markers.load();
  ASSERT_GE(SecondsToLaunch(*trainer_, 50), 0);
  EXPECT_EQ(trainer_->markers.load(), before);
  server->Signal(SIGKILL);
  server->Wait();
  EXPECT_TRUE(Await([&] { return trainer_->markers.load() > before; }));
  Stop(*client);
}

TEST_F(GateSlicesTest, SlicesAreTheDriversAgainWhenTheLatencyJobIsKilled) {
  auto trainer = StartTrainer();
  auto job =
      Start(As::kLatency, {"infer", "--kernels", "4", "--us", "250", "--secs", "60"}, Apart());
  ASSERT_TRUE(job->AwaitOutput("READY"));
  EXPECT_TRUE(TrainersSliceBecomes(gate::BatchSliceUs(gate::kTight, 0)));
  job->Signal(SIGKILL);
  job->Wait();
  EXPECT_TRUE(TrainersSliceBecomes(gate::kDriverSliceUs));
  EXPECT_GE(SecondsToLaunch(*trainer_, 10), 0);
  Stop(*trainer);
}

TEST_F(GateSlicesTest, SeveralInTurnsOfTheirOwnAreHeldBackByMarkers) {
  auto first = StartTrainer();
  auto second = Start(As::kBatch, kTraining, With({}));
  ASSERT_TRUE(second->AwaitOutput("READY"));
  gate::Slot* latency = JoinAsLatencyJob();
  latency->apart.store(1);
  EXPECT_TRUE(Await([&] { return trainer_->markers.load() > 10; }));
  EXPECT_TRUE(TrainersSliceBecomes(gate::kDriverSliceUs));
  Stop(*second);
  EXPECT_TRUE(TrainersSliceBecomes(gate::BatchSliceUs(gate::kTight, 0))) << "alone again";
  Stop(*first);
}

TEST_F(GateSlicesTest, AForkedChildOfAJobThatIsApartIsItsOwn) {
  const test::Finished served =
      Run(As::kLatency,
          {"infer", "--kernels", "2", "--us", "2000", "--rate", "200", "--requests", "30",
           "--graph", "1", "--stream", "own", "--fork-child"},
          Apart());
  EXPECT_EQ(ResultOf(served)["errors"], 0) << served.err;
  EXPECT_EQ(ResultOf(served)["child_status"], 0) << served.err;
  EXPECT_EQ(test::CountOf(served.err, "apart: of requests in a row"), 1) << served.err;
}

// The GPU is held after graphs by kernels of ours: the simulated driver counts them with the
// program's.
std::int64_t KernelsIn(const std::vector<nlohmann::json>& stats) {
  EXPECT_FALSE(stats.empty());
  return stats.empty() ? 0 : stats.back()["kernels"].get<std::int64_t>();
}

TEST_F(GateSlicesTest, GpuIsHeldAfterGraphsUnlessTheWholeContextIsWaitedFor) {
  const auto kernels_beyond_its_own = [&](const std::string& sync, const std::string& protect) {
    const test::Finished served =
        Run(As::kLatency,
            {"infer", "--kernels", "2", "--us", "2000", "--rate", "100", "--requests", "50",
             "--graph", "1", "--stream", "own", "--sync", sync},
            Apart({{"DIVVY_PROTECT", protect}}));
    EXPECT_EQ(ResultOf(served)["errors"], 0) << served.err;
    return KernelsIn(Stats()) - 2 * static_cast<std::int64_t>(CoverageIn(served.err).graphs);
  };
  EXPECT_GT(kernels_beyond_its_own("stream", "tight"), 10);
  EXPECT_GT(kernels_beyond_its_own("stream", "balanced"), 10);
  EXPECT_LT(kernels_beyond_its_own("ctx", "tight"), 10);
}

}  // namespace
}  // namespace divvy::tests
