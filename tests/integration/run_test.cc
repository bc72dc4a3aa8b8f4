// `divvy run` as users run it, with small shell commands as jobs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gate/board.h"
#include "run_fixture.h"

namespace divvy::test {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(RunTest, LatencyJobSeesItsSettings) {
  const Finished done = Run({"--class", "latency", "--slo", "1.5ms", "--memory", "1.5GiB", "--name",
                             "my job", "--report", node_.Path("r"), "--no-mps"},
                            "env");
  EXPECT_EQ(done.exit_status, 0) << done.err;
  EXPECT_THAT(done.out,
              AllOf(HasSubstr("DIVVY_CLASS=latency\n"), HasSubstr("DIVVY_SLO_US=1500\n"),
                    HasSubstr("DIVVY_MEMORY_BYTES=1610612736\n"), HasSubstr("DIVVY_NAME=my job\n"),
                    HasSubstr("DIVVY_REPORT=" + node_.Path("r") + "\n"),
                    HasSubstr("LD_PRELOAD=" IDLE_GATE_LIBRARY "\n")));
  EXPECT_THAT(done.out, AllOf(Not(HasSubstr("DIVVY_PROTECT")), Not(HasSubstr("DIVVY_WEIGHT")),
                              Not(HasSubstr("CUDA_MPS_CLIENT_PRIORITY"))));
  EXPECT_EQ(done.err,
            "divvy: time slices of its own, for which batch jobs are interrupted; MPS is left to "
            "them\n");
}

TEST_F(RunTest, ProtectionIsTightUnlessSaidOtherwise) {
  EXPECT_EQ(Run({"--class", "latency", "--no-mps"}, "echo $DIVVY_PROTECT").out, "tight\n");
  EXPECT_EQ(
      Run({"--class", "latency", "--protect", "balanced", "--no-mps"}, "echo $DIVVY_PROTECT").out,
      "balanced\n");
  EXPECT_EQ(Run({"--class", "batch", "--no-mps"}, "echo ${DIVVY_PROTECT-none}").out, "none\n");
}

TEST_F(RunTest, BatchJobInsideALatencyJobIsABatchJob) {
  environment_["DIVVY_SLO_US"] = "5";
  environment_["DIVVY_PROTECT"] = "tight";
  environment_["DIVVY_APART"] = "1";
  environment_["DIVVY_MPS"] = "1";
  environment_["LD_PRELOAD"] = "libm.so.6";
  environment_["ASAN_OPTIONS"] = "verify_asan_link_order=0";
  const Finished done = Run({"--class", "batch", "--weight", "2.5", "--report", "--no-mps"}, "env");
  EXPECT_THAT(done.out, AllOf(HasSubstr("DIVVY_CLASS=batch\n"), HasSubstr("DIVVY_WEIGHT=250\n"),
                              HasSubstr("DIVVY_REPORT=/proc/"),
                              HasSubstr("LD_PRELOAD=" IDLE_GATE_LIBRARY ":libm.so.6\n"),
                              Not(HasSubstr("DIVVY_SLO_US")), Not(HasSubstr("DIVVY_PROTECT")),
                              Not(HasSubstr("DIVVY_APART")), Not(HasSubstr("DIVVY_MPS="))));
  EXPECT_THAT(done.err, StartsWith("divvy: time slicing: --no-mps was given\n"));
}

TEST_F(RunTest, LibraryIsThereOnceInARunInsideOfARun) {
  environment_["ASAN_OPTIONS"] = "verify_asan_link_order=0";
  const std::string inner =
      std::string(DIVVY_PATH) + " run --class batch --no-mps -- sh -c 'echo $LD_PRELOAD'";
  EXPECT_EQ(Run({"--class", "batch", "--no-mps"}, inner).out, IDLE_GATE_LIBRARY "\n");
  environment_["LD_PRELOAD"] = "libm.so.6";
  EXPECT_EQ(Run({"--class", "batch", "--no-mps"}, inner).out, IDLE_GATE_LIBRARY ":libm.so.6\n");
}

// What tells of launches is in the job's processes: of one that it is not in, nobody tells.
TEST_F(RunTest, ReportSaysThatNobodyReported) {
  const std::vector<std::string> words{"--class", "batch", "--no-mps", "--report"};
  EXPECT_THAT(Run(words, "true").err, HasSubstr("no process of this job told of launches"));
  // Of what has no size nobody can say whether somebody did.
  EXPECT_THAT(Run({"--class", "batch", "--no-mps", "--report", "/dev/stderr"}, "true").err,
              Not(HasSubstr("no process")));
  const std::string told = "echo divvy: 3 kernels >>$DIVVY_REPORT";
  const std::string err = Run(words, told).err;
  EXPECT_THAT(err, EndsWith("was given\ndivvy: 3 kernels\n"));
  // And so in a file, to which is added.
  const std::string file = node_.Path("report");
  for (const char* const job : {"true", told.c_str(), "true"})
    Run({"--class", "batch", "--no-mps", "--report", file}, job);
  EXPECT_THAT(ReadFile(file), AllOf(StartsWith("divvy: no process"),
                                    HasSubstr("\ndivvy: 3 kernels\ndivvy: no process")));
  // One that is put aside meanwhile is not what was written to.
  const std::string aside = node_.Path("report.1");
  const std::string before = ReadFile(file);
  Run({"--class", "batch", "--no-mps", "--report", file},
      "mv $DIVVY_REPORT " + aside + "; echo divvy: 4 kernels >$DIVVY_REPORT");
  EXPECT_EQ(ReadFile(aside), before);
  EXPECT_EQ(ReadFile(file), "divvy: 4 kernels\n");
}

TEST_F(RunTest, FilesThatAreNoneAreNamedBeforeTheJobBegins) {
  const auto refused = [&](const std::string& option, const std::string& path) {
    const Finished done = Run({"--class", "batch", "--no-mps", option, path}, "echo ran");
    EXPECT_EQ(done.out, "") << option << " " << path;
    EXPECT_NE(done.exit_status, 0);
    EXPECT_THAT(done.err, AllOf(HasSubstr(option), HasSubstr(path)));
    return done.err;
  };
  EXPECT_THAT(refused("--report", node_.Path("")), HasSubstr("Is a directory"));
  EXPECT_THAT(refused("--report", "/nonexistent/report"), HasSubstr("No such file"));
  EXPECT_THAT(refused("--ops", "/tmp"), HasSubstr("is a folder"));
  const std::string empty = node_.Path("empty");
  std::ofstream(empty).close();
  EXPECT_THAT(refused("--ops", empty), HasSubstr("has a heading"));
}

TEST_F(RunTest, WhatCannotBeCheckedOrHasNoEffectIsSaid) {
  environment_["DIVVY_NVML"] = "/nonexistent/nvml.so";
  environment_["PATH"] = "/usr/bin:/bin";
  EXPECT_THAT(Run({"--class", "batch", "--no-mps", "--gpu", "5"}, "true").err,
              AllOf(HasSubstr("--gpu 5 was not checked"), HasSubstr("/nonexistent/nvml.so")));
  EXPECT_THAT(Run({"--class", "latency", "--mps"}, "true").err, HasSubstr("--mps has no effect"));
}

TEST_F(RunTest, ThreadsOfALatencyJobAreWokenOnTime) {
  const std::string slack = "(cat /proc/self/timerslack_ns)";
  const std::string ours = ReadFile("/proc/self/timerslack_ns");
  ASSERT_NE(ours, "1000\n");
  EXPECT_EQ(Run({"--class", "latency", "--slo", "5ms", "--no-mps"}, slack).out, "1000\n");
  EXPECT_EQ(Run({"--class", "batch", "--no-mps"}, slack).out, ours);
}

TEST_F(RunTest, WordsOfTheJobAreItsOwn) {
  const std::vector<std::string> words = {"[a,b]", "", "--class", "a b", "--", "{x}", "run", "%%"};
  std::vector<std::string> job = {"printf", "<%s>"};
  job.insert(job.end(), words.begin(), words.end());
  const Finished done = RunProgram(Words({"--class", "batch", "--no-mps"}, job), environment_);
  EXPECT_EQ(done.out, "<[a,b]><><--class><a b><--><{x}><run><%%>");
}

TEST_F(RunTest, EndsAsTheJobEnds) {
  const std::vector<std::string> batch = {"--class", "batch", "--no-mps"};
  EXPECT_EQ(Run(batch, "exit 7").exit_status, 7);
  for (const int signal : {SIGKILL, SIGSEGV, SIGTERM}) {
    EXPECT_EQ(Run(batch, "kill -" + std::to_string(signal) + " $$").signal, signal);
  }
  const Finished missing = RunProgram(Words(batch, {"no-such-program"}), environment_);
  EXPECT_EQ(missing.exit_status, 127);
  EXPECT_THAT(missing.err, HasSubstr("cannot run 'no-such-program': No such file"));
  const Finished folder = RunProgram(Words(batch, {node_.dir()}), environment_);
  EXPECT_EQ(folder.exit_status, 126);
  ExpectNothingLeft();
}

TEST_F(RunTest, WrongCommandLinesAreExplained) {
  struct Case {
    std::vector<std::string> options;
    std::string message;
  };
  for (const Case& c : std::vector<Case>{
           {{"--class", "latency", "--slo", "1ms", "--protect", "off"}, "exclude each other"},
           {{"--class", "batch", "--slo", "1ms"}, "--slo is for latency jobs"},
           {{"--class", "batch", "--protect", "off"}, "--protect is for latency jobs"},
           {{"--class", "latency", "--weight", "2"}, "--weight is for batch jobs"},
           {{"--class", "batch", "--weight", "0"}, "from 0.01 to 100"},
           {{"--class", "latency", "--slo", "20"}, "such as 20ms"},
           {{"--class", "batch", "--memory", "20"}, "such as 20GiB"},
           {{"--class", "batch", "--memory", "-1GiB"}, "such as 20GiB"},
           {{"--class", "batch", "--sm-percent", "40", "--no-mps"}, "is a setting of MPS"},
           {{"--class", "latency", "--mps", "--no-mps"}, "--mps and --no-mps exclude each other"},
           {{"--class", "batch", "--name", std::string(48, 'x')}, "at most 47 bytes"},
           {{"--class", "batch", "--library", "/nonexistent.so"}, "there is no file"},
           {{"--class", "batch", "--memory", ""}, "--memory: a value is missing"},
           {{"--class", "batch", "--gpu", ""}, "--gpu: a value is missing"},
           {{"--class", "batch", "--name=", "--no-mps"}, "--name: a value is missing"},
           {{"--class", "batch", "--device", "0"}, "divvy run has no option '--device'"},
           {{"--class", "latency", "--slo", ""}, "--slo: a value is missing"},
           {{"--class", "batch", "python"}, "come after two dashes"}}) {
    const Finished done = Run(c.options, "true");
    EXPECT_EQ(done.exit_status, 2) << c.message;
    EXPECT_THAT(done.err, HasSubstr(c.message));
  }
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{"-c", "1"}, {"train.py", "--epochs", "3"}}) {
    std::vector<std::string> words{DIVVY_PATH, "run", "--class", "batch", "python"};
    words.insert(words.end(), options.begin(), options.end());
    EXPECT_THAT(RunProgram(words, environment_).err, HasSubstr("two dashes: divvy run -- python"));
  }
  const Finished nothing = RunProgram({DIVVY_PATH, "run", "--class", "batch"}, environment_);
  EXPECT_EQ(nothing.exit_status, 2);
  EXPECT_THAT(nothing.err, HasSubstr("comes after two dashes"));
}

