#pragma once

// The process's kernel log: what `divvy profile --ops` has the library write.

#include "gate/library/state.h"

namespace divvy::gate {

// Makes the process's log, if it has none yet, and prepares to time kernels on this GPU. False,
// with the reason on stderr, if nothing can be logged.
bool JoinLog(const Driver& driver, GpuState& gpu);

// A kind of launch, in the table and in the log; both null when there is no room for it.
struct LoggedKind {
  Cost* cost = nullptr;
  OpKind* kind = nullptr;
};

// What Cost::kind is where the log had no room for it.
inline constexpr std::uint32_t kNoKind = ~0U;

// Notes a kind that is new: asks the driver about it.
LoggedKind NoteKind(const Driver& driver, const GpuState& gpu, const LaunchShape& shape,
                    cuda::Function function, Cost& cost);

// On every launch.
inline LoggedKind KindOf(const Driver& driver, const GpuState& gpu, const LaunchShape& shape,
                         cuda::Function function) {
  bool fresh = false;
  Cost* cost = process.costs.Find(KeyOf(shape), &fresh);
  if (cost == nullptr) return {};
  const std::uint32_t kind = cost->kind.load(std::memory_order_acquire);
  if (kind - 1 < kOpKinds) return {cost, &process.log->kinds[kind - 1]};
  if (kind == kNoKind) return {};
  return NoteKind(driver, gpu, shape, function, *cost);
}

// A graph was instantiated: how many kernels it has. Does nothing for jobs of other classes.
void Instantiated(cuda::GraphExec exec, cuda::Graph graph);

// In the child of a fork: the log is the parent's.
void DropLog();

}  // namespace divvy::gate
