#include "net/loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>

#include "base/check.h"

namespace divvy::net {
namespace {

constexpr int kEventsAtOnce = 256;
// Sleeps end late by up to this much, measured on virtual machines with idle cores.
constexpr Duration kSleepsLate = std::chrono::microseconds(100);

Duration SteadyNow() {
  return std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch());
}

// Key and generation: a descriptor that is closed and opened again within a round is another.
std::uint64_t Tag(int fd, std::uint64_t generation) {
  return generation << 32 | static_cast<std::uint32_t>(fd);
}

}  // namespace

Loop::Loop() : start_(SteadyNow()) {
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  bell_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  Check(epoll_ >= 0 && bell_ >= 0, "epoll and eventfd");
  Watch(bell_, EPOLLIN, [this](std::uint32_t) {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = read(bell_, &count, sizeof count);
  });
  TakeTime();
}

Loop::~Loop() {
  close(bell_);
  close(epoll_);
}

TimePoint Loop::Clock() const { return TimePoint(SteadyNow() - start_); }

void Loop::TakeTime() { now_ = Clock(); }

void Loop::Watch(int fd, std::uint32_t events, OnReady ready) {
  const std::uint64_t generation = ++generations_ & 0xffffffff;
  epoll_event event{.events = events, .data = {.u64 = Tag(fd, generation)}};
  Check(epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl: add");
  watched_.insert_or_assign(fd,
                            Watched{generation, std::make_shared<const OnReady>(std::move(ready))});
}

void Loop::Change(int fd, std::uint32_t events) {
  const auto found = watched_.find(fd);
  Check(found != watched_.end(), "a descriptor that is watched");
  epoll_event event{.events = events, .data = {.u64 = Tag(fd, found->second.generation)}};
  Check(epoll_ctl(epoll_, EPOLL_CTL_MOD, fd, &event) == 0, "epoll_ctl: change");
}

void Loop::Forget(int fd) {
  if (watched_.erase(fd) == 0) return;
  epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
}

Loop::TimerId Loop::At(TimePoint when, std::function<void()> due) {
  const TimerId id{when, ++timers_made_};
  timers_.emplace(id, std::move(due));
  return id;
}

void Loop::Cancel(TimerId timer) { timers_.erase(timer); }

void Loop::KeepTimeExactly() {
  early_ = kSleepsLate;
  // The kernel may delay wake-ups by this, 50 us for most programs, to serve several at once.
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
}

void Loop::Post(std::function<void()> call) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = posted_.empty();
    posted_.push_back(std::move(call));
  }
  // Of those that run together, one bell is enough; the loop's own thread looks before it waits.
  if (first && thread_.load(std::memory_order_relaxed) != std::this_thread::get_id()) Wake();
}

void Loop::Wake() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(bell_, &one, sizeof one);
}

void Loop::Stop() {
  stop_.store(true, std::memory_order_relaxed);
  Wake();
}

void Loop::Run() {
  while (!stop_.load(std::memory_order_relaxed)) Round(std::chrono::hours(1));
  stop_.store(false, std::memory_order_relaxed);
}

void Loop::Round(Duration most) {
  thread_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  Duration wait = most;
  if (!timers_.empty()) {
    wait = std::clamp(timers_.begin()->first.first - early_ - Clock(), Duration::zero(), most);
  }
  {
    const std::lock_guard lock(mutex_);
    if (!posted_.empty()) wait = Duration::zero();
  }
  const timespec timeout{.tv_sec = static_cast<time_t>(wait.count() / 1'000'000'000),
                         .tv_nsec = static_cast<long>(wait.count() % 1'000'000'000)};
  std::array<epoll_event, kEventsAtOnce> events;
  const int count = epoll_pwait2(epoll_, events.data(), kEventsAtOnce, &timeout, nullptr);
  Check(count >= 0 || errno == EINTR, "epoll_pwait2");
  TakeTime();
  for (int i = 0; i < count; ++i) {
    const std::uint64_t tag = events[static_cast<std::size_t>(i)].data.u64;
    const auto found = watched_.find(static_cast<int>(tag & 0xffffffff));
    if (found == watched_.end() || found->second.generation != tag >> 32) continue;
    // It may forget itself while it runs.
    const std::shared_ptr<const OnReady> ready = found->second.ready;
    (*ready)(events[static_cast<std::size_t>(i)].events);
  }
  RunTimers();
  RunPosted();
}

void Loop::RunTimers() {
  while (!timers_.empty() && timers_.begin()->first.first <= now_) {
    const std::function<void()> due = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    due();
  }
}

void Loop::RunPosted() {
  {
    const std::lock_guard lock(mutex_);
    running_.swap(posted_);
  }
  for (const std::function<void()>& call : running_) call();
  running_.clear();
}

}  // namespace divvy::net