TEST_F(RunTest, LibraryThatCannotBePreloadedIsRefused) {
  const Finished spaced = Run({"--class", "batch", "--library", node_.Write("a b.so", "")}, "true");
  EXPECT_EQ(spaced.exit_status, 2);
  EXPECT_THAT(spaced.err, HasSubstr("no space or colon"));
  const std::string gate = ReadFile(IDLE_GATE_LIBRARY);
  for (const std::string& other :
       {node_.Write("text.so", std::string(1000, 'x')), std::string(DIVVY_PATH),
        std::string(FAULTY_FILES_LIBRARY), std::string(GATE_USER_LIBRARY),
        node_.Write("cut.so", gate.substr(0, gate.size() / 2)), std::string("/proc/kmsg")}) {
    const Finished wrong = Run({"--class", "batch", "--library", other}, "true");
    EXPECT_EQ(wrong.exit_status, 2) << other;
    EXPECT_THAT(wrong.err, HasSubstr("is not the gate"));
  }
}

TEST_F(RunTest, SignalsReachTheJob) {
  for (const auto& [name, signal] : std::map<std::string, int>{{"TERM", SIGTERM},
                                                               {"INT", SIGINT},
                                                               {"HUP", SIGHUP},
                                                               {"USR1", SIGUSR1},
                                                               {"QUIT", SIGQUIT}}) {
    RunningProgram run = Start({"--class", "batch", "--no-mps"}, "trap 'exit 3' " + name + ";");
    ASSERT_TRUE(run.AwaitOutput("ready"));
    run.Signal(signal);
    EXPECT_EQ(run.Wait().exit_status, 3) << name;
  }
}

