#include "gate/alone.h"

#include "gate/turns.h"

#include <algorithm>

namespace divvy::gate {
namespace {

// How often it is looked at what the GPU has passed.
constexpr std::uint64_t kLookNs = 500'000;
// Beyond its end a moment is somebody else's to end: its owner is stopped, or late.
constexpr std::uint64_t kGraceNs = 2'000'000;
// A stream may wait for one that stands at a wait, and never come to its own. Where nothing has
// moved for so long, and one stands there, they all stand; before, one may be in the middle of a
// long kernel.
constexpr std::uint64_t kQuietNs = 30'000'000;
// With less than that in filled stretches nothing is known, or a bound at most.
constexpr std::uint64_t kEnoughNs = kAloneNs / 2;
static_assert(kAloneQueueUs * 1'000 >= std::int64_t{kLongestAloneNs}, "it would run dry");
// Predictions are not that wrong: something else is.
constexpr std::uint64_t kLeastScale = kUnscaled / 64;
constexpr std::uint64_t kMostScale = std::uint64_t{kUnscaled} * 64;
// A new measurement counts for a quarter, the first ones for more.
constexpr std::uint32_t kAveraged = 4;
// One that is so many times what the last ones were is believed at once: these, or it, were taken
// while the GPU was at work that had been predicted otherwise.
constexpr std::uint64_t kFarOff = 3;

std::uint32_t Sum(const std::atomic<std::uint32_t> (&tracks)[kTracks]) {
  std::uint32_t us = 0;
  for (const std::atomic<std::uint32_t>& track : tracks)
    us += track.load(std::memory_order_relaxed);
  return us;
}

std::uint32_t PassedByOthers(const Board& board, int own) {
  std::uint32_t us = 0;
  for (int i = 0; i < kSlots; ++i) {
    if (i != own && IsBatch(board.slots[i])) us += Sum(board.slots[i].passed);
  }
  return us;
}

// Whether its streams have nothing to do, or wait to run again.
bool IsStill(const Slot& slot) {
  for (int i = 0; i < kTracks; ++i) {
    const std::uint32_t passed = slot.passed[i].load(std::memory_order_relaxed);
    if (UnderWayUs(passed, slot.submitted[i].load(std::memory_order_relaxed)) != 0 &&
        !IsAtWait(passed))
      return false;
  }
  return true;
}

bool AnyIsAtWait(const Slot& slot) {
  for (const std::atomic<std::uint32_t>& passed : slot.passed) {
    if (IsAtWait(passed.load(std::memory_order_relaxed))) return true;
  }
  return false;
}

// One that is broken, or passed its last marks out of order, never comes to the end of its work.
bool IsStuck(const Slot& slot, std::uint64_t now_ns) {
  return now_ns >= slot.last_launch_ns.load(std::memory_order_relaxed) + kStuckAfterNs;
}

bool OthersAreStill(const Board& board, int own, bool quiet, std::uint64_t now_ns) {
  for (int i = 0; i < kSlots; ++i) {
    const Slot& slot = board.slots[i];
    if (i == own || !IsBatch(slot) || IsStill(slot)) continue;
    if (!quiet || !(AnyIsAtWait(slot) || IsStuck(slot, now_ns))) return false;
  }
  return true;
}

// How long latency jobs have kept the gate closed in all, and whether one does now: the GPU is
// theirs then.
struct Closed {
  std::uint64_t ns = 0;
  bool now = false;
};

Closed ClosedByLatencyJobs(const Board& board) {
  Closed closed;
  for (const Slot& slot : board.slots) {
    if (slot.live.load(std::memory_order_acquire) == 0 ||
        slot.job.job_class.load(std::memory_order_relaxed) != JobClass::kLatency)
      continue;
    closed.ns += slot.closed_ns.load(std::memory_order_relaxed);
    closed.now = closed.now || slot.closed_since_ns.load(std::memory_order_relaxed) != 0;
  }
  return closed;
}

void LetAllRun(Board& board) {
  for (std::atomic<std::uint32_t>& word : board.may_run)
    word.store(UINT32_MAX, std::memory_order_release);
}

// Ends the moment that lasts `until_ns`, and no later one.
void EndMoment(Board& board, std::uint64_t until_ns) {
  // First, so that nobody stays stopped by one who dies here.
  LetAllRun(board);
  board.alone_until_ns.compare_exchange_strong(until_ns, 0, std::memory_order_acq_rel);
}

// Of its own or, where its queue is short, while it lets others catch up.
bool IsAtWork(const Slot& slot, std::uint64_t now_ns) {
  const std::uint64_t last = slot.last_launch_ns.load(std::memory_order_relaxed);
  return IsBatch(slot) && last != 0 && now_ns < last + kIdleAfterNs;
}

// What a job's kernels take is not known at once, and until it is its marks and waits are too far
// apart; and what it launched while it had the GPU for itself is not marked at all.
bool IsKnown(const Slot& slot) {
  const std::uint32_t shared =
      Sum(slot.submitted) - slot.shared_from_us.load(std::memory_order_relaxed);
  return shared >= kAloneNs / 1'000;
}

// Not where it is so far ahead that it was not written since this machine was started.
bool IsAhead(std::uint64_t time_ns, std::uint64_t at_most_ns, std::uint64_t now_ns) {
  return now_ns < time_ns && time_ns - now_ns <= at_most_ns;
}

// Whether the job in `slot` comes next: it shares the GPU with others at work, one at least of all
// these with a filled queue, and none of them has waited longer, but where it is new. One whose
// queue is short may be paused for being charged too much.
bool IsNext(const Board& board, int slot, bool is_new, std::uint64_t now_ns) {
  const std::uint64_t next =
      (is_new ? board.alone_soon_ns : board.alone_next_ns).load(std::memory_order_relaxed);
  if (board.batch_jobs.load(std::memory_order_relaxed) < 2 ||
      board.alone_until_ns.load(std::memory_order_relaxed) != 0 ||
      IsAhead(next, (kLaterAgain + 1) * kLongestAloneNs, now_ns) ||
      !IsAtWork(board.slots[slot], now_ns))
    return false;
  const std::uint64_t own = board.slots[slot].alone_ns.load(std::memory_order_relaxed);
  bool shared = false;
  bool filled = HasFilledQueue(board.slots[slot], now_ns);
  for (int i = 0; i < kSlots; ++i) {
    const Slot& other = board.slots[i];
    if (i == slot || !IsBatch(other)) continue;
    // Nobody stops one that cannot wait on the GPU, should it begin to work.
    if (!MarksItsWork(other)) return false;
    if (!IsAtWork(other, now_ns)) continue;
    if (!IsKnown(other)) return false;
    const std::uint64_t its = other.alone_ns.load(std::memory_order_relaxed);
    if (!is_new && (its < own || (its == own && i < slot))) return false;
    shared = true;
    filled = filled || HasFilledQueue(other, now_ns);
  }
  return shared && filled;
}

}  // namespace

RunBit RunBitOf(int slot) { return {slot / 32, std::uint32_t{1} << (slot % 32)}; }

bool IsAnyUnmeasurable(const Board& board, std::uint64_t now_ns) {
  for (const Slot& slot : board.slots) {
    if (!IsAtWork(slot, now_ns)) continue;
    if (!MarksItsWork(slot) || slot.scale.load(std::memory_order_relaxed) == kUnmeasurable)
      return true;
  }
  return false;
}

void EndAloneIfOverdue(Board& board, std::uint64_t now_ns) {
  const std::uint64_t until = board.alone_until_ns.load(std::memory_order_acquire);
  if (until == 0) {
    // One that was stopped before it stopped the others, and went on when its moment was over.
    for (const std::atomic<std::uint32_t>& word : board.may_run) {
      if (word.load(std::memory_order_relaxed) != UINT32_MAX) LetAllRun(board);
    }
    return;
  }
  const std::int32_t slot = board.alone_slot.load(std::memory_order_relaxed);
  const bool is_there =
      slot >= 0 && slot < kSlots && IsBatch(board.slots[slot]) && !IsGone(board.slots[slot]);
  if (!is_there || !IsAhead(until + kGraceNs, 2 * kLongestAloneNs, now_ns)) EndMoment(board, until);
}

std::uint64_t AloneMeter::Step(Board& board, int slot, bool measurable, std::uint64_t now_ns) {
  if (until_ns_ != 0) {
    if (slot == slot_ && board.alone_until_ns.load(std::memory_order_relaxed) == until_ns_) {
      // What waits for others is not to wait for its end, and what is charged changes (TakeScale).
      const bool is_void = !measurable || IsAnyUnmeasurable(board, now_ns);
      if (!is_void) {
        Look(board, now_ns);
        if (now_ns < until_ns_ && !IsEnough(board, now_ns)) return now_ns + kLookNs;
        Learn(board, now_ns);
      }
      End(board, now_ns);
    }
    if (IsNew()) ++tries_;
    until_ns_ = 0;
    return 0;
  }
  Slot& own = board.slots[slot];
  if (!measurable) {
    own.scale.store(kUnmeasurable, std::memory_order_relaxed);
    return 0;
  }
  std::uint32_t before = kUnmeasurable;  // Others wait for it to be known, too.
  own.scale.compare_exchange_strong(before, 0, std::memory_order_relaxed);
  if (board.batch_jobs.load(std::memory_order_relaxed) < 2) {
    // What it is charged is right again (Learn).
    *this = AloneMeter();
    own.scale.store(0, std::memory_order_relaxed);
    own.shared_from_us.store(Sum(own.submitted), std::memory_order_relaxed);
  }
  if (IsAnyUnmeasurable(board, now_ns)) {
    if (own.scale.load(std::memory_order_relaxed) != 0)
      own.scale.store(scale_, std::memory_order_relaxed);
    return 0;
  }
  if (!IsNext(board, slot, IsNew(), now_ns)) return 0;
  std::uint64_t none = 0;
  const std::uint64_t until = now_ns + kLongestAloneNs;
  if (!board.alone_until_ns.compare_exchange_strong(none, until, std::memory_order_acq_rel))
    return 0;
  board.alone_slot.store(slot, std::memory_order_relaxed);
  // As they stand if it is killed, or somebody else ends its moment.
  own.alone_ns.store(now_ns, std::memory_order_relaxed);
  board.alone_soon_ns.store(now_ns + kLongestAloneNs * kSoonAgain, std::memory_order_relaxed);
  board.alone_next_ns.store(now_ns + kLongestAloneNs * kLaterAgain, std::memory_order_relaxed);
  for (int i = 0; i < kSlots / 32; ++i) {
    const RunBit bit = RunBitOf(slot);
    board.may_run[i].store(i == bit.word ? bit.bit : 0, std::memory_order_release);
  }
  Begin(board, slot, until, now_ns);
  return now_ns + kLookNs;
}

bool AloneMeter::IsNew() const { return tries_ < kAveraged; }

std::uint32_t AloneMeter::TakeScale() {
  const std::uint32_t scale = scale_;
  scale_ = taken_ = kUnscaled;
  count_ = 0;
  return scale;
}

std::uint32_t AloneMeter::Scale(const Board& board, std::uint64_t now_ns) const {
  for (const Slot& slot : board.slots) {
    const std::uint32_t its = slot.scale.load(std::memory_order_relaxed);
    if ((its == 0 || its == kUnmeasurable) && IsAtWork(slot, now_ns)) return kUnscaled;
  }
  return scale_;
}

void AloneMeter::Begin(const Board& board, int slot, std::uint64_t until_ns, std::uint64_t now_ns) {
  until_ns_ = until_ns;
  began_ns_ = now_ns;
  slot_ = slot;
  others_us_ = PassedByOthers(board, slot);
  others_moved_ns_ = now_ns;
  latency_closed_ns_ = ClosedByLatencyJobs(board).ns;
  in_stretch_ = false;
  passed_us_ = 0;
  for (int i = 0; i < kTracks; ++i) {
    furthest_us_[i] = board.slots[slot].passed[i].load(std::memory_order_relaxed);
    passed_us_ += furthest_us_[i];
  }
  first_ns_ = 0;
  still_ns_ = 0;
  took_ns_ = 0;
  work_us_ = 0;
}

void AloneMeter::Learn(Board& board, std::uint64_t now_ns) {
  EndStretch();
  Slot& own = board.slots[slot_];
  // One that was stopped meanwhile has not seen what happened.
  const bool was_away = now_ns > until_ns_ + kGraceNs;
  const bool is_enough = took_ns_ >= kEnoughNs && work_us_ > 0;
  const bool was_short = WasAlone(now_ns) && !HasFilledQueue(own, now_ns);
  if (was_away || !(is_enough || was_short)) return;
  is_enough ? Take() : Bound(now_ns);
  own.scale.store(scale_, std::memory_order_relaxed);
}

void AloneMeter::End(Board& board, std::uint64_t now_ns) const {
  EndMoment(board, until_ns_);
  const std::uint64_t took = std::min(now_ns - began_ns_, kLongestAloneNs);
  board.alone_soon_ns.store(now_ns + took * kSoonAgain, std::memory_order_relaxed);
  board.alone_next_ns.store(now_ns + took * kLaterAgain, std::memory_order_relaxed);
}

std::uint32_t AloneMeter::Passed(const Slot& own) {
  std::uint32_t us = 0;
  for (int i = 0; i < kTracks; ++i) {
    const std::uint32_t passed = own.passed[i].load(std::memory_order_relaxed);
    if (static_cast<std::int32_t>(passed - furthest_us_[i]) > 0) furthest_us_[i] = passed;
    us += furthest_us_[i];
  }
  return us;
}

void AloneMeter::Look(const Board& board, std::uint64_t now_ns) {
  const Slot& own = board.slots[slot_];
  const std::uint32_t others = PassedByOthers(board, slot_);
  const std::uint32_t passed = Passed(own);
  const bool moved = passed != passed_us_;
  passed_us_ = passed;
  if (others != others_us_) others_moved_ns_ = now_ns;
  const bool quiet = now_ns >= others_moved_ns_ + kQuietNs;
  if (others != others_us_ || !OthersAreStill(board, slot_, quiet, now_ns)) {
    // They have yet to come to their waits: it was not alone until now.
    others_us_ = others;
    in_stretch_ = false;
    took_ns_ = 0;
    work_us_ = 0;
    still_ns_ = 0;
    return;
  }
  if (still_ns_ == 0) {
    still_ns_ = now_ns;
    bound_from_ns_ = 0;
  }
  const Closed closed = ClosedByLatencyJobs(board);
  const bool interrupted = closed.now || closed.ns != latency_closed_ns_;
  latency_closed_ns_ = closed.ns;
  if (moved && bound_from_ns_ == 0) {
    // What it passed first was done in part before it was alone.
    bound_from_ns_ = now_ns;
    bound_from_us_ = passed;
    busy_ns_ = 0;
  } else if (bound_from_ns_ != 0 && !interrupted && !IsStill(own)) {
    busy_ns_ += now_ns - looked_ns_;
  }
  looked_ns_ = now_ns;
  if (interrupted || !HasFilledQueue(own, now_ns)) {
    EndStretch();
  } else if (moved && !in_stretch_) {
    in_stretch_ = true;
    first_ns_ = last_ns_ = now_ns;
    first_us_ = last_us_ = passed;
  } else if (moved) {
    last_ns_ = now_ns;
    last_us_ = passed;
  }
}

void AloneMeter::EndStretch() {
  if (!in_stretch_) return;
  in_stretch_ = false;
  took_ns_ += last_ns_ - first_ns_;
  work_us_ += last_us_ - first_us_;
}

bool AloneMeter::IsEnough(const Board& board, std::uint64_t now_ns) const {
  if (now_ns < began_ns_ + kAloneNs) return false;
  const std::uint64_t took = took_ns_ + (in_stretch_ ? last_ns_ - first_ns_ : 0);
  return took >= kEnoughNs || (WasAlone(now_ns) && !HasFilledQueue(board.slots[slot_], now_ns));
}

bool AloneMeter::WasAlone(std::uint64_t now_ns) const {
  return still_ns_ != 0 && now_ns >= still_ns_ + kAloneNs;
}

void AloneMeter::Bound(std::uint64_t now_ns) {
  const std::uint64_t work_us = bound_from_ns_ == 0 ? 0 : passed_us_ - bound_from_us_;
  if (work_us == 0) return;
  const std::uint64_t most = (now_ns - bound_from_ns_) * kUnscaled / (work_us * 1'000);
  const std::uint64_t seen = std::min(busy_ns_ * kUnscaled / (work_us * 1'000), kMostScale);
  const std::uint64_t not_more = std::max<std::uint64_t>(taken_, seen);
  scale_ = static_cast<std::uint32_t>(std::clamp(most, kLeastScale, not_more));
}

void AloneMeter::Take() {
  std::uint64_t scale = took_ns_ * kUnscaled / (work_us_ * 1'000);
  if (scale < kLeastScale) scale = kLeastScale;
  if (scale > kMostScale) scale = kMostScale;
  const std::uint64_t known = taken_;
  if (count_ < kAveraged) ++count_;
  if (scale > known * kFarOff || scale * kFarOff < known) count_ = 1;
  const auto before = static_cast<std::int64_t>(taken_);
  scale_ = taken_ =
      static_cast<std::uint32_t>(before + (static_cast<std::int64_t>(scale) - before) / count_);
}

}  // namespace divvy::gate
