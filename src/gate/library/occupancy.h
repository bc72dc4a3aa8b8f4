#pragma once

// A latency job's hold on its GPU: from its launches and waits to the level on the board.

#include "gate/library/state.h"

namespace divvy::gate {

// Before the launch: `heavy` if it is a graph, whose work is all submitted at once.
void BeforeLaunch(GpuState& gpu, cuda::Stream stream, bool heavy);
// After it: puts a progress mark into the stream where one is due.
void AfterLaunch(const Driver& driver, GpuState& gpu, cuda::Stream stream);

// Around a call that stops the thread until the GPU is done. `covers` tells whether its success
// means that the thread's own work is done; a stream given means the work of all threads that
// launched into it last.
class Waiting {
 public:
  explicit Waiting(GpuState* gpu);
  // The wait is over; `stream` as above, unless it was for the whole context.
  void Done(bool covers, bool whole_context, cuda::Stream stream);

 private:
  GpuState* gpu_;
  std::uint64_t launches_ = 0;
};

// A query that found the thread's latest work unfinished (it is being polled for) or finished.
void Polled(GpuState& gpu, bool finished, cuda::Stream stream);

// The GPU itself reports that `worker`'s work up to `launch` is done.
void Finished(GpuState& gpu, Worker& worker, std::uint64_t launch);

// The worker's thread ends, with or without work under way.
void Abandon(GpuState& gpu, Worker& worker);

void BeginRequest(GpuState& gpu, std::uint64_t arrival_ns);
void EndRequest(GpuState& gpu);

// For the keeper: does what is due (ends a rest, opens early) and returns when
// something will be due next, 0 if nothing.
std::uint64_t DoWhatIsDue(GpuState& gpu, std::uint64_t now_ns);
// A job that submitted work, asks nobody about it and launches no more does not need the gate
// closed.
void OpenIfAbandoned(GpuState& gpu, std::uint64_t now_ns);

}  // namespace divvy::gate