TEST_F(RunTest, JobThatDoesNotMindSignalsDiesByThemAndSoDoesTheRun) {
  RunningProgram run = Start({"--class", "batch", "--no-mps"});
  ASSERT_TRUE(run.AwaitOutput("ready"));
  run.Signal(SIGTERM);
  EXPECT_EQ(run.Wait().signal, SIGTERM);
  ExpectNothingLeft();
}

// A run on a terminal of its own.
class RunOnTerminal {
 public:
  RunOnTerminal(std::vector<std::string> words,
                const std::map<std::string, std::string>& variables) {
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = forkpty(&terminal_, nullptr, nullptr, nullptr);
    if (pid_ == 0) {
      execv(argv[0], argv.data());
      _exit(127);
    }
  }
  ~RunOnTerminal() { close(terminal_); }
  RunOnTerminal(const RunOnTerminal&) = delete;
  RunOnTerminal& operator=(const RunOnTerminal&) = delete;

  bool Await(const std::string& text) {
    char buffer[512];
    while (seen_.find(text) == std::string::npos) {
      const ssize_t got = read(terminal_, buffer, sizeof buffer);
      if (got <= 0) return false;
      seen_.append(buffer, static_cast<std::size_t>(got));
    }
    return true;
  }
  // Types control-C and waits for its echo, which comes after the signal is sent.
  bool Interrupt() { return write(terminal_, "\x03", 1) == 1 && Await("^C"); }
  void Signal(int signal) const { kill(pid_, signal); }
  int Wait() const {
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  const std::string& seen() const { return seen_; }

 private:
  pid_t pid_ = -1;
  int terminal_ = -1;
  std::string seen_;
};

constexpr const char* kTrapping =
    "trap 'echo hit' INT; trap 'echo over; exit 5' TERM; echo ready; while :; do sleep 0.01; done";

TEST_F(RunTest, InterruptOfTheTerminalReachesTheJobAndDoesNotEndTheRun) {
  RunOnTerminal run(Words({"--class", "batch", "--no-mps"}, {"sh", "-c", kTrapping}), environment_);
  ASSERT_TRUE(run.Await("ready"));
  ASSERT_TRUE(run.Interrupt());
  ASSERT_TRUE(run.Await("hit"));
  run.Signal(SIGTERM);
  EXPECT_TRUE(run.Await("over"));
  EXPECT_EQ(run.Wait(), 5);
}

TEST_F(RunTest, InterruptOfTheTerminalIsNotPassedOn) {
  // Two at once are one to a job, so look at a job that the terminal does not reach.
  RunOnTerminal run(Words({"--class", "batch", "--no-mps"}, {"setsid", "sh", "-c", kTrapping}),
                    environment_);
  ASSERT_TRUE(run.Await("ready"));
  ASSERT_TRUE(run.Interrupt());
  run.Signal(SIGTERM);
  EXPECT_TRUE(run.Await("over"));
  EXPECT_EQ(run.Wait(), 5);
  EXPECT_EQ(CountOf(run.seen(), "hit"), 0) << run.seen();
}

TEST_F(RunTest, KilledRunTakesGrandchildrenAndThoseWhoLeftTheSessionAlong) {
  RunningProgram run =
      Start({"--class", "batch", "--no-mps"}, "sleep 1000 & setsid sleep 1000 & (sleep 1000 &) ;");
  ASSERT_TRUE(run.AwaitOutput("ready"));
  EXPECT_TRUE(Eventually([&] { return Processes("sleep 1000").size() == 3; }));
  run.Signal(SIGKILL);
  EXPECT_EQ(run.Wait().signal, SIGKILL);
  ExpectNothingLeft();
}

TEST_F(RunTest, WhatAJobLeavesBehindByItselfIsLeftAlone) {
  const Finished done =
      Run({"--class", "batch", "--no-mps"}, "sleep 1000 >/dev/null 2>&1 & echo done");
  EXPECT_EQ(done.out, "done\n");
  EXPECT_EQ(Processes("sleep 1000").size(), 1U);
}

TEST_F(RunTest, BoardsOfTheDeadAreRemovedWhenAJobEndsAndThoseOfTheLivingStay) {
  const auto join = [&](unsigned char gpu) {
    const unsigned char uuid[16] = {gpu};
    char path[512];
    char error[512] = {};
    gate::BoardPath(node_.Path("boards").c_str(), uuid, path, sizeof path);
    gate::Board* const board = gate::OpenBoard(path, error, sizeof error);
    EXPECT_NE(board, nullptr) << error;
    gate::JobIdentity job;
    job.job_class = gate::JobClass::kBatch;
    EXPECT_EQ(gate::Join(board, job), 0);
    return std::pair(board, std::string(path));
  };
  const auto [living, living_path] = join(1);
  const auto [dead, dead_path] = join(2);
  dead->slots[0].start_time += 1;  // As if the pid had been used again.
  const std::string other = node_.Path("boards/divvy-somebody-else");
  std::ofstream(other) << "x";
  EXPECT_EQ(Run({"--class", "batch", "--no-mps"}, "true").exit_status, 0);
  EXPECT_TRUE(std::filesystem::exists(living_path));
  EXPECT_FALSE(std::filesystem::exists(dead_path));
  EXPECT_TRUE(std::filesystem::exists(other));
  gate::CloseBoard(living);
  gate::CloseBoard(dead);
}

TEST_F(RunTest, WithoutMpsTheReasonIsSaid) {
  environment_["PATH"] = "/usr/bin:/bin";
  const Finished absent = Run({"--class", "batch", "--sm-percent", "40"}, "true");
  EXPECT_EQ(absent.exit_status, 0);
  EXPECT_THAT(absent.err, HasSubstr("time slicing: nvidia-cuda-mps-control is not on PATH; "
                                    "--sm-percent 40 has no effect\n"));
  environment_["CUDA_MPS_PIPE_DIRECTORY"] = "/users/own";
  const Finished own = Run({"--class", "batch"}, "echo $CUDA_MPS_PIPE_DIRECTORY");
  EXPECT_EQ(own.out, "/users/own\n");
  EXPECT_THAT(own.err, HasSubstr("MPS (CUDA_MPS_PIPE_DIRECTORY=/users/own was set already"));
  EXPECT_THAT(own.err, HasSubstr("there is no such folder now"));
  // Or the job would join it after all.
  EXPECT_NE(Run({"--class", "batch", "--no-mps"}, "echo $CUDA_MPS_PIPE_DIRECTORY").out,
            "/users/own\n");
}

}  // namespace
}  // namespace divvy::test
