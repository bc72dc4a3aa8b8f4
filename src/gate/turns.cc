#include "gate/turns.h"

namespace divvy::gate {
namespace {

bool IsBatch(const Slot& slot) {
  return slot.live.load(std::memory_order_acquire) != 0 && slot.job.job_class == JobClass::kBatch;
}

bool MarksItsWork(const Slot& slot) {
  return slot.mode.load(std::memory_order_relaxed) == static_cast<std::uint32_t>(GateMode::kDevice);
}

// By what it has submitted, right now.
bool IsDry(const Slot& slot, std::uint64_t now_ns) {
  const std::uint64_t last = slot.last_launch_ns.load(std::memory_order_relaxed);
  if (last == 0) return true;
  if (!MarksItsWork(slot)) return now_ns >= last + kIdleAfterNs;
  // A queue of less than two marks is one that the CPU does not keep filled.
  const auto queued = static_cast<std::int32_t>(slot.submitted.load(std::memory_order_relaxed) -
                                                slot.passed.load(std::memory_order_relaxed));
  return queued < 2 || now_ns >= last + kStuckAfterNs;
}

bool HasWork(const Slot& slot, std::uint64_t now_ns) {
  if (!IsDry(slot, now_ns)) return true;
  const std::uint64_t since = slot.dry_since_ns.load(std::memory_order_relaxed);
  return MarksItsWork(slot) && since != 0 && now_ns < since + kDryAfterNs;
}

struct Hindmost {
  std::uint64_t virtual_ns = UINT64_MAX;  // If there is none.
  std::uint32_t weight = 100;
};

// Of the others at work, and of `observer` in any case.
Hindmost HindmostOfOthers(const Board& board, int own, int observer, std::uint64_t now_ns) {
  Hindmost found;
  for (int i = 0; i < kSlots; ++i) {
    const Slot& slot = board.slots[i];
    if (i == own || !IsBatch(slot) || (i != observer && !HasWork(slot, now_ns))) continue;
    const std::uint64_t time = slot.virtual_ns.load(std::memory_order_relaxed);
    if (time < found.virtual_ns) found = {time, slot.job.weight};
  }
  return found;
}

void NoteDry(Board& board, int dry, int observer, std::uint64_t now_ns) {
  Slot& slot = board.slots[dry];
  if (slot.dry_since_ns.load(std::memory_order_acquire) != 0) return;
  std::uint64_t lag = 0;
  // Of one without marks it is seen too late: the lag would be that of its idling.
  if (MarksItsWork(slot)) {
    const std::uint64_t others = HindmostOfOthers(board, dry, observer, now_ns).virtual_ns;
    const std::uint64_t own = slot.virtual_ns.load(std::memory_order_relaxed);
    if (others > own) lag = others - own;
  }
  slot.dry_lag_ns.store(lag, std::memory_order_relaxed);
  std::uint64_t none = 0;
  slot.dry_since_ns.compare_exchange_strong(none, now_ns, std::memory_order_release);
}

}  // namespace

bool LeadsTooFar(Board& board, int slot, std::uint64_t now_ns) {
  if (board.batch_jobs.load(std::memory_order_relaxed) < 2) return false;
  for (int i = 0; i < kSlots; ++i) {
    if (i != slot && IsBatch(board.slots[i]) && IsDry(board.slots[i], now_ns))
      NoteDry(board, i, slot, now_ns);
  }
  const std::uint64_t least = HindmostOfOthers(board, slot, -1, now_ns).virtual_ns;
  return least != UINT64_MAX &&
         board.slots[slot].virtual_ns.load(std::memory_order_relaxed) > least + kMayLeadNs;
}

std::uint64_t VirtualNs(std::uint64_t gpu_ns, std::uint32_t weight) {
  return gpu_ns * 100 / (weight == 0 ? 1 : weight);
}

void ComeBack(Board& board, int slot, std::uint64_t now_ns) {
  Slot& own = board.slots[slot];
  const std::uint64_t since = own.dry_since_ns.exchange(0, std::memory_order_acquire);
  if (since == 0 || now_ns <= since) return;
  const Hindmost others = HindmostOfOthers(board, slot, -1, now_ns);
  const std::uint64_t lag = own.dry_lag_ns.load(std::memory_order_relaxed);
  if (others.virtual_ns == UINT64_MAX || others.virtual_ns < lag) return;
  // They cannot have had more of the GPU than there was time, however far ahead they launched.
  const std::uint64_t before = own.virtual_ns.load(std::memory_order_relaxed);
  const std::uint64_t most = before + VirtualNs(now_ns - since, others.weight);
  const std::uint64_t there = others.virtual_ns - lag < most ? others.virtual_ns - lag : most;
  if (there > before) own.virtual_ns.store(there, std::memory_order_relaxed);
}

}  // namespace divvy::gate
