// The MPS daemons that `divvy run` starts, with a stand-in for NVIDIA's program.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
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
using ::testing::StartsWith;

constexpr const char* kUuid = "GPU-9c1054b9-388e-53e6-85f9-c237a036af06";
constexpr const char* kApartLine =
    "divvy: time slices of its own, for which batch jobs are interrupted; MPS is left to them\n";
// What tells the gate, and CUDA, how the job shares its GPU.
constexpr const char* kHowItShares =
    "echo ${DIVVY_APART-none} ${DIVVY_MPS-none} ${CUDA_MPS_PIPE_DIRECTORY-none} "
    "${CUDA_MPS_CLIENT_PRIORITY-none}";

class RunMpsTest : public RunTest {
 protected:
  // "NAME=VALUE" lines of a process, as it was started.
  static std::string EnvironmentOf(pid_t pid) {
    std::string text = ReadFile("/proc/" + std::to_string(pid) + "/environ");
    std::ranges::replace(text, '\0', '\n');
    return "\n" + text;
  }

  pid_t LastDaemon() const {
    const std::vector<std::string> starts = Starts();
    return starts.empty() ? -1 : std::stoi(starts.back().substr(std::string("start ").size()));
  }

  // A daemon that an administrator has started, until the test ends.
  void StartDaemonOfNode() {
    const std::string pipe = node_.Path("node");
    fs::create_directory(pipe);
    environment_["DIVVY_MPS_NODE_PIPE"] = pipe;
    auto environment = environment_;
    environment["CUDA_MPS_PIPE_DIRECTORY"] = pipe;
    daemon_of_node_ = std::make_unique<RunningProgram>(
        std::vector<std::string>{FAKE_MPS_DIRECTORY "/nvidia-cuda-mps-control", "-f"}, environment);
    ASSERT_TRUE(Eventually([&] { return fs::is_socket(pipe + "/control"); }));
  }

 private:
  std::unique_ptr<RunningProgram> daemon_of_node_;
};

TEST_F(RunMpsTest, ProtectedLatencyJobIsApartAndStartsNoDaemon) {
  for (const std::vector<std::string>& options :
       std::vector<std::vector<std::string>>{{"--class", "latency"},
                                             {"--class", "latency", "--protect", "tight"},
                                             {"--class", "latency", "--protect", "balanced"},
                                             {"--class", "latency", "--no-mps"},
                                             {"--class", "latency", "--no-mps", "--protect", "off"},
                                             {"--class", "latency", "--no-mps", "--slo", "5ms"}}) {
    const Finished done = Run(options, kHowItShares);
    EXPECT_EQ(done.out, "1 none /nonexistent none\n") << ::testing::PrintToString(options);
    EXPECT_EQ(done.err, kApartLine);
  }
  EXPECT_THAT(Starts(), IsEmpty());
  // It needs nothing of NVIDIA's.
  environment_["PATH"] = "/usr/bin:/bin";
  EXPECT_EQ(Run({"--class", "latency"}, kHowItShares).out, "1 none /nonexistent none\n");
  ExpectNothingLeft();
}

TEST_F(RunMpsTest, OtherLatencyJobsAndBatchJobsAreClientsOfOurDaemon) {
  const std::string pipe = node_.Path("run") + "/divvy/mps-0/pipe";
  for (const std::vector<std::string>& options :
       std::vector<std::vector<std::string>>{{"--slo", "5ms"},
                                             {"--slo", "5ms", "--mps"},
                                             {"--protect", "off"},
                                             {"--mps"},
                                             {"--protect", "balanced", "--mps"},
                                             {"--sm-percent", "40"}}) {
    std::vector<std::string> words = {"--class", "latency"};
    words.insert(words.end(), options.begin(), options.end());
    const Finished done = Run(words, kHowItShares);
    EXPECT_EQ(done.out, "none 1 " + pipe + " 0\n") << ::testing::PrintToString(options);
    EXPECT_THAT(done.err, HasSubstr("MPS (daemon of GPU 0"));
  }
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"--class", "batch"}, {"--class", "batch", "--mps"}}) {
    EXPECT_EQ(Run(words, kHowItShares).out, "none 1 " + pipe + " 1\n");
  }
  EXPECT_EQ(Run({"--class", "batch", "--no-mps"}, kHowItShares).out,
            "none none /nonexistent none\n");
  ExpectNothingLeft();
}

