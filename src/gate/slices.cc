#include "gate/slices.h"

#include "gate/latency.h"

namespace divvy::gate {
namespace {

bool IsLive(const Slot& slot, JobClass job_class) {
  return slot.live.load(std::memory_order_acquire) != 0 &&
         slot.job.job_class.load(std::memory_order_relaxed) == job_class;
}

// A latency job that is apart and wants batch jobs out of its way.
bool Interrupts(const Slot& slot) {
  return IsLive(slot, JobClass::kLatency) && slot.apart.load(std::memory_order_relaxed) != 0 &&
         slot.openness.load(std::memory_order_relaxed) < kNoProtection;
}

}  // namespace

bool HasSeveralInTurns(const Board& board) {
  int count = 0;
  for (const Slot& slot : board.slots) {
    const bool takes_turns = IsLive(slot, JobClass::kServer) || IsLive(slot, JobClass::kBatch);
    if (takes_turns && slot.slice_us.load(std::memory_order_relaxed) != 0) ++count;
  }
  return count > 1;
}

std::uint32_t BatchSliceUs(std::uint32_t openness, bool stepwise) {
  // On an H200 two switches take 0.33 ms: with 0.8 ms a batch job has three fifths of the GPU
  // beside a job that launches kernel by kernel, with 1.2 ms two thirds.
  // Beside one that does not, a request that comes right behind another waits for all of it.
  const std::uint32_t least = stepwise ? 800 : 10;
  const std::uint32_t more = stepwise ? 800 : 80;
  return least + openness * more / kNoProtection;
}

std::uint32_t WantedSliceUs(const Board& board) {
  std::uint32_t wanted = kDriverSliceUs;
  if (HasSeveralInTurns(board)) return wanted;
  for (const Slot& slot : board.slots) {
    if (!Interrupts(slot)) continue;
    const std::uint32_t us = BatchSliceUs(slot.openness.load(std::memory_order_relaxed),
                                          slot.stepwise.load(std::memory_order_relaxed) != 0);
    if (us < wanted) wanted = us;
  }
  return wanted;
}

void NoteLongBlocks(Slot& slot, const Cost& cost, std::uint64_t now_ns) {
  // Who launches collective operations will do so again, and one may wait for its peers for ever.
  const std::uint64_t until = cost.exempt.load(std::memory_order_relaxed) != 0
                                  ? UINT64_MAX
                                  : now_ns + kLaunchedAheadNs + PredictedNs(cost);
  std::uint64_t before = slot.long_blocks_until_ns.load(std::memory_order_relaxed);
  while (before < until && !slot.long_blocks_until_ns.compare_exchange_weak(
                               before, until, std::memory_order_relaxed)) {
  }
}

bool MayEndBlocks(const Board& board, std::uint64_t now_ns) {
  if (HasSeveralInTurns(board)) return false;
  bool any = false;
  for (const Slot& slot : board.slots) {
    if (IsLive(slot, JobClass::kBatch) &&
        now_ns < slot.long_blocks_until_ns.load(std::memory_order_relaxed))
      return false;
    if (!Interrupts(slot)) continue;
    if (!TuningAt(slot.openness.load(std::memory_order_relaxed)).lets_blocks_end ||
        slot.stepwise.load(std::memory_order_relaxed) != 0)
      return false;
    any = true;
  }
  return any;
}

bool IsInterruptible(const Board& board, int slot, bool served) {
  if (HasSeveralInTurns(board)) return false;
  if (!served) return board.slots[slot].slice_us.load(std::memory_order_relaxed) != 0;
  bool any = false;
  for (const Slot& other : board.slots) {
    if (!IsLive(other, JobClass::kServer)) continue;
    if (other.slice_us.load(std::memory_order_relaxed) == 0) return false;
    any = true;
  }
  return any;
}

}  // namespace divvy::gate
