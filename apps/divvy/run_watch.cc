#include "run_watch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>

#include "gate/board.h"
#include "run_processes.h"

namespace divvy::app {
namespace {

constexpr char kDismissed = '.';
constexpr int kMostRounds = 100;
constexpr int kWatchPauseMs = 5;

// Waits until the other side goes. True if it said that all is well.
bool ListenToEnd(int fd) {
  bool dismissed = false;
  char byte = 0;
  while (true) {
    const ssize_t got = read(fd, &byte, 1);
    if (got == 0) return dismissed;
    if (got == 1) dismissed = byte == kDismissed;
  }
}

[[noreturn]] void Watch(int fd, const std::string& run_id,
                        const std::function<void()>& afterwards) {
  setsid();  // What comes from the terminal is not for us.
  prctl(PR_SET_NAME, "divvy-watch");
  for (const int signal : {SIGHUP, SIGINT, SIGTERM}) std::signal(signal, SIG_IGN);
  // Whoever reads what the job writes must not wait for us.
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null, stream);
  if (!ListenToEnd(fd)) {
    KillProcessesOf(run_id);
    afterwards();
  }
  _exit(0);
}

}  // namespace

void KillProcessesOf(const std::string& run_id) {
  // Again until none is left: one may fork while we go through the others.
  for (int round = 0; round < kMostRounds && KillMarked(kRunVariable, run_id) > 0; ++round) {
    poll(nullptr, 0, kWatchPauseMs);
  }
}

std::string MakeRunId() {
  return fmt::format("{}-{}-{}", getpid(), gate::StartTime(getpid()), gate::NowNs());
}

std::string MarkOfRun(const std::string& run_id) {
  const char* const outer = std::getenv(kRunVariable);
  return outer == nullptr ? run_id : fmt::format("{},{}", outer, run_id);
}

RunWatch::RunWatch(std::string run_id, std::function<void()> afterwards) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return;  // The job runs all the same.
  watcher_ = fork();
  if (watcher_ == 0) {
    close(ends[1]);
    Watch(ends[0], run_id, afterwards);
  }
  close(ends[0]);
  line_ = ends[1];
}

RunWatch::~RunWatch() {
  if (line_ >= 0) close(line_);
}

void RunWatch::Dismiss() {
  if (line_ < 0) return;
  // If nobody listens any more there is nobody to warn either.
  const ssize_t told = write(line_, &kDismissed, 1);
  static_cast<void>(told);
  close(line_);
  line_ = -1;
  // Where nobody reaps orphans it would stay as a zombie.
  for (int i = 0; i < kMostRounds && waitpid(watcher_, nullptr, WNOHANG) == 0; ++i) {
    poll(nullptr, 0, kWatchPauseMs);
  }
}

}  // namespace divvy::app
