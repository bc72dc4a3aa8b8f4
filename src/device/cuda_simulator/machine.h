#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/cuda_simulator/clock.h"
#include "device/cuda_simulator/spec.h"

namespace divvy::device::cuda_simulator {

// What a kernel that is ready to run asks of its GPU.
struct Demand {
  int wanted = 1;           // SMs its blocks can use.
  Nanos work = 0;           // How long it takes with all of them.
  Nanos ready = 0;          // Since when it could have run.
  Nanos waiting_since = 0;  // Since when it has been refused; 0 if never.
};

// What it got: it holds `granted` SMs until `end`.
struct Grant {
  int granted;
  Nanos end;
};

// A process' turn on a GPU that processes have one after another.
struct Turn {
  bool mine;
  Nanos ends;   // Of `mine`: when others may take it. Otherwise when the last one of ours was over.
  Nanos again;  // When to ask again, if no bell rings before.
};

struct MemoryInfo {
  std::uint64_t free;
  std::uint64_t total;
};

// What a GPU has done since its machine was made, as a driver's counters tell it.
struct Activity {
  Nanos made;     // When the machine was.
  Nanos busy;     // Time in which a kernel ran.
  Nanos sm_busy;  // The same of each SM, added up.
  // Of the last tenth of a second or so, as shares of the time and of the SMs.
  double busy_share;
  double sm_share;
};

// A process with a context on a GPU.
struct Holder {
  pid_t pid;
  std::uint64_t bytes;
};

// The GPUs of a simulated machine, in a file that all its processes map: who they are, which SMs
// and how much memory each holds, who waits. A process that dies gives back what it held: whoever
// waits looks whether the others still live. Waiting is on a bell, one a process: others ring it
// when something was given back, and the process itself when there is new work.
//
// Thread-safe, except for Join and Leave. A child after fork must not use its parent's.
class Machine {
 public:
  // Maps the machine in the file at `path`, which is made, with `spec`, where there is none; an
  // empty path gives a machine of this process alone. The attributes of one that exists are its
  // own. kUnavailable where the file can't be made or mapped, kFailedPrecondition where it is none.
  [[nodiscard]] static Result<std::unique_ptr<Machine>> Open(const std::string& path,
                                                             const MachineSpec& spec);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  const MachineSpec& spec() const;

  // Takes this process in. `low_priority` clients get SMs that no other waits for; `percentage` is
  // the most of a GPU's SMs that the process may hold. Both mean nothing under time slicing, as on
  // a GPU without MPS. False where the machine is full (64 processes).
  [[nodiscard]] bool Join(bool low_priority, int percentage);
  // Gives everything back.
  void Leave();

  // SMs this process can use of a GPU.
  int usable_sms() const { return usable_sms_; }

  // Starts a kernel if there are SMs for it, on fewer SMs for longer. Otherwise the process waits
  // in line, as long as it asks again within kPatience; its bell rings when SMs were given back.
  [[nodiscard]] std::optional<Grant> Begin(int gpu, const Demand& demand, Nanos now);
  void End(int gpu, int granted, Nanos now);

  // Under time slicing: takes or keeps the turn on `gpu`. Refused, the process waits in line as
  // above. A turn lasts its owner's slice, and another one for as long as nobody waits. When it is
  // over, whoever asks first passes it on; an owner that has not seen that finds out by `ends`.
  [[nodiscard]] Turn HoldTurn(int gpu, Nanos now);
  // Nothing to run: the turn, if it is ours, goes to the next.
  void EndTurn(int gpu);

  // The process' slice on a GPU, at first that of the machine. A new one counts for the turn under
  // way too. Turns are no shorter than kLeastTurn, whatever the slice.
  void SetSlice(int gpu, Nanos slice, Nanos now);
  [[nodiscard]] Nanos Slice(int gpu);

  // The process has made a context there, or has one less.
  void AddContext(int gpu);
  void RemoveContext(int gpu);

  // False where not so much is free.
  [[nodiscard]] bool TakeMemory(int gpu, std::uint64_t bytes);
  void GiveMemory(int gpu, std::uint64_t bytes);
  [[nodiscard]] MemoryInfo Memory(int gpu);

  // For who looks from outside; nobody has to join for it.
  [[nodiscard]] Activity Observe(int gpu, Nanos now);
  [[nodiscard]] std::vector<Holder> Holders(int gpu);

  // The bell: WaitForBell returns when it was rung after `seen` was read, at `until`, or for no
  // reason.
  std::uint32_t ReadBell() const;
  void WaitForBell(std::uint32_t seen, Nanos until) const;
  void Ring();

  // Who waits must ask again within this time, or others pass by: it may be stopped, or gone.
  static constexpr Nanos kPatience = 50 * kMillisecond;
  // It takes two threads to hand over a GPU here. With slices shorter than they are, processes
  // would do little else.
  static constexpr Nanos kLeastTurn = 20 * kMicrosecond;

 private:
  struct File;
  struct Client;
  class Lock;

  explicit Machine(File* file) : file_(file) {}

  [[nodiscard]] static Result<File*> Create(int descriptor, const MachineSpec& spec);
  [[nodiscard]] static Result<File*> Find(const std::string& path);

  Client& Mine(int gpu);
  int FreeSms(int gpu, Nanos now) const;
  bool SomebodyFirst(int gpu, Nanos since, Nanos now) const;
  int NextInLine(int gpu, Nanos now) const;
  Nanos SliceOf(int gpu, int process) const;
  Nanos TurnEnds(int gpu) const;
  void TakeTurn(int gpu, Nanos now);
  void RenewTurn(int gpu, Nanos now);
  void PassTurn(int gpu, int process, Nanos now);
  void RingBell(int process);
  void RingWaiting(int gpu);
  void Count(int gpu, Nanos now);
  void Reap(Nanos now);
  void Forget(int process);

  File* file_;
  int self_ = -1;  // Our place in the tables. Kept when we leave: a thread may look at its bell.
  bool joined_ = false;
  int usable_sms_ = 0;
  Nanos reaped_ = 0;
};

}  // namespace divvy::device::cuda_simulator
