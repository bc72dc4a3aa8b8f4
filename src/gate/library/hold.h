#pragma once

// A latency job that is apart keeps the GPU for a moment after each request of graphs: the next of
// several in a row comes some ten microseconds later, and would find that the GPU has been given
// away, which takes a third of a millisecond to undo. What keeps it are kernels of ours, of a
// single thread. The GPU is given away in the very moment in which its owner has nothing to run, so
// the keeper starts them shortly before the request is expected to end; they end when the rest
// does, or the next request is submitted.

#include "gate/library/state.h"

namespace divvy::gate {

void PrepareHold(const Driver& driver, GpuState& gpu);

// A graph was submitted: the holds so far are over, and the next, if there is to be one, begins
// before the request's end. True if the keeper is to be rung. Under the transition lock.
bool PlanHold(GpuState& gpu, std::uint64_t now_ns);

// For the keeper: begins the hold that is due, and returns when one will be; 0 if none.
std::uint64_t HoldIfDue(const Driver& driver, GpuState& gpu, std::uint64_t now_ns);

// Whether a hold was begun and nobody has let go since.
inline bool IsHeld(const GpuState& gpu) {
  return gpu.hold_function.load(std::memory_order_acquire) != nullptr &&
         pinned->holds[gpu.index].over.load(std::memory_order_relaxed) !=
             gpu.hold_number.load(std::memory_order_relaxed);
}

// The holds so far end, or do not begin.
void LetGo(GpuState& gpu);

// The context goes, or may go: no hold is begun any more, and none is being begun when this
// returns. For ResumeHold, should the context stay.
cuda::Function SuspendHold(GpuState& gpu);
void ResumeHold(GpuState& gpu, cuda::Function function);

}  // namespace divvy::gate