TEST_F(RunMpsTest, DaemonOfTheNodeIsUsedByAllUnlessMpsIsRefused) {
  StartDaemonOfNode();
  for (const char* const job_class : {"latency", "batch"}) {
    const Finished done = Run({"--class", job_class}, kHowItShares);
    EXPECT_THAT(done.out, HasSubstr("none none none ")) << job_class;
    EXPECT_THAT(done.err, HasSubstr("MPS (this node's daemon"));
  }
  EXPECT_EQ(Run({"--class", "latency", "--no-mps"}, kHowItShares).out,
            "1 none /nonexistent none\n");
  EXPECT_EQ(Starts().size(), 1U);
}

TEST_F(RunMpsTest, DaemonOfTheUserIsUsedByAllUnlessMpsIsRefused) {
  environment_["CUDA_MPS_PIPE_DIRECTORY"] = "/users/own";
  EXPECT_EQ(Run({"--class", "latency"}, kHowItShares).out, "none none /users/own 0\n");
  EXPECT_EQ(Run({"--class", "batch"}, kHowItShares).out, "none none /users/own 1\n");
  EXPECT_EQ(Run({"--class", "latency", "--no-mps"}, kHowItShares).out,
            "1 none /nonexistent none\n");
  // Switched off, as the job of a run that is apart finds it.
  environment_["CUDA_MPS_PIPE_DIRECTORY"] = "/nonexistent";
  EXPECT_EQ(Run({"--class", "latency"}, kHowItShares).out, "1 none /nonexistent none\n");
  EXPECT_THAT(Run({"--class", "latency", "--mps"}, kHowItShares).out, HasSubstr("none none "));
  EXPECT_THAT(Starts(), IsEmpty());
}

TEST_F(RunMpsTest, RunInsideOfARunSharesByItsOwnOptions) {
  const std::string run = std::string("\n") + DIVVY_PATH + " run --class ";
  const std::string job = std::string(" -- sh -c '") + kHowItShares + "' 2>/dev/null";
  environment_["ASAN_OPTIONS"] = "verify_asan_link_order=0";
  const std::string client = "none 1 " + node_.Path("run") + "/divvy/mps-0/pipe 1\n";
  const std::string apart = "1 none /nonexistent none\n";
  EXPECT_EQ(
      Run({"--class", "latency"}, kHowItShares + run + "batch" + job + run + "latency" + job).out,
      apart + client + apart);
  EXPECT_EQ(Run({"--class", "batch"}, kHowItShares + run + "latency --no-mps" + job).out,
            client + apart);
  EXPECT_EQ(Run({"--class", "batch"}, kHowItShares + run + "latency" + job).out, client + apart)
      << "our own daemon is nobody else's";
  // What the job has set itself stays.
  EXPECT_EQ(
      Run({"--class", "batch"}, "export CUDA_MPS_PIPE_DIRECTORY=/users/own" + run + "batch" + job)
          .out,
      "none none /users/own 1\n");
  // The only device of the daemon is the second one to others.
  const std::string where = "echo $CUDA_MPS_PIPE_DIRECTORY $CUDA_VISIBLE_DEVICES";
  const std::string inside = " -- sh -c '" + where + "' 2>/dev/null";
  const std::string by_daemon = node_.Path("run") + "/divvy/mps-1/pipe 0\n";
  EXPECT_EQ(Run({"--class", "batch", "--gpu", "1"},
                where + run + "batch" + inside + run + "latency" + inside)
                .out,
            by_daemon + by_daemon + "/nonexistent 1\n");
  // What the user had set is there again.
  environment_["CUDA_MPS_PIPE_DIRECTORY"] = "/users/own";
  EXPECT_EQ(Run({"--class", "latency", "--no-mps"}, kHowItShares + run + "batch" + job).out,
            apart + "none none /users/own 1\n");
  ExpectNothingLeft();
}

