// The MPS daemons that `divvy run` starts, with a stand-in for NVIDIA's program.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "run_fixture.h"

namespace divvy::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using RunMpsTest = RunTest;

TEST_F(RunMpsTest, JobIsAClientOfItsGpusDaemonByItsClass) {
  const std::string pipe = node_.Path("run") + "/divvy/mps-0/pipe";
  const Finished latency =
      Run({"--class", "latency", "--sm-percent", "40"},
          "env; echo get_server_list | nvidia-cuda-mps-control && echo answered");
  EXPECT_EQ(latency.err, "divvy: MPS (daemon of GPU 0 started)\n");
  EXPECT_THAT(latency.out,
              AllOf(HasSubstr("CUDA_MPS_PIPE_DIRECTORY=" + pipe + "\n"),
                    HasSubstr("CUDA_MPS_CLIENT_PRIORITY=0\n"),
                    HasSubstr("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=40\n"), HasSubstr("answered\n")));
  ExpectNothingLeft();
  const Finished batch = Run({"--class", "batch"}, "env");
  EXPECT_THAT(batch.out, AllOf(HasSubstr("CUDA_MPS_CLIENT_PRIORITY=1\n"),
                               Not(HasSubstr("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"))));
  ExpectNothingLeft();
}

TEST_F(RunMpsTest, RunsShareADaemonUntilTheLastEnds) {
  RunningProgram first = Start();
  ASSERT_TRUE(first.AwaitOutput("ready"));
  RunningProgram second = Start({"--class", "latency"});
  ASSERT_TRUE(second.AwaitOutput("ready"));
  EXPECT_EQ(Starts().size(), 1U);
  first.Signal(SIGKILL);
  EXPECT_EQ(first.Wait().signal, SIGKILL);
  // Many times the grace of this pace: it must not end while one is left.
  const Finished third = Run({"--class", "batch"}, "sleep 0.5");
  EXPECT_THAT(third.err, HasSubstr("joined"));
  EXPECT_EQ(Starts().size(), 1U);
  Release();
  const Finished done = second.Wait();
  EXPECT_EQ(done.exit_status, 0);
  EXPECT_EQ(done.out, "divvy: MPS (daemon of GPU 0 joined)\nready\n");
  ExpectNothingLeft();
}

TEST_F(RunMpsTest, ManyThatComeAtOnceGetOneDaemon) {
  std::vector<std::unique_ptr<RunningProgram>> runs;
  for (int i = 0; i < 6; ++i) {
    runs.push_back(std::make_unique<RunningProgram>(
        Words({"--class", "batch"},
              {"sh", "-c",
               "echo ready; while [ ! -e " + node_.Path("end") + " ]; do sleep 0.05; done"}),
        environment_));
  }
  for (const auto& run : runs) ASSERT_TRUE(run->AwaitOutput("ready"));
  EXPECT_EQ(Starts().size(), 1U);
  Release();
  int started = 0;
  for (const auto& run : runs) started += CountOf(run->Wait().err, "started");
  EXPECT_EQ(started, 1);
  ExpectNothingLeft();
}

TEST_F(RunMpsTest, DaemonOutlivesTheRunForWhatTheJobLeftBehind) {
  Run({"--class", "batch"},
      "while [ ! -e " + node_.Path("end") + " ]; do sleep 0.01; done >/dev/null 2>&1 &");
  // Its grace is over many times by then.
  const pid_t daemon = Daemon();
  ASSERT_GT(daemon, 0);
  poll(nullptr, 0, 500);
  EXPECT_EQ(Daemon(), daemon);
  Release();
  ExpectNothingLeft();
}

TEST_F(RunMpsTest, KilledRunLeavesNothing) {
  RunningProgram run = Start({"--class", "batch"}, "sleep 1000 & ");
  ASSERT_TRUE(run.AwaitOutput("ready"));
  run.Signal(SIGKILL);
  EXPECT_EQ(run.Wait().signal, SIGKILL);
  ExpectNothingLeft();
}

TEST_F(RunMpsTest, KeeperWhoseHomeWasRemovedEndsWithItsLastUser) {
  RunningProgram run = Start();
  ASSERT_TRUE(run.AwaitOutput("ready"));
  fs::remove_all(node_.Path("run/divvy"));
  Release();
  run.Wait();
  ExpectNothingLeft();
}

TEST_F(RunMpsTest, HomesOfTheKilledAreRemovedWhateverTheyHadGotTo) {
  fs::create_directories(node_.Path("run/divvy/mps-1"));
  fs::create_directories(node_.Path("run/divvy/mps-2/pipe"));
  std::ofstream(node_.Path("run/divvy/mps-2/lock")) << "";
  fs::permissions(node_.Path("run/divvy"), fs::perms::owner_all);
  EXPECT_EQ(Run({"--class", "batch", "--no-mps"}, "true").exit_status, 0);
  ExpectNothingLeft();
}

