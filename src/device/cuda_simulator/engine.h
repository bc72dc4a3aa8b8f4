#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "device/cuda_simulator/address_space.h"
#include "device/cuda_simulator/machine.h"
#include "device/cuda_simulator/state.h"
#include "device/cuda_simulator/stats.h"

namespace divvy::device::cuda_simulator {

// Runs the streams of a process: each in its order, all at once, in one thread. A kernel holds SMs
// of the machine for its time and is over; a wait looks at its word every so often. Host functions
// run in a second thread, so that a slow one holds up its own stream alone.
//
// Times are exact where threads are not: what follows on a kernel begins when the kernel was over,
// even if the thread came to see that later. So a chain of kernels takes as long as its kernels do.
//
// Every method wants `mutex` of the constructor locked; those that wait take the lock that holds
// it.
class Engine {
 public:
  // What is passed in must outlive the engine and the process' threads.
  Engine(std::mutex& mutex, Machine& machine, AddressSpace& memory, Stats& stats);

  void Add(const std::shared_ptr<StreamState>& stream);

  // Appends to a stream, behind what CUDA's default stream puts before it. Waits while the stream
  // is full, as the driver does; a graph goes in whole.
  void Enqueue(std::unique_lock<std::mutex>& lock, const std::shared_ptr<StreamState>& stream,
               std::vector<Work> work);

  // Waits until `stream` is through with number `ticket`.
  void AwaitTicket(std::unique_lock<std::mutex>& lock, const std::shared_ptr<StreamState>& stream,
                   std::uint64_t ticket);
  void AwaitRecord(std::unique_lock<std::mutex>& lock, const std::shared_ptr<EventRecord>& record,
                   const ContextState& context);
  // All streams of a context, up to what they hold now.
  void AwaitContext(std::unique_lock<std::mutex>& lock, const ContextState& context);

  // Whether `stream`, and what is in front of its next operation, has run dry.
  bool IsIdle(const StreamState& stream) const;

  // The context is at an end, with what its streams still had to do.
  void Drop(ContextState& context, cuda::Result error);

  // Runs nothing more. For the end of the process.
  void Stop();

 private:
  // Of a step: over at `time`, or to be looked at again then.
  struct Progress {
    bool over;
    Nanos time;
  };

  void Run();
  void RunHostCalls();
  Nanos Advance(Nanos now);
  bool AdvanceStream(StreamState& stream, Nanos now, Nanos& wake);
  void Clear(StreamState& stream);
  void AddDependencies(const StreamState& stream, Operation& operation) const;

  Progress Step(StreamState& stream, Operation& operation, Nanos now);
  Progress Do(KernelRun& run, Nanos ready, Nanos now);
  Progress DoInTurn(KernelRun& run, Nanos ready, Nanos now);
  Progress Watch(KernelRun& run, const Progress& step, Nanos now, ContextState& context);
  Progress Do(ValueWait& wait, Nanos ready, Nanos now, ContextState& context);
  Progress Do(const ValueWrite& write, Nanos ready, ContextState& context);
  Progress Do(HostCall& call, Nanos ready, Nanos now);
  Progress Do(Copy& copy, Nanos ready, Nanos now);
  static void Write(const Fill& fill);
  bool Start(KernelRun& run, Nanos ready, Nanos now);
  void EndRun(KernelRun& run, Nanos now);

  std::mutex& mutex_;
  Machine& machine_;
  AddressSpace& memory_;
  Stats& stats_;
  std::vector<std::shared_ptr<StreamState>> streams_;  // Highest priority first.
  std::condition_variable progress_;
  int waiting_ = 0;  // Threads in progress_.
  bool advanced_ = false;
  bool stopped_ = false;

  struct HostJob {
    std::function<void()> function;
    std::shared_ptr<bool> returned;
  };
  std::deque<HostJob> host_jobs_;
  std::condition_variable host_work_;
  bool host_thread_ = false;

  std::array<std::optional<Turn>, kMaxGpus> turn_{};  // As asked in this round.
  std::array<bool, kMaxGpus> wants_turn_{};
  std::array<bool, kMaxGpus> in_line_{};  // Has the turn, or waits for it.
};

}  // namespace divvy::device::cuda_simulator
