#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/time.h"

namespace divvy::net {

// An event loop: file descriptors, timers, and calls from other threads. One thread runs it, and
// all but Post and Stop is for that thread (or for before Run).
class Loop {
 public:
  // What is called when a descriptor is ready. `events` are EPOLLIN, EPOLLOUT, EPOLLHUP, ...
  using OnReady = std::function<void(std::uint32_t events)>;
  using TimerId = std::pair<TimePoint, std::uint64_t>;

  Loop();
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Time by the steady clock since the loop was made, taken when the loop last woke up: one
  // reading serves all that happens in a round.
  TimePoint now() const { return now_; }
  // The same, read anew; for what must be exact within a round.
  TimePoint Clock() const;

  // Calls `ready` whenever `fd` has one of `events`. Level-triggered. The descriptor stays the
  // caller's. REQUIRES: not watched yet.
  void Watch(int fd, std::uint32_t events, OnReady ready);
  void Change(int fd, std::uint32_t events);
  // Nothing more is called for it, also not for events that this round has already seen. To be
  // called before the descriptor is closed.
  void Forget(int fd);

  // Calls `due` once, not before `when`; some tens of microseconds later on an idle machine.
  TimerId At(TimePoint when, std::function<void()> due);
  // A timer that has gone off or was cancelled is none: nothing happens.
  void Cancel(TimerId timer);
  // From now on timers go off on time: the thread that calls this, and runs the loop, sleeps until
  // shortly before and then turns without sleeping. Costs a tenth of a millisecond of a core a
  // timer.
  void KeepTimeExactly();

  // Calls `call` at the end of this round (or, from another thread, of a coming one).
  void Post(std::function<void()> call);

  // Until Stop, which any thread, and a signal handler, may call.
  void Run();
  void Stop();
  // Handles what is ready, waiting at most `most` for it. For tests, and for Run.
  void Round(Duration most);

 private:
  struct Watched {
    std::uint64_t generation;
    std::shared_ptr<const OnReady> ready;
  };

  void TakeTime();
  void RunTimers();
  void RunPosted();
  void Wake() const;

  int epoll_ = -1;
  int bell_ = -1;
  Duration start_{};
  TimePoint now_{};
  std::uint64_t generations_ = 0;
  std::unordered_map<int, Watched> watched_;
  std::uint64_t timers_made_ = 0;
  std::map<TimerId, std::function<void()>> timers_;
  Duration early_{};  // Before a timer: then the loop sleeps no more.
  std::mutex mutex_;  // Of posted_.
  std::vector<std::function<void()>> posted_;
  std::vector<std::function<void()>> running_;  // Scratch.
  std::atomic<std::thread::id> thread_{};       // Who runs the loop.
  std::atomic<bool> stop_{false};
};

}  // namespace divvy::net