TEST_F(RunMpsTest, DaemonHasTheGateInItAndItsKeeperHasNot) {
  environment_["CUDA_VISIBLE_DEVICES"] = kUuid;
  // As inside of another run.
  environment_["ASAN_OPTIONS"] = "verify_asan_link_order=0";
  environment_["LD_PRELOAD"] = IDLE_GATE_LIBRARY ":libm.so.6";
  for (const char* const name : {"DIVVY_CLASS", "DIVVY_SLO_US", "DIVVY_PROTECT", "DIVVY_WEIGHT",
                                 "DIVVY_MEMORY_BYTES", "DIVVY_NAME", "DIVVY_REPORT", "DIVVY_OPS",
                                 "DIVVY_LOG", "DIVVY_APART", "DIVVY_MPS", "DIVVY_GPU_UUID"}) {
    environment_[name] = "1";
  }
  RunningProgram run =
      Start({"--class", "batch"}, "echo start_server -uid 0 | nvidia-cuda-mps-control;");
  ASSERT_TRUE(run.AwaitOutput("ready"));
  const std::string keeper = EnvironmentOf(Keeper());
  const std::string boards = "\nDIVVY_BOARD_DIR=" + node_.Path("boards") + "\n";
  const pid_t daemon = LastDaemon();
  ASSERT_GT(daemon, 0);
  EXPECT_THAT(
      EnvironmentOf(daemon),
      AllOf(HasSubstr("\nLD_PRELOAD=" IDLE_GATE_LIBRARY "\n"), HasSubstr("\nDIVVY_CLASS=server\n"),
            HasSubstr(boards), HasSubstr(std::string("\nDIVVY_GPU_UUID=") + kUuid + "\n")));
  EXPECT_THAT(ReadFile("/proc/" + std::to_string(daemon) + "/maps"), HasSubstr(IDLE_GATE_LIBRARY));
  EXPECT_THAT(keeper, AllOf(HasSubstr(boards), Not(HasSubstr("\nLD_PRELOAD="))));
  for (const char* const name : {"SLO_US", "PROTECT", "WEIGHT", "MEMORY_BYTES", "NAME", "REPORT",
                                 "OPS", "LOG", "APART", "MPS", "RUN_ID"}) {
    const std::string variable = std::string("\nDIVVY_") + name + "=";
    EXPECT_THAT(EnvironmentOf(daemon), Not(HasSubstr(variable)));
    EXPECT_THAT(keeper, Not(HasSubstr(variable)));
  }
  EXPECT_THAT(keeper, AllOf(Not(HasSubstr("\nDIVVY_CLASS=")), Not(HasSubstr("\nDIVVY_GPU_UUID="))));
  // One that is started anew by another keeper has it too.
  kill(Keeper(), SIGKILL);
  EXPECT_TRUE(run.AwaitOutput("was started anew"));
  EXPECT_NE(LastDaemon(), daemon);
  EXPECT_THAT(EnvironmentOf(LastDaemon()), HasSubstr("\nLD_PRELOAD=" IDLE_GATE_LIBRARY "\n"));
  Release();
  run.Wait();
  ExpectNothingLeft();
}

TEST_F(RunMpsTest, DaemonOfAGpuWithoutUuidIsAsNvidiaMadeIt) {
  RunningProgram run = Start();
  ASSERT_TRUE(run.AwaitOutput("ready"));
  ASSERT_GT(Daemon(), 0);
  EXPECT_THAT(EnvironmentOf(Daemon()),
              AllOf(HasSubstr("\nCUDA_VISIBLE_DEVICES=0\n"), Not(HasSubstr("\nLD_PRELOAD=")),
                    Not(HasSubstr("\nDIVVY_CLASS=")), Not(HasSubstr("\nDIVVY_GPU_UUID="))));
  Release();
  run.Wait();
}

