#include "gate/slices.h"

namespace divvy::gate {
namespace {

bool IsLive(const Slot& slot, JobClass job_class) {
  return slot.live.load(std::memory_order_acquire) != 0 && slot.job.job_class == job_class;
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
    const std::uint32_t openness = slot.openness.load(std::memory_order_relaxed);
    if (!IsLive(slot, JobClass::kLatency) || openness >= kNoProtection ||
        slot.apart.load(std::memory_order_relaxed) == 0)
      continue;
    const std::uint32_t us =
        BatchSliceUs(openness, slot.stepwise.load(std::memory_order_relaxed) != 0);
    if (us < wanted) wanted = us;
  }
  return wanted;
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
