#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>

#include "device/cuda_simulator/machine.h"

// What lies in a machine's file, for the sources of Machine alone.

namespace divvy::device::cuda_simulator {

inline constexpr int kMaxProcesses = 64;
inline constexpr int kNobody = -1;
inline constexpr int kGone = -2;  // Somebody, who is no more.
// A kernel's end is noticed by the process that runs it, when its thread gets a CPU. The GPU would
// not wait for that: after this long others take its SMs as free. So with a turn that a process was
// given and has not come for.
inline constexpr Nanos kLate = 10 * kMillisecond;

// What one process has of one GPU.
struct Machine::Client {
  std::int32_t low_priority;
  std::int32_t held;  // SMs.
  Nanos busy_until;   // When the last of its running kernels ends.
  std::int32_t waits;
  Nanos waiting_since;
  Nanos seen;  // When it last asked.
  Nanos turn_ended;
  std::int32_t lost_turn;  // To another, and it does not know yet.
  Nanos slice;             // 0: the machine's.
  std::int32_t contexts;
  std::uint64_t memory;
};

struct Machine::File {
  struct alignas(64) Process {
    pid_t pid;  // 0: nobody.
    std::uint64_t born;
    std::atomic<std::uint32_t> bell;
  };
  struct Gpu {
    std::int32_t owner;       // Whose turn it is; kNobody.
    std::int32_t last_owner;  // Whose state the GPU holds: nobody's at first, kGone.
    Nanos turn_began;         // Or its present slice; ahead of now while the GPU changes hands.
    std::int32_t turn_taken;  // The owner has come to know of it.
    Client clients[kMaxProcesses];
    Nanos counted;     // Up to when its activity is in what follows.
    Nanos busy_until;  // The last of that time in which a kernel ran.
    Nanos busy;
    Nanos sm_busy;
    Nanos window;  // When the present one began, and what had been counted then.
    Nanos window_busy;
    Nanos window_sm_busy;
    double busy_share;  // In the one before.
    double sm_share;

    void CountRun(int sms, Nanos from, Nanos to) {
      if (to <= from) return;
      sm_busy += sms * (to - from);
      busy += std::max<Nanos>(0, to - std::max(from, busy_until));
      busy_until = std::max(busy_until, to);
    }
  };

  std::atomic<std::uint64_t> magic;  // Written last.
  MachineSpec spec;
  Nanos made;
  pthread_mutex_t lock;  // Robust: it survives who held it.
  Process processes[kMaxProcesses];
  Gpu gpus[kMaxGpus];
};

// Holds the file's mutex. Everything under it is a field or two that are right on their own, so
// what a holder that died has left behind is good enough to go on with.
class Machine::Lock {
 public:
  explicit Lock(File& file) : mutex_(file.lock) {
    if (pthread_mutex_lock(&mutex_) == EOWNERDEAD) pthread_mutex_consistent(&mutex_);
  }
  ~Lock() { pthread_mutex_unlock(&mutex_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  pthread_mutex_t& mutex_;
};

}  // namespace divvy::device::cuda_simulator
