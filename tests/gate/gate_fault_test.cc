#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <future>
#include <thread>

#include "device/cuda_simulator/machine.h"
#include "gate/gate_fixture.h"

// That nobody is hurt by another's end, however it comes.

namespace divvy::tests {
namespace {

// A job whose peer died goes on within a tenth of a second (gate_kill_test.cc). On a machine that
// is busy with other tests it may take longer to be seen; a hang is what these tests look for.
constexpr double kGoesOnWithin = 3.0;
constexpr std::uint64_t kProgress = 8;  // launches, of two a step: several steps were waited for

const Words kServing{"infer", "--kernels", "2", "--us", "700", "--rate", "150", "--secs", "100"};
const Words kTraining{"train", "--kernels", "2", "--us", "700", "--blocks", "64", "--secs", "100"};

class GateFaultTest : public GateTest {
 protected:
  // A job that is to outlive others.
  void StartSurvivor(As as) {
    survivor_ = Start(as, as == As::kLatency ? kServing : kTraining);
    ASSERT_TRUE(survivor_->AwaitOutput("READY"));
    slot_ = SlotOf(as == As::kLatency ? gate::JobClass::kLatency : gate::JobClass::kBatch);
    ASSERT_NE(slot_, nullptr);
  }

  // It still works, and its end is an ordinary one.
  void StopSurvivor() {
    survivor_->Signal(SIGTERM);
    const test::Finished finished = survivor_->Wait();
    EXPECT_EQ(finished.exit_status, 0) << finished.out << finished.err;
    EXPECT_EQ(ResultOf(finished)["errors"], 0);
  }

  void ExpectItGoesOn(const std::string& after) {
    const double seconds = SecondsToLaunch(*slot_, kProgress);
    ASSERT_GE(seconds, 0) << "it hangs after " << after;
    EXPECT_LT(seconds, kGoesOnWithin) << after;
    slowest_ = std::max(slowest_, seconds);
  }

  std::unique_ptr<test::RunningProgram> survivor_;
  gate::Slot* slot_ = nullptr;
  double slowest_ = 0;
};

TEST_F(GateFaultTest, AJobThatDiesInsideACallHurtsNobody) {
  // While it joins, while it times, between marker and launch, while it waits.
  ASSERT_NO_FATAL_FAILURE(StartSurvivor(As::kBatch));
  for (const char* call :
       {"cuMemHostRegister_v2@1", "cuMemHostGetDevicePointer_v2@1", "cuLaunchKernel@2",
        "cuLaunchKernel@9", "cuStreamSynchronize@3", "cuStreamWriteValue32_v2@1"}) {
    const test::Finished finished =
        Run(As::kLatency, kServing, {{"DIVVY_CUDA_SIM_FAULTS", std::string("kill:") + call}});
    EXPECT_EQ(finished.signal, SIGKILL) << call;
    ASSERT_NO_FATAL_FAILURE(ExpectItGoesOn(call));
  }
  StopSurvivor();
  ASSERT_NO_FATAL_FAILURE(StartSurvivor(As::kLatency));
  for (const char* call : {"cuEventCreate@100", "cuStreamWaitValue32_v2@4", "cuEventRecord@20",
                           "cuLaunchKernel@5", "cuEventElapsedTime@9"}) {
    const test::Finished finished =
        Run(As::kBatch, kTraining, {{"DIVVY_CUDA_SIM_FAULTS", std::string("kill:") + call}});
    EXPECT_EQ(finished.signal, SIGKILL) << call;
    ASSERT_NO_FATAL_FAILURE(ExpectItGoesOn(call));
  }
  StopSurvivor();
}

// Whether whoever asks the simulated GPU is answered. A job that was stopped in the middle of such
// a question keeps all others waiting, which is the simulator's alone: the real one is in the
// kernel.
class Question {
 public:
  explicit Question(const std::string& path)
      : answer_(std::async(std::launch::async, [path] {
          auto machine = device::cuda_simulator::Machine::Open(path, {});
          return machine && (*machine)->Memory(0).total > 0;
        })) {}
  bool IsAnswered() {
    return answer_.wait_for(std::chrono::milliseconds(50)) == std::future_status::ready;
  }

