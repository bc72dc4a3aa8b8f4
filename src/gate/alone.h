#pragma once

// How much of the GPU a batch job's work takes, measured by letting it run alone for a moment.
//
// Jobs that run side by side slow each other down, and the driver does not tell whose a kernel's
// time was: timed beside others, a kernel seems to take what all of them do meanwhile, and the job
// would be charged for time that it did not get. So when two and more batch jobs with filled queues
// share a GPU, they are alone on it for some 20 ms, one after the other and in a hundredth of the
// time in all. What the GPU then takes for a microsecond of predicted work is what the job is
// charged for one; as long as that is not known of all that are at work, all are charged as
// predicted, which is wrong for all of them alike. Of a job whose queue is short even then only a
// bound is known: its work did not take longer than it was alone.

#include "gate/board.h"

namespace divvy::gate {

inline constexpr std::uint64_t kAloneNs = 20'000'000;
// Where kernels or graphs are so long that few have ended by then. Others are stopped no longer.
inline constexpr std::uint64_t kLongestAloneNs = 60'000'000;
// The next is alone after so many times what the last one took: one that is new, and others.
inline constexpr std::uint64_t kSoonAgain = 9;
inline constexpr std::uint64_t kLaterAgain = 99;
// The word of `Board::may_run` that the kernels of the batch job in `slot` wait for, and its bit.
struct RunBit {
  int word;
  std::uint32_t bit;
};
[[nodiscard]] RunBit RunBitOf(int slot);

// A mark that a stream writes down before such a wait is odd, and the one behind it even, as are
// all others: so it can be seen that it waits.
[[nodiscard]] constexpr std::uint32_t MarkBeforeWait(std::uint32_t us) { return us | 1; }
[[nodiscard]] constexpr std::uint32_t MarkBehindWait(std::uint32_t us) { return (us | 1) + 1; }
[[nodiscard]] constexpr std::uint32_t PlainMark(std::uint32_t us) { return us & ~1U; }
[[nodiscard]] constexpr bool IsAtWait(std::uint32_t passed) { return (passed & 1) != 0; }

// Lets all batch jobs run again if the one that is alone is gone, or has been for too long. To be
// called by every job's keeper, every now and then, and by that of one that has left the board too:
// its streams may still wait there.
void EndAloneIfOverdue(Board& board, std::uint64_t now_ns);

// Whether a batch job is at work that cannot be measured: beside it nobody is.
[[nodiscard]] bool IsAnyUnmeasurable(const Board& board, std::uint64_t now_ns);

// A batch job's measuring of its own work on one GPU. For one thread.
class AloneMeter {
 public:
  // Begins to measure if it is the turn of the job in `slot`, goes on with it, or ends it. Returns
  // when to be called again at the latest; 0: whenever. One that is not `measurable` never begins,
  // nor do others beside it: a job that uses several GPUs, or meets others on them by collective
  // operations, since the time in which it waits for what is slow elsewhere would count as its own
  // and make it slower still, and one with more streams than tracks, whose marks hide each other.
  std::uint64_t Step(Board& board, int slot, bool measurable, std::uint64_t now_ns);

  // What was measured, which is forgotten: the caller takes it into what it predicts.
  [[nodiscard]] std::uint32_t TakeScale();
  // By what the job is to be charged, of what was predicted: `Slot::scale`.
  [[nodiscard]] std::uint32_t Scale(const Board& board, std::uint64_t now_ns) const;

 private:
  void Begin(const Board& board, int slot, std::uint64_t until_ns, std::uint64_t now_ns);
  void Learn(Board& board, std::uint64_t now_ns);
  void End(Board& board, std::uint64_t now_ns) const;
  void Look(const Board& board, std::uint64_t now_ns);
  void EndStretch();
  [[nodiscard]] std::uint32_t Passed(const Slot& own);
  [[nodiscard]] bool IsEnough(const Board& board, std::uint64_t now_ns) const;
  void Take();
  // Whether the others stood still for as long as a moment is to last.
  [[nodiscard]] bool WasAlone(std::uint64_t now_ns) const;
  void Bound(std::uint64_t now_ns);
  [[nodiscard]] bool IsNew() const;

  std::uint32_t scale_ = kUnscaled;
  std::uint32_t taken_ = kUnscaled;  // the same without bounds
  std::uint32_t count_ = 0;          // measurements that were taken, the first few
  std::uint32_t tries_ = 0;          // those that came to nothing too

  // While it is alone.
  std::uint64_t until_ns_ = 0;  // 0: it is not
  std::uint64_t began_ns_ = 0;
  int slot_ = -1;
  std::uint32_t others_us_ = 0;          // as far as the others' work had come,
  std::uint64_t others_moved_ns_ = 0;    // and when that was seen to change
  std::uint64_t latency_closed_ns_ = 0;  // for how long latency jobs had kept the gate closed
  // By track: threads that launch into one stream may put their marks there out of order.
  std::uint32_t furthest_us_[kTracks] = {};
  std::uint64_t still_ns_ = 0;       // since when they have not moved; 0: they do
  std::uint64_t bound_from_ns_ = 0;  // when it passed a mark first since then; 0: not yet
  std::uint32_t bound_from_us_ = 0;  // how far its own work was there
  std::uint64_t looked_ns_ = 0;      // when it was looked at last since then,
  std::uint64_t busy_ns_ = 0;        // and for how long there was work of its
  // A stretch of time in which its queue was filled, from mark to mark.
  bool in_stretch_ = false;
  std::uint64_t first_ns_ = 0;
  std::uint64_t last_ns_ = 0;
  std::uint32_t first_us_ = 0;
  std::uint32_t last_us_ = 0;
  std::uint32_t passed_us_ = 0;  // as it was last seen, in a stretch or not
  // Of all stretches.
  std::uint64_t took_ns_ = 0;
  std::uint64_t work_us_ = 0;
};

}  // namespace divvy::gate
