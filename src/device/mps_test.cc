#include "device/mps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/check.h"

namespace divvy::device {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using ::testing::HasSubstr;

// Bounds a wait for what is certain to come; only a broken test lasts so long.
constexpr int kManyTries = 5000;

template <typename Condition>
bool Eventually(Condition condition) {
  for (int i = 0; i < kManyTries; ++i) {
    if (condition()) return true;
    poll(nullptr, 0, 2);
  }
  return false;
}

bool IsGone(pid_t pid) { return kill(pid, 0) != 0; }

class MpsTest : public ::testing::Test {
 protected:
  MpsTest() {
    std::string pattern = ::testing::TempDir() + "/divvy-mps-XXXXXX";
    const char* const made = mkdtemp(pattern.data());
    Check(made != nullptr, "a temporary folder is to be had");
    dir_ = made;
    fs::create_directory(dir_ / "pipe");
    fs::create_directory(dir_ / "log");
  }
  ~MpsTest() override { fs::remove_all(dir_); }

  // A program of NVIDIA's name with a body of ours.
  MpsControl Control(const std::string& body) const {
    const fs::path program = dir_ / "nvidia-cuda-mps-control";
    std::ofstream(program) << "#!/bin/sh\n" << body << "\n";
    chmod(program.c_str(), S_IRWXU);
    return {program, {dir_ / "pipe", dir_ / "log"}};
  }

  std::string Read(const std::string& name) const {
    std::ifstream file(dir_ / name);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  fs::path dir_;
};

TEST_F(MpsTest, CommandGoesToStandardInputOfTheDaemonThatIsMeant) {
  const MpsControl control = Control("read line; echo \"$line at $CUDA_MPS_PIPE_DIRECTORY\"");
  const auto answer = control.Ask("get_server_list", 10s);
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(*answer, "get_server_list at " + (dir_ / "pipe").string() + "\n");
}

TEST_F(MpsTest, RefusalSaysWhatTheDaemonSaid) {
  const auto answer = Control("echo Cannot find the daemon; exit 1").Ask("quit", 10s);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(answer.error().message, HasSubstr("Cannot find the daemon"));
}

TEST_F(MpsTest, StuckDaemonIsToldFromOneThatRefusesAndItsAskerIsKilled) {
  const auto answer =
      Control("echo $$ > " + (dir_ / "asker").string() + "; exec sleep 1000").Ask("quit", 300ms);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kUnavailable);
  const std::string asker = Read("asker");
  if (!asker.empty()) {
    EXPECT_TRUE(IsGone(std::stoi(asker)));
  }
}

TEST_F(MpsTest, AskerThatClosesItsOutputButStaysIsStuckToo) {
  const auto answer = Control("exec >&- 2>&-; exec sleep 1000").Ask("quit", 300ms);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kUnavailable);
}

TEST_F(MpsTest, DaemonRunsInTheForegroundForItsDevicesAndWhatItSaysIsKept) {
  const MpsControl control =
      Control("echo \"$1 $CUDA_VISIBLE_DEVICES $CUDA_MPS_LOG_DIRECTORY\"; echo last");
  const auto daemon = control.Start("GPU-1");
  ASSERT_TRUE(daemon) << daemon.error().message;
  ASSERT_EQ(waitpid(*daemon, nullptr, 0), *daemon);
  EXPECT_EQ(Read("log/foreground.log"), "-f GPU-1 " + (dir_ / "log").string() + "\nlast\n");
  EXPECT_EQ(control.LastWords(), "last");
}

TEST_F(MpsTest, DaemonHasTheVariablesThatItIsGivenInPlaceOfOurs) {
  setenv("DIVVY_MPS_TEST", "ours", 1);
  const MpsControl control = Control("echo \"$DIVVY_MPS_TEST $CUDA_VISIBLE_DEVICES\"");
  const auto daemon = control.Start("GPU-1", {{"DIVVY_MPS_TEST", "its own"}});
  unsetenv("DIVVY_MPS_TEST");
  ASSERT_TRUE(daemon) << daemon.error().message;
  ASSERT_EQ(waitpid(*daemon, nullptr, 0), *daemon);
  EXPECT_EQ(control.LastWords(), "its own GPU-1");
}

TEST_F(MpsTest, DaemonDiesWithItsStarter) {
  const MpsControl control = Control("exec sleep 1000");
  std::array<int, 2> told{};
  ASSERT_EQ(pipe(told.data()), 0);
  const pid_t starter = fork();
  if (starter == 0) {
    const auto started = control.Start("0");
    const pid_t daemon = started ? *started : -1;
    Check(write(told[1], &daemon, sizeof daemon) == sizeof daemon, "a pipe takes a number");
    pause();
    _exit(0);
  }
  pid_t daemon = 0;
  ASSERT_EQ(read(told[0], &daemon, sizeof daemon), static_cast<ssize_t>(sizeof daemon));
  close(told[0]);
  close(told[1]);
  ASSERT_GT(daemon, 0);
  ASSERT_FALSE(IsGone(daemon));
  kill(starter, SIGKILL);
  waitpid(starter, nullptr, 0);
  EXPECT_TRUE(Eventually([&] {
    std::ifstream file("/proc/" + std::to_string(daemon) + "/stat");
    std::string text;
    std::getline(file, text);
    return text.empty() || text.find(") Z ") != std::string::npos;
  }));
}

TEST_F(MpsTest, ProgramIsFoundOnThePathIfItMayBeRun) {
  static_cast<void>(Control("true"));
  const std::string found = dir_ / "nvidia-cuda-mps-control";
  EXPECT_EQ(FindMpsControl("/nonexistent:" + dir_.string()), found);
  EXPECT_EQ(FindMpsControl("/nonexistent::"), std::nullopt);
  chmod(found.c_str(), 0);
  if (geteuid() != 0) {
    EXPECT_EQ(FindMpsControl(dir_.string()), std::nullopt);
  }
  fs::remove(found);
  fs::create_directory(found);
  EXPECT_EQ(FindMpsControl(dir_.string()), std::nullopt);
}

TEST(MpsSocketTest, LongDirectoriesDoNotFit) {
  EXPECT_TRUE(FitsSocketNames("/run/user/1000/divvy/mps-GPU-9c1054b9-388e-53e6-85f9-c237a036af06"));
  EXPECT_FALSE(FitsSocketNames("/" + std::string(100, 'x')));
}

}  // namespace
}  // namespace divvy::device
