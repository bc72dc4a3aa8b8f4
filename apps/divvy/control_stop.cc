#include "control_stop.h"

#include <poll.h>
#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

#include "base/check.h"

namespace divvy::app {
namespace {

using Clock = std::chrono::steady_clock;

sigset_t Signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  return signals;
}

timespec Until(Clock::time_point time) {
  const auto left = std::max(Clock::duration::zero(), time - Clock::now());
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
  return {.tv_sec = seconds.count(), .tv_nsec = std::chrono::nanoseconds(left - seconds).count()};
}

}  // namespace

StopSignal::StopSignal() {
  const sigset_t signals = Signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signals_ = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
  Check(signals_ >= 0, "a file descriptor is to be had");
}

StopSignal::~StopSignal() {
  // What came but was not read would end the program now, which has been asked to.
  static_cast<void>(Heard());
  close(signals_);
  const sigset_t signals = Signals();
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

bool StopSignal::Heard() {
  signalfd_siginfo signal;
  while (read(signals_, &signal, sizeof signal) == sizeof signal) heard_ = true;
  return heard_;
}

bool StopSignal::SleepUntil(Clock::time_point time) {
  while (!Heard() && Clock::now() < time) static_cast<void>(AwaitUntil(-1, &time));
  return heard_;
}

bool StopSignal::AwaitUntil(int fd, const Clock::time_point* time) {
  while (true) {
    if (Heard()) return false;
    std::array<pollfd, 2> polls = {{{signals_, POLLIN, 0}, {fd, POLLIN, 0}}};
    timespec left{};
    if (time != nullptr) left = Until(*time);
    const int ready = ppoll(polls.data(), polls.size(), time == nullptr ? nullptr : &left, nullptr);
    Check(ready >= 0 || errno == EINTR, "ppoll works");
    if (ready > 0 && polls[1].revents != 0) return true;
    if (ready == 0) return false;
  }
}

}  // namespace divvy::app
