#include "gate/turns.h"

namespace divvy::gate {
namespace {

bool Counts(const Slot& slot, std::uint64_t now_ns) {
  if (slot.live.load(std::memory_order_acquire) == 0 || slot.job.job_class != JobClass::kBatch)
    return false;
  const std::uint64_t last = slot.last_launch_ns.load(std::memory_order_relaxed);
  return last != 0 && now_ns < last + kIdleAfterNs;
}

// The least virtual time of the others at work; UINT64_MAX if there are none.
std::uint64_t LeastOfOthers(const Board& board, int own, std::uint64_t now_ns) {
  std::uint64_t least = UINT64_MAX;
  for (int i = 0; i < kSlots; ++i) {
    if (i == own || !Counts(board.slots[i], now_ns)) continue;
    const std::uint64_t time = board.slots[i].virtual_ns.load(std::memory_order_relaxed);
    if (time < least) least = time;
  }
  return least;
}

}  // namespace

bool LeadsTooFar(const Board& board, int slot, std::uint64_t now_ns) {
  if (board.batch_jobs.load(std::memory_order_relaxed) < 2) return false;
  const std::uint64_t least = LeastOfOthers(board, slot, now_ns);
  return least != UINT64_MAX &&
         board.slots[slot].virtual_ns.load(std::memory_order_relaxed) > least + kMayLeadNs;
}

std::uint64_t VirtualNs(std::uint64_t gpu_ns, std::uint32_t weight) {
  return gpu_ns * 100 / (weight == 0 ? 1 : weight);
}

void CatchUp(Board& board, int slot, std::uint64_t now_ns) {
  const std::uint64_t least = LeastOfOthers(board, slot, now_ns);
  std::atomic<std::uint64_t>& own = board.slots[slot].virtual_ns;
  if (least != UINT64_MAX && own.load(std::memory_order_relaxed) < least)
    own.store(least, std::memory_order_relaxed);
}

}  // namespace divvy::gate
