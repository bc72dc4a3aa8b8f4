#include "run_job.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include "base/check.h"
#include "base/text_safety.h"

namespace divvy::app {
namespace {

constexpr int kNotFound = 127;
constexpr int kNotExecutable = 126;

constexpr std::array kPassedOn = {SIGTERM, SIGINT,  SIGHUP,  SIGUSR1, SIGUSR2,
                                  SIGQUIT, SIGCONT, SIGTSTP, SIGWINCH};

sigset_t HeldSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : kPassedOn) sigaddset(&signals, signal);
  sigaddset(&signals, SIGCHLD);
  return signals;
}

std::vector<std::string> Environment(const Job& job) {
  std::vector<std::string> variables;
  for (char** v = environ; *v != nullptr; ++v) {
    const std::string variable = *v;
    if (!job.environment.contains(variable.substr(0, variable.find('=')))) {
      variables.push_back(variable);
    }
  }
  for (const auto& [name, value] : job.environment) {
    if (value) variables.push_back(fmt::format("{}={}", name, *value));
  }
  return variables;
}

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

// In the child, between fork and exec; an errno when it cannot be done.
int TakePlace(const Job& job, const sigset_t& mask) {
  if (job.inherited_fd >= 0) fcntl(job.inherited_fd, F_SETFD, 0);
  if (job.own_group) setpgid(0, 0);
  if (job.timer_slack.count() > 0) prctl(PR_SET_TIMERSLACK, job.timer_slack.count());
  for (int i = 0; i < static_cast<int>(job.streams.size()); ++i) {
    const int stream = job.streams[static_cast<std::size_t>(i)];
    if (stream >= 0 && dup2(stream, i) < 0) return errno;
  }
  if (!job.directory.empty() && chdir(job.directory.c_str()) != 0) return errno;
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  std::signal(SIGPIPE, SIG_DFL);
  return 0;
}

JobEnd CouldNotStart(const Job& job, int error) {
  return {.exit_status = error == ENOENT || error == ENOTDIR ? kNotFound : kNotExecutable,
          .signal = 0,
          .error = fmt::format("cannot run {}: {}", Quoted(job.command.front()), strerror(error))};
}

// Sent by a process, as against by the kernel for the whole group. What the job sent to
// its group, of which we are, it has had itself.
bool IsForUs(const signalfd_siginfo& signal, pid_t job) {
  return signal.ssi_code <= 0 && static_cast<pid_t>(signal.ssi_pid) != job;
}

void Handle(const signalfd_siginfo& signal, pid_t job) {
  const int number = static_cast<int>(signal.ssi_signo);
  if (IsForUs(signal, job)) kill(job, number);
  // The shell that started us looks at us, not at the job.
  if (number == SIGTSTP) raise(SIGSTOP);
}

// The job's end, if it has come. Other children, watch and keeper, are reaped by the way.
std::optional<JobEnd> Reap(pid_t job) {
  while (true) {
    int status = 0;
    const pid_t child = waitpid(-1, &status, WNOHANG);
    if (child <= 0) return std::nullopt;
    if (child != job) continue;
    JobEnd end;
    if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
    end.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + end.signal;
    return end;
  }
}

}  // namespace

StartedJob StartJob(const Job& job, const sigset_t& mask) {
  std::vector<std::string> words = job.command;
  std::vector<std::string> variables = Environment(job);
  const std::vector<char*> argv = Pointers(words);
  const std::vector<char*> envp = Pointers(variables);
  std::array<int, 2> failure{};
  if (pipe2(failure.data(), O_CLOEXEC) != 0) return {-1, errno};
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(kNotFound);  // It died before the line above.
    int error = TakePlace(job, mask);
    if (error == 0) {
      execvpe(argv[0], argv.data(), envp.data());
      error = errno;
    }
    const ssize_t told = write(failure[1], &error, sizeof error);
    _exit(told > 0 ? kNotFound : kNotExecutable);
  }
  int error = child < 0 ? errno : 0;
  close(failure[1]);
  // Ends when the program runs, or has said why it does not.
  while (child > 0 && read(failure[0], &error, sizeof error) < 0 && errno == EINTR) {
  }
  close(failure[0]);
  return {child, error};
}

JobEnd RunJob(const Job& job, Duration pause, const std::function<void()>& look) {
  // Who started us may ignore the ends of children; we would never hear of the job's.
  std::signal(SIGCHLD, SIG_DFL);
  const sigset_t held = HeldSignals();
  sigset_t before;
  sigprocmask(SIG_BLOCK, &held, &before);
  const int signals = signalfd(-1, &held, SFD_NONBLOCK | SFD_CLOEXEC);
  Check(signals >= 0, "a file descriptor is to be had");
  const StartedJob started = StartJob(job, before);
  if (started.error != 0) {
    if (started.pid > 0) waitpid(started.pid, nullptr, 0);
    return CouldNotStart(job, started.error);
  }
  const auto pause_ms = std::chrono::ceil<std::chrono::milliseconds>(pause);
  while (true) {
    // Also before the first wait: it may have ended while nobody listened.
    if (const auto end = Reap(started.pid)) {
      close(signals);
      return *end;
    }
    pollfd ready{signals, POLLIN, 0};
    if (poll(&ready, 1, static_cast<int>(pause_ms.count())) == 0) look();
    signalfd_siginfo signal{};
    while (read(signals, &signal, sizeof signal) == sizeof signal) {
      if (signal.ssi_signo != SIGCHLD) Handle(signal, started.pid);
    }
  }
}

int EndAs(const JobEnd& end) {
  if (end.signal == 0) return end.exit_status;
  // The job has left its core, if any.
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  std::signal(end.signal, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, end.signal);
  sigprocmask(SIG_UNBLOCK, &only, nullptr);
  raise(end.signal);
  return end.exit_status;  // It was one that does not end us.
}

}  // namespace divvy::app