TEST_F(RunMpsTest, JobThatIsApartComesToTheGpuOfTheDaemon) {
  const std::string device = "echo ${CUDA_VISIBLE_DEVICES-none} ${CUDA_DEVICE_ORDER-none}";
  // Without NVML: the daemon counts by bus, so the job must too.
  EXPECT_EQ(Run({"--class", "latency"}, device).out, "0 PCI_BUS_ID\n");
  environment_["CUDA_VISIBLE_DEVICES"] = "1";
  EXPECT_EQ(Run({"--class", "latency"}, device).out, "1 PCI_BUS_ID\n");
  environment_.erase("CUDA_VISIBLE_DEVICES");
  // Who takes turns stays where it would be without Divvy.
  EXPECT_EQ(Run({"--class", "latency", "--no-mps"}, device).out, "none none\n");

  environment_["DIVVY_NVML"] = NVML_SIM_LIBRARY;
  node_.Sim("init", {"--gpus", "H200-141GB:2"});
  const std::string uuid =
      Run({"--class", "batch", "--gpu", "1"}, "echo $CUDA_VISIBLE_DEVICES").out;
  ASSERT_THAT(uuid, StartsWith("GPU-"));
  EXPECT_EQ(Run({"--class", "latency", "--gpu", "1"}, "echo $CUDA_VISIBLE_DEVICES").out, uuid);
  EXPECT_EQ(Run({"--class", "latency", "--gpu", "1", "--no-mps"}, "echo $CUDA_VISIBLE_DEVICES").out,
            uuid);
  const Finished any = Run({"--class", "latency"},
                           std::string("echo ${CUDA_VISIBLE_DEVICES-none}; ") + kHowItShares);
  EXPECT_EQ(any.out, "none\n1 none /nonexistent none\n");
  EXPECT_THAT(any.err, HasSubstr("time slicing: the job sees 2 GPUs"));
  environment_["CUDA_VISIBLE_DEVICES"] = uuid.substr(0, 12);
  EXPECT_EQ(Run({"--class", "latency"}, "echo $CUDA_VISIBLE_DEVICES").out, uuid);
  ExpectNothingLeft();
}

TEST_F(RunMpsTest, WhereOneProcessMayUseTheGpuAllJobsAreClients) {
  environment_["DIVVY_NVML"] = NVML_SIM_LIBRARY;
  node_.Sim("init", {"--gpus", "H200-141GB", "--compute-mode", "exclusive-process"});
  for (const char* const job_class : {"latency", "batch"}) {
    const Finished done = Run({"--class", job_class}, kHowItShares);
    EXPECT_THAT(done.out, AllOf(StartsWith("none 1 "), HasSubstr("/pipe "))) << job_class;
    EXPECT_EQ(CountOf(done.err, "exclusive-process"), job_class[0] == 'l' ? 1 : 0) << done.err;
  }
  // Nobody shares it otherwise, and that is said.
  const std::string alone = "GPU 0 is in compute mode exclusive-process: nobody else can use it";
  const Finished refused = Run({"--class", "latency", "--no-mps", "--gpu", "0"}, kHowItShares);
  EXPECT_EQ(refused.out, "1 none /nonexistent none\n");
  EXPECT_THAT(refused.err, HasSubstr(alone));
  environment_["PATH"] = "/usr/bin:/bin";
  EXPECT_EQ(Run({"--class", "latency"}, kHowItShares).out, "1 none /nonexistent none\n");
  for (const char* const job_class : {"latency", "batch"}) {
    EXPECT_THAT(Run({"--class", job_class}, "true").err, HasSubstr(alone)) << job_class;
  }
  ExpectNothingLeft();
}

TEST_F(RunMpsTest, GpuThatNobodyMayUseIsRefused) {
  environment_["DIVVY_NVML"] = NVML_SIM_LIBRARY;
  node_.Sim("init", {"--gpus", "H200-141GB", "--compute-mode", "prohibited"});
  const Finished done = Run({"--class", "batch"}, "echo ran");
  EXPECT_NE(done.exit_status, 0);
  EXPECT_EQ(done.out, "");
  EXPECT_THAT(done.err, HasSubstr("GPU 0 is in compute mode prohibited"));
  EXPECT_EQ(Run({"--class", "batch", "--no-mps"}, "echo ran").out, "ran\n");
  ExpectNothingLeft();
}

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
  RunningProgram second = Start({"--class", "latency", "--mps"});
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

TEST_F(RunMpsTest, DaemonThatDiesBeforeItIsReadyAgainIsStartedOnceMore) {
  environment_["FAKE_MPS_FAULT"] = "faint";
  RunningProgram run = Start();
  ASSERT_TRUE(run.AwaitOutput("ready"));
  kill(Daemon(), SIGKILL);
  EXPECT_TRUE(run.AwaitOutput("was started anew; this job cannot move to the new one"));
  EXPECT_EQ(Starts().size(), 3U);
  Release();
  EXPECT_EQ(run.Wait().exit_status, 0);
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
  // Soon is within a second then, also on a busy machine.
  environment_["DIVVY_MPS_PACE"] = "0.2";
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