TEST_F(RunMpsTest, KillsAtAnyMomentLeaveNothing) {
  for (int moment = 0; moment < 10; ++moment) {
    RunningProgram run = Start();
    poll(nullptr, 0, moment * 15);
    run.Signal(SIGKILL);
    run.Wait();
  }
  ExpectNothingLeft();
}

TEST_F(RunMpsTest, KilledKeeperTakesTheDaemonAlongAndIsStartedAnew) {
  RunningProgram run =
      Start({"--class", "batch"}, "echo start_server -uid 0 | nvidia-cuda-mps-control;");
  ASSERT_TRUE(run.AwaitOutput("ready"));
  const pid_t keeper = Keeper();
  const pid_t daemon = Daemon();
  ASSERT_GT(keeper, 0);
  ASSERT_GT(daemon, 0);
  kill(keeper, SIGKILL);
  EXPECT_TRUE(run.AwaitOutput("was started anew; this job cannot move to the new one"));
  EXPECT_NE(Keeper(), keeper);
  EXPECT_NE(Daemon(), daemon);
  // The server of the first outlived it, but not the second.
  EXPECT_EQ(DaemonAndServer().size(), 1U);
  EXPECT_THAT(Run({"--class", "batch"}, "true").err, HasSubstr("joined"));
  Release();
  const Finished done = run.Wait();
  EXPECT_EQ(done.exit_status, 0);
  ExpectNothingLeft();
}

TEST_F(RunMpsTest, KilledDaemonIsStartedAnewAndTheUserHearsOfIt) {
  RunningProgram run =
      Start({"--class", "batch"}, "echo start_server -uid 0 | nvidia-cuda-mps-control;");
  ASSERT_TRUE(run.AwaitOutput("ready"));
  ASSERT_EQ(DaemonAndServer().size(), 2U);
  kill(Daemon(), SIGKILL);
  EXPECT_TRUE(run.AwaitOutput("was started anew; this job cannot move to the new one"));
  EXPECT_EQ(Starts().size(), 2U);
  EXPECT_EQ(DaemonAndServer().size(), 1U);
  Release();
  const Finished done = run.Wait();
  EXPECT_EQ(CountOf(done.out, "divvy: "), 2) << done.out;
  ExpectNothingLeft();
}

TEST_F(RunMpsTest, WedgedDaemonIsStartedAnew) {
  RunningProgram run = Start();
  ASSERT_TRUE(run.AwaitOutput("ready"));
  const pid_t daemon = Daemon();
  ASSERT_GT(daemon, 0);
  kill(daemon, SIGSTOP);
  EXPECT_TRUE(Eventually([&] { return Starts().size() == 2 && kill(daemon, 0) != 0; }));
  Release();
  EXPECT_EQ(run.Wait().exit_status, 0);
  ExpectNothingLeft();
}

TEST_F(RunMpsTest, RunAndKeeperKilledTogetherLeaveNothing) {
  RunningProgram run =
      Start({"--class", "batch"}, "echo start_server -uid 0 | nvidia-cuda-mps-control;");
  ASSERT_TRUE(run.AwaitOutput("ready"));
  const pid_t keeper = Keeper();
  ASSERT_GT(keeper, 0);
  kill(keeper, SIGKILL);
  run.Signal(SIGKILL);
  EXPECT_EQ(run.Wait().signal, SIGKILL);
  ExpectNothingLeft();
}

TEST_F(RunMpsTest, DaemonThatDoesNotStartLeavesTheJobToTimeSlicing) {
  environment_["FAKE_MPS_FAULT"] = "refuse";
  const Finished refused = Run({"--class", "batch"}, "echo ${CUDA_MPS_PIPE_DIRECTORY-none}");
  EXPECT_EQ(refused.exit_status, 0);
  EXPECT_EQ(refused.out, "none\n");
  EXPECT_THAT(refused.err, AllOf(HasSubstr("time slicing: the MPS daemon of GPU 0 does not start"),
                                 HasSubstr("the GPU is not to be had")));
  ExpectNothingLeft();
  environment_["FAKE_MPS_FAULT"] = "mute";
  const Finished mute = Run({"--class", "batch"}, "true");
  EXPECT_EQ(mute.exit_status, 0);
  EXPECT_THAT(mute.err, HasSubstr("did not answer 'get_server_list'"));
  ExpectNothingLeft();
}