 private:
  std::future<bool> answer_;  // Waited for in the end.
};

TEST_F(GateFaultTest, AStoppedJobCannotHoldTheGate) {
  ASSERT_NO_FATAL_FAILURE(StartSurvivor(As::kBatch));
  auto serving = Start(As::kLatency, kServing);
  ASSERT_TRUE(serving->AwaitOutput("READY"));
  gate::Slot* const other = SlotOf(gate::JobClass::kLatency);
  ASSERT_NE(other, nullptr);
  bool held = false;
  for (int attempt = 0; attempt < 1000 && !held; ++attempt) {
    ASSERT_TRUE(Await([&] { return other->level.load() != gate::kOpen; }));
    serving->Signal(SIGSTOP);
    // The signal reaches one thread after the other; who has stopped moves no more.
    const std::uint64_t launches = other->launches.load();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    held = other->level.load() != gate::kOpen && other->launches.load() == launches;
    Question question(directory_ + "/gpu");
    held = held && question.IsAnswered();
    if (!held) serving->Signal(SIGCONT);
  }
  ASSERT_TRUE(held);
  ASSERT_NO_FATAL_FAILURE(ExpectItGoesOn("SIGSTOP"));
  std::printf("training went on %.0f ms after inference was stopped\n", slowest_ * 1e3);
  EXPECT_GE(other->rescued.load(), 1U);
  serving->Signal(SIGCONT);
  EXPECT_GE(SecondsToLaunch(*other, kProgress), 0) << "it goes on where it was";
  serving->Signal(SIGTERM);
  EXPECT_EQ(serving->Wait().exit_status, 0);
  StopSurvivor();
}

TEST_F(GateFaultTest, NobodyHoldsTheGateForMuchMoreThanASecond) {
  ASSERT_NO_FATAL_FAILURE(StartSurvivor(As::kBatch));
  gate::Slot* const owner = JoinAsLatencyJob();
  ASSERT_TRUE(Await([&] { return slot_->markers.load() > 0; }));
  owner->closed_since_ns.store(gate::NowNs());
  owner->level.store(gate::kClosed);
  const double seconds = SecondsToLaunch(*slot_, kProgress);
  ASSERT_GE(seconds, 0) << "it hangs";
  EXPECT_GT(seconds, 0.5) << "it is needed";
  EXPECT_LT(seconds, kGoesOnWithin);
  EXPECT_EQ(owner->rescued.load(), 1U);
  EXPECT_EQ(owner->level.load(), gate::kOpen);
  StopSurvivor();
}

// As it is where the owner was stopped on its way to closing it, and others opened it meanwhile.
TEST_F(GateFaultTest, AGateThatNobodyKnowsSinceWhenIsClosedIsOpened) {
  ASSERT_NO_FATAL_FAILURE(StartSurvivor(As::kBatch));
  gate::Slot* const owner = JoinAsLatencyJob();
  ASSERT_TRUE(Await([&] { return slot_->markers.load() > 0; }));
  owner->heartbeat_ns.store(1);
  owner->level.store(gate::kClosed);
  ASSERT_NO_FATAL_FAILURE(ExpectItGoesOn("it was closed"));
  EXPECT_EQ(owner->level.load(), gate::kOpen);
  StopSurvivor();
}

TEST_F(GateFaultTest, TheNextJobClearsUpAfterAllWereKilled) {
  for (int round = 0; round < 3; ++round) {
    auto serving = Start(As::kLatency, kServing);
    auto training = Start(As::kBatch, kTraining);
    ASSERT_TRUE(serving->AwaitOutput("READY"));
    ASSERT_TRUE(training->AwaitOutput("READY"));
    serving->Signal(SIGKILL);
    training->Signal(SIGKILL);
    serving->Wait();
    training->Wait();
    EXPECT_EQ(access(BoardPath().c_str(), F_OK), 0);
    const test::Finished next =
        Run(As::kBatch, {"train", "--kernels", "2", "--us", "100", "--steps", "5"});
    EXPECT_EQ(next.exit_status, 0) << next.err;
    EXPECT_NE(access(BoardPath().c_str(), F_OK), 0);
  }
}

TEST_F(GateFaultTest, ErrorsOfTheDriverReachTheProgramAndOnlyThose) {
  const Words short_job{"train", "--kernels", "2", "--us", "100", "--steps", "20"};
  const auto first_error = [&](As as, const char* faults) {
    return ResultOf(Run(as, short_job, {{"DIVVY_CUDA_SIM_FAULTS", faults}}))["first_error"]
        .get<int>();
  };
  JoinAsLatencyJob();
  for (const As as : {As::kBatch, As::kLatency}) {
    EXPECT_EQ(first_error(as, "cuLaunchKernel@17=719"), 719);
    EXPECT_EQ(first_error(as, "sticky:cuLaunchKernel@9=700"), 700);
    EXPECT_EQ(first_error(as, "cuStreamSynchronize@9=719"), 719);
    // What only the gate calls may fail without anybody noticing.
    for (const char* faults :
         {"cuEventCreate@*=2", "cuStreamCreate@1=2", "cuEventRecord@*=999", "cuEventQuery@*=999",
          "cuEventElapsedTime@*=1", "cuMemHostRegister_v2@*=801", "cuDeviceGetUuid_v2@*=999",
          "cuMemHostGetDevicePointer_v2@*=1", "cuStreamWriteValue32_v2@*=801",
          "cuStreamWaitValue32_v2@*=801", "cuDeviceGetCount@*=999",
          "cuOccupancyMaxActiveBlocksPerMultiprocessor@*=1", "cuFuncGetName@*=400"}) {
      EXPECT_EQ(first_error(as, faults), 0) << faults;
    }
  }
}

TEST_F(GateFaultTest, ABoardThatCannotBeUsedLeavesTheJobUngated) {
  const Words short_job{"train", "--kernels", "2", "--us", "100", "--steps", "5"};
  const test::Finished missing =
      Run(As::kBatch, short_job, {{"DIVVY_BOARD_DIR", directory_ + "/nowhere"}});
  EXPECT_EQ(missing.exit_status, 0);
  EXPECT_EQ(test::CountOf(missing.err, "cannot make the board " + directory_ + "/nowhere"), 1)
      << missing.err;

  OpenBoard()->version = gate::kBoardVersion + 1;
  const test::Finished newer = Run(As::kLatency, short_job);
  EXPECT_EQ(newer.exit_status, 0);
  EXPECT_EQ(test::CountOf(newer.err, "is of version " + std::to_string(gate::kBoardVersion + 1)), 1)
      << newer.err;
  board_->version = gate::kBoardVersion;
}

}  // namespace
}  // namespace divvy::tests
