#include "run_fixture.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

namespace divvy::test {
namespace {

namespace fs = std::filesystem;

constexpr int kTries = 6000;
constexpr int kTryMs = 5;
// Ends a test that waits for output which never comes.
constexpr unsigned kMostSeconds = 60;

// Every process whose environment has `text`.
std::vector<Process> ProcessesWith(const std::string& text) {
  std::vector<Process> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (ReadFile(entry.path() / "environ").find(text) == std::string::npos) continue;
    std::string command = ReadFile(entry.path() / "cmdline");
    std::ranges::replace(command, '\0', ' ');
    found.push_back({std::stoi(name), command});
  }
  return found;
}

}  // namespace

bool Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < kTries; ++i) {
    if (condition()) return true;
    poll(nullptr, 0, kTryMs);
  }
  return false;
}

// Not a stream: those throw when a process ends while its file in /proc is read.
std::string ReadFile(const std::string& path) {
  std::string text;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return text;
  char buffer[4096];
  for (ssize_t got = 0; (got = read(fd, buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(got));
  }
  close(fd);
  return text;
}

RunTest::RunTest() {
  // A shell cannot trap what was ignored before it, as in the background of a script.
  for (const int signal : {SIGINT, SIGQUIT, SIGHUP, SIGTERM}) std::signal(signal, SIG_DFL);
  alarm(kMostSeconds);
  for (const char* name :
       {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_MPS_PIPE_DIRECTORY", "LD_PRELOAD"}) {
    unsetenv(name);
  }
  fs::create_directory(node_.Path("run"));
  fs::create_directory(node_.Path("boards"));
  environment_ = node_.Environment();
  environment_["DIVVY_NVML"] = "/nonexistent/libnvidia-ml.so.1";
  environment_["DIVVY_GATE_LIBRARY"] = IDLE_GATE_LIBRARY;
  environment_["DIVVY_BOARD_DIR"] = node_.Path("boards");
  environment_["DIVVY_MPS_PACE"] = "0.05";
  environment_["XDG_RUNTIME_DIR"] = node_.Path("run");
  environment_["FAKE_MPS_LOG"] = node_.Path("mps.log");
  environment_["PATH"] = FAKE_MPS_DIRECTORY ":/usr/bin:/bin";
}

RunTest::~RunTest() {
  // A test that failed must not leave to the machine what it complains of.
  for (const Process& process : Processes()) kill(process.pid, SIGKILL);
  alarm(0);
}

std::vector<std::string> RunTest::Words(const std::vector<std::string>& options,
                                        const std::vector<std::string>& job) {
  std::vector<std::string> words = {DIVVY_PATH, "run"};
  words.insert(words.end(), options.begin(), options.end());
  words.push_back("--");
  words.insert(words.end(), job.begin(), job.end());
  return words;
}

Finished RunTest::Run(const std::vector<std::string>& options, const std::string& script) const {
  return RunProgram(Words(options, {"sh", "-c", script}), environment_);
}

RunningProgram RunTest::Start(const std::vector<std::string>& options,
                              const std::string& before) const {
  std::vector<std::string> words = {"/bin/sh", "-c", "exec \"$@\" 2>&1", "sh"};
  const std::string script =
      before + " echo ready; while [ ! -e " + node_.Path("end") + " ]; do sleep 0.01; done";
  std::ranges::copy(Words(options, {"sh", "-c", script}), std::back_inserter(words));
  return {words, environment_};
}

void RunTest::Release() const { std::ofstream(node_.Path("end")) << ""; }

std::vector<Process> RunTest::Processes(const std::string& command) const {
  std::vector<Process> found = ProcessesWith("XDG_RUNTIME_DIR=" + node_.Path("run"));
  std::erase_if(found, [&](const Process& p) { return !p.command.starts_with(command); });
  return found;
}

std::vector<Process> RunTest::DaemonAndServer() const {
  return Processes(FAKE_MPS_DIRECTORY "/nvidia-cuda-mps-control -f");
}

pid_t RunTest::Daemon() const {
  const std::string state = ReadFile(node_.Path("run") + "/divvy/mps-0/state");
  return state.starts_with("ready ") ? std::stoi(state.substr(6)) : -1;
}

pid_t RunTest::Keeper() const {
  const std::vector<Process> found = Processes("divvy mps-keeper");
  return found.size() == 1 ? found.front().pid : -1;
}

std::vector<std::string> RunTest::Starts() const {
  std::istringstream log(ReadFile(node_.Path("mps.log")));
  std::vector<std::string> lines;
  for (std::string line; std::getline(log, line);) lines.push_back(line);
  return lines;
}

void RunTest::ExpectNothingLeft() const {
  const auto files = [&](const char* name) {
    return std::distance(fs::directory_iterator(node_.Path(name)), fs::directory_iterator());
  };
  if (Eventually(
          [&] { return Processes().empty() && files("run") == 0 && files("boards") == 0; })) {
    return;
  }
  for (const Process& process : Processes()) ADD_FAILURE() << "left behind: " << process.command;
  for (const auto& entry : fs::recursive_directory_iterator(node_.Path("run"))) {
    ADD_FAILURE() << "left behind: " << entry.path();
  }
  EXPECT_EQ(files("boards"), 0);
}

}  // namespace divvy::test