TEST_F(RunMpsTest, DaemonThatKeepsDyingIsGivenUp) {
  environment_["FAKE_MPS_FAULT"] = "brief";
  RunningProgram run = Start();
  ASSERT_TRUE(run.AwaitOutput("ready"));
  EXPECT_TRUE(run.AwaitOutput("is gone and cannot be started again: it died 3 times"));
  EXPECT_LE(Starts().size(), 4U);
  Release();
  EXPECT_EQ(run.Wait().exit_status, 0);
  ExpectNothingLeft();
}

TEST_F(RunMpsTest, DaemonThatDoesNotWantToEndIsKilled) {
  environment_["FAKE_MPS_FAULT"] = "deaf";
  EXPECT_EQ(Run({"--class", "batch"}, "true").exit_status, 0);
  ExpectNothingLeft();
}

TEST_F(RunMpsTest, FolderThatOthersMayEnterIsRefused) {
  fs::create_directory(node_.Path("run/divvy"));
  chmod(node_.Path("run/divvy").c_str(), 0755);
  const Finished done = Run({"--class", "batch"}, "true");
  EXPECT_EQ(done.exit_status, 0);
  EXPECT_THAT(done.err, HasSubstr("that nobody else may enter (mode 0700)"));
  EXPECT_THAT(Starts(), IsEmpty());
}

TEST_F(RunMpsTest, GpuIsChosenByIndexOrUuid) {
  environment_["DIVVY_NVML"] = NVML_SIM_LIBRARY;
  node_.Sim("init", {"--gpus", "H200-141GB:2"});
  const Finished list = RunProgram({DIVVY_PATH, "gpus"}, environment_);
  const std::size_t second = list.out.find("GPU-", list.out.find("GPU 1"));
  ASSERT_NE(second, std::string::npos) << list.out;
  const std::string uuid = list.out.substr(second, 40);

  const Finished any = Run({"--class", "batch"}, "true");
  EXPECT_THAT(any.err, HasSubstr("time slicing: the job sees 2 GPUs"));
  const Finished by_index = Run({"--class", "batch", "--gpu", "1"}, "echo $CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(by_index.out, uuid + "\n");
  EXPECT_EQ(by_index.err, "divvy: MPS (daemon of GPU 1 started)\n");
  ExpectNothingLeft();
  EXPECT_THAT(Starts().back(), HasSubstr(uuid));
  environment_["CUDA_VISIBLE_DEVICES"] = uuid.substr(0, 12);
  EXPECT_EQ(Run({"--class", "batch"}, "echo $CUDA_VISIBLE_DEVICES").out, uuid + "\n");
  const Finished wrong = Run({"--class", "batch", "--gpu", "7"}, "true");
  EXPECT_EQ(wrong.exit_status, 2);
  EXPECT_THAT(wrong.err, HasSubstr("--gpu: '7' names no GPU of this node"));
  ExpectNothingLeft();
}

TEST_F(RunMpsTest, MigInstancesHaveDaemonsOfTheirOwnAndACutGpuHasNone) {
  environment_["DIVVY_NVML"] = NVML_SIM_LIBRARY;
  node_.Sim("init", {"--gpus", "H200-141GB+mig"});
  node_.Sim("create", {"--gpu", "0", "--profile", "3g.71gb", "--start", "0"});
  node_.Sim("create", {"--gpu", "0", "--profile", "3g.71gb", "--start", "4"});
  const Finished list = RunProgram({DIVVY_PATH, "gpus"}, environment_);
  const std::size_t at = list.out.find("MIG-");
  ASSERT_NE(at, std::string::npos) << list.out;
  const std::string uuid = list.out.substr(at, 40);

  EXPECT_THAT(Run({"--class", "batch"}, "true").err,
              HasSubstr("time slicing: GPU 0 is cut by MIG; choose an instance with --gpu"));
  const Finished whole = Run({"--class", "batch", "--gpu", "0"}, "true");
  EXPECT_EQ(whole.exit_status, 2);
  EXPECT_THAT(whole.err, AllOf(HasSubstr("GPU 0 is cut by MIG"), HasSubstr(uuid)));
  const Finished instance = Run({"--class", "batch", "--gpu", uuid},
                                "echo $CUDA_VISIBLE_DEVICES $CUDA_MPS_PIPE_DIRECTORY");
  EXPECT_EQ(instance.out, uuid + " " + node_.Path("run") + "/divvy/mps-" + uuid + "/pipe\n");
  EXPECT_THAT(Starts().back(), HasSubstr(uuid));
  ExpectNothingLeft();
}

}  // namespace
}  // namespace divvy::test
