#pragma once

// A latency job's hold on its GPU: from its launches and waits to the level on the board.

#include "gate/library/state.h"

namespace divvy::gate {

// Before the launch: `heavy` if it is a graph, whose work is all submitted at once.
void BeforeLaunch(GpuState& gpu, cuda::Stream stream, bool heavy);
// After the launch of a graph, which the driver took or not: some jobs' gate closes only now.
void AfterGraph(GpuState& gpu, bool submitted);
// After that of a kernel: puts a progress mark into the stream where one is due.
void AfterLaunch(const Driver& driver, GpuState& gpu, cuda::Stream stream);

// Around a call that stops the thread until the GPU is done, and tells at its end what is done
// then. A wait for a stream covers the thread's own work if it launched into that stream in this
// request, and that of threads which launched into it last.
class Waiting {
 public:
  explicit Waiting(GpuState* gpu);
  // The wait failed, or says nothing about work that was launched.
  void Over();
  // Everything that went into `stream` before the wait is done.
  void StreamDone(cuda::Stream stream);
  // Likewise up to launch number `launch`.
  void EventDone(cuda::Stream stream, std::uint64_t launch);
  // Everything before the wait is done.
  void ContextDone();

 private:
  struct Cover {
    bool anything = false;
    bool whole_context = false;
    cuda::Stream stream = nullptr;
    std::uint64_t launch = 0;
  };
  void End(const Cover& cover);

  GpuState* gpu_;
  std::uint64_t launches_ = 0;
};

// A query found the thread's latest work unfinished: it is being polled for.
void Polled(GpuState& gpu);

// The GPU itself reports that `worker`'s work up to `launch` is done.
void Finished(GpuState& gpu, Worker& worker, std::uint64_t launch);

// The worker's thread ends, with or without work under way.
void Abandon(GpuState& gpu, Worker& worker);

// The job is about to give its place on the board back: from now on nothing is written there.
void StopPublishing(GpuState& gpu);

void BeginRequest(GpuState& gpu, std::uint64_t arrival_ns);
void EndRequest(GpuState& gpu);

// For the keeper: does what is due (ends a rest, opens early) and returns when
// something will be due next, 0 if nothing.
std::uint64_t DoWhatIsDue(GpuState& gpu, std::uint64_t now_ns);
// A job that submitted work, asks nobody about it and launches no more does not need the gate
// closed.
void OpenIfAbandoned(GpuState& gpu, std::uint64_t now_ns);

}  // namespace divvy::gate
