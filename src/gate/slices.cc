#include "gate/slices.h"

#include <algorithm>

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

std::uint32_t BatchSliceUs(std::uint32_t openness, std::uint32_t stepwise_us) {
  // A request that comes right behind another waits for all of it.
  if (stepwise_us == 0) return 10 + openness * 80 / kNoProtection;
  // A tenth of a request, under balanced a fifth (bench/gpu/stepwise.py).
  const std::uint64_t part = 100 + std::uint64_t{openness} * 200 / kNoProtection;
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(stepwise_us * part / 1'000, kLeastStepwiseUs, kMostStepwiseUs));
}

std::uint32_t StepwiseUs(std::uint32_t told_us, std::uint64_t mean_ns) {
  const auto us =
      static_cast<std::uint32_t>(std::clamp<std::uint64_t>(mean_ns / 1'000, 1, UINT32_MAX));
  const std::uint32_t change = us < told_us ? told_us - us : us - told_us;
  return told_us != 0 && change <= told_us / 4 ? told_us : us;
}

std::uint32_t WantedSliceUs(const Board& board) {
  if (HasSeveralInTurns(board)) return kDriverSliceUs;
  std::uint32_t wanted = UINT32_MAX;
  for (const Slot& slot : board.slots) {
    const std::uint32_t openness = slot.openness.load(std::memory_order_relaxed);
    if (!IsLive(slot, JobClass::kLatency) || openness >= kNoProtection ||
        slot.apart.load(std::memory_order_relaxed) == 0)
      continue;
    const std::uint32_t us =
        BatchSliceUs(openness, slot.stepwise_us.load(std::memory_order_relaxed));
    if (us < wanted) wanted = us;
  }
  return wanted == UINT32_MAX ? kDriverSliceUs : wanted;
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
