#include "gate/turns.h"

#include <algorithm>

namespace divvy::gate {
namespace {

constexpr std::int32_t kMostUnderWayUs = 60'000'000;

std::int64_t QueuedUs(const Slot& slot) {
  std::int64_t queued = 0;
  for (int i = 0; i < kTracks; ++i) {
    queued += UnderWayUs(slot.passed[i].load(std::memory_order_relaxed),
                         slot.submitted[i].load(std::memory_order_relaxed));
  }
  return queued;
}

bool QueueIsShort(const Slot& slot) { return QueuedUs(slot) < kShortQueueUs; }

// One that is alone launches on, so that its queue stays filled, but no further ahead than it can
// come meanwhile: what is queued cannot be called back, and runs when the others may run again.
bool MayFillItsMoment(const Board& board, int slot) {
  const std::uint32_t known = board.slots[slot].scale.load(std::memory_order_relaxed);
  const std::int64_t scale = known == 0 || known == kUnmeasurable ? kUnscaled : known;
  return board.alone_until_ns.load(std::memory_order_relaxed) != 0 &&
         board.alone_slot.load(std::memory_order_relaxed) == slot &&
         QueuedUs(board.slots[slot]) * scale / kUnscaled < kAloneQueueUs;
}

// How long after its last launch a job's queue may still be under way. What one that cannot be
// measured has in its queue says little: marks of two streams on one track hide each other, and
// what stands behind a collective operation waits for other GPUs, not for this one.
std::uint64_t MostUnderWayNs(const Slot& slot) {
  const bool is_measurable = slot.scale.load(std::memory_order_relaxed) != kUnmeasurable;
  return MarksItsWork(slot) && is_measurable ? kStuckAfterNs : kIdleAfterNs;
}

bool HasWork(const Slot& slot, std::uint64_t now_ns) {
  const std::uint64_t last = slot.last_launch_ns.load(std::memory_order_relaxed);
  if (last == 0 || now_ns >= last + MostUnderWayNs(slot)) return false;
  if (!MarksItsWork(slot)) return true;
  if (!QueueIsShort(slot)) return true;
  const std::uint64_t since = slot.short_since_ns.load(std::memory_order_relaxed);
  return since != 0 && now_ns < since + kStepEndNs;
}

// The least virtual time of the others at work; UINT64_MAX if there are none.
std::uint64_t LeastOfOthers(const Board& board, int own, std::uint64_t now_ns) {
  std::uint64_t least = UINT64_MAX;
  for (int i = 0; i < kSlots; ++i) {
    const Slot& slot = board.slots[i];
    if (i == own || !IsBatch(slot) || !HasWork(slot, now_ns)) continue;
    const std::uint64_t time = slot.virtual_ns.load(std::memory_order_relaxed);
    if (time < least) least = time;
  }
  return least;
}

struct Span {
  std::uint64_t least = UINT64_MAX;
  std::uint64_t most = 0;
  std::uint64_t most_before = 0;  // without what they may have got ahead by in a moment of theirs
};

// Of the others that launched of late, with a filled queue or not: one that waits for us has none;
// and of those at what they launched long ago. As it stands if there are none.
Span TimesOfOthers(const Board& board, int own, std::uint64_t now_ns) {
  Span span;
  for (int i = 0; i < kSlots; ++i) {
    const Slot& slot = board.slots[i];
    if (i == own || !IsBatch(slot)) continue;
    const std::uint64_t last = slot.last_launch_ns.load(std::memory_order_relaxed);
    if (last == 0 || (now_ns >= last + kIdleAfterNs && !HasWork(slot, now_ns))) continue;
    const std::uint64_t time = slot.virtual_ns.load(std::memory_order_relaxed);
    if (time > span.most) span.most = time;
    const std::uint64_t lead = VirtualNs(kMomentNs, slot.job.weight);
    if (time > lead && time - lead > span.most_before) span.most_before = time - lead;
    if (time < span.least) span.least = time;
  }
  return span;
}

}  // namespace

bool IsBatch(const Slot& slot) {
  return slot.live.load(std::memory_order_acquire) != 0 &&
         slot.job.job_class.load(std::memory_order_relaxed) == JobClass::kBatch;
}

bool MarksItsWork(const Slot& slot) {
  return slot.mode.load(std::memory_order_relaxed) == static_cast<std::uint32_t>(GateMode::kDevice);
}

std::int32_t UnderWayUs(std::uint32_t passed, std::uint32_t submitted) {
  const auto here = static_cast<std::int32_t>(submitted - passed);
  return here < 0 || here > kMostUnderWayUs ? 0 : here;
}

bool HasFilledQueue(const Slot& slot, std::uint64_t now_ns) {
  return IsBatch(slot) && MarksItsWork(slot) && !QueueIsShort(slot) && HasWork(slot, now_ns);
}

bool LeadsTooFar(Board& board, int slot, std::uint64_t now_ns) {
  if (board.batch_jobs.load(std::memory_order_relaxed) < 2) return false;
  if (MayFillItsMoment(board, slot)) return false;
  for (int i = 0; i < kSlots; ++i) {
    Slot& other = board.slots[i];
    std::uint64_t none = 0;
    if (i != slot && IsBatch(other) && QueueIsShort(other))
      other.short_since_ns.compare_exchange_strong(none, now_ns, std::memory_order_relaxed);
  }
  const std::uint64_t least = LeastOfOthers(board, slot, now_ns);
  return least != UINT64_MAX &&
         board.slots[slot].virtual_ns.load(std::memory_order_relaxed) > least + kMayLeadNs;
}

std::uint64_t LongestPauseNs(const Board& board) {
  return kMayLeadNs * board.batch_jobs.load(std::memory_order_relaxed);
}

std::uint64_t VirtualNs(std::uint64_t gpu_ns, std::uint32_t weight) {
  return gpu_ns * 100 / (weight == 0 ? 1 : weight);
}

void CatchUp(Board& board, int slot, std::uint64_t now_ns) {
  if (board.batch_jobs.load(std::memory_order_relaxed) < 2) return;
  Slot& own = board.slots[slot];
  const bool marks = MarksItsWork(own);
  const std::uint64_t last = own.last_launch_ns.load(std::memory_order_relaxed);
  const std::uint64_t claim = marks || now_ns < last + kIdleAfterNs ? kMostClaimNs : 0;
  const std::uint64_t since = own.short_since_ns.load(std::memory_order_relaxed);
  const bool was_busy = marks && (since == 0 || now_ns <= since + kStepEndNs);
  const Span others = TimesOfOthers(board, slot, now_ns);
  // One that was idle is put no further ahead than the least of the others: it would wait for that.
  const std::uint64_t ahead =
      was_busy ? others.most_before
               : std::clamp(others.least + claim, others.most_before, others.most);
  if (ahead > claim && own.virtual_ns.load(std::memory_order_relaxed) < ahead - claim)
    own.virtual_ns.store(ahead - claim, std::memory_order_relaxed);
}

void NoteMark(Board& board, int slot, int track, std::uint32_t us, std::uint64_t now_ns) {
  Slot& own = board.slots[slot];
  own.submitted[track].store(us, std::memory_order_relaxed);
  if (QueueIsShort(own)) return;
  const std::uint64_t since = own.short_since_ns.exchange(0, std::memory_order_relaxed);
  if (since == 0 || now_ns <= since + kStepEndNs) return;
  const std::uint64_t time = own.virtual_ns.load(std::memory_order_relaxed);
  // The least of them: of three, the one that needs little would come to lead one, and be paused.
  const std::uint64_t least = TimesOfOthers(board, slot, now_ns).least;
  if (least == UINT64_MAX || least <= time + kBehindAfterIdleNs) return;
  const std::uint64_t room = least - kBehindAfterIdleNs - time;
  const std::uint64_t unused = VirtualNs(now_ns - since, own.job.weight);
  own.virtual_ns.fetch_add(unused < room ? unused : room, std::memory_order_relaxed);
}

void NotePause(Slot& slot) { slot.short_since_ns.store(0, std::memory_order_relaxed); }

}  // namespace divvy::gate
