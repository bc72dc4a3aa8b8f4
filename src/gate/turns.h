#pragma once

// Batch jobs of one GPU in turn: each may run ahead of the others' virtual time (GPU time over
// weight) by so much. Only a job whose queue is filled holds others back: one that its CPU keeps
// busy, or that waits for data, would get no further by their waiting.

#include "gate/board.h"

namespace divvy::gate {

inline constexpr std::uint64_t kMayLeadNs = 20'000'000;
// GPU time after which a job looks at the others, and puts a mark into its stream.
inline constexpr std::uint64_t kMarkNs = 500'000;
// With less than that under way a job's queue is short: its CPU does not keep it filled.
inline constexpr std::int32_t kShortQueueUs = 1'000;
// While it is alone on the GPU, one may have as much under way as it could do in the longest such
// moment.
inline constexpr std::int64_t kAloneQueueUs = 60'000;
// Who is further behind than others can have got ahead of it was idle for long, which is no claim.
inline constexpr std::uint64_t kMostClaimNs = 2 * kMayLeadNs;
// GPU time by which a job can get ahead in a moment in which it is alone, beside others whose
// queues stay filled: what it does then, and what it has under way at the end.
inline constexpr std::uint64_t kMomentNs = 2 * std::uint64_t{kAloneQueueUs} * 1'000;
// Time without work takes a job up to so far behind the others: there neither it nor they are near
// to pausing, and one with little queued would lose most by a pause.
inline constexpr std::uint64_t kBehindAfterIdleNs = kMayLeadNs / 4;
// A job whose queue has run short is waited for so long still: that is the end of a step.
inline constexpr std::uint64_t kStepEndNs = 1'000'000;
// One that cannot put marks, or whose marks say little, has work for so long after a launch at
// most.
inline constexpr std::uint64_t kIdleAfterNs = 50'000'000;
// Streams of one track may pass marks out of order, and the last one never be seen: so long after
// a launch it holds others no more.
inline constexpr std::uint64_t kStuckAfterNs = 1'000'000'000;

// Predicted GPU time between two counters of a track: none where the first is ahead, or so far
// behind that what the GPU wrote there last was of a job that had the slot before.
[[nodiscard]] std::int32_t UnderWayUs(std::uint32_t passed, std::uint32_t submitted);
// Whether others see of the batch job in `slot` that it has more than a short queue under way.
[[nodiscard]] bool HasFilledQueue(const Slot& slot, std::uint64_t now_ns);
// Whether the GPU writes down how far a batch job has come.
[[nodiscard]] bool MarksItsWork(const Slot& slot);
[[nodiscard]] bool IsBatch(const Slot& slot);

// Whether the batch job in `slot` should let others catch up before it launches more: while it is
// alone on the GPU only if its queue is long. Notes whose queue has run short.
[[nodiscard]] bool LeadsTooFar(Board& board, int slot, std::uint64_t now_ns);

// For how long it does so at most before each launch: who is let go on sooner than all others could
// have had their part, and launches a long kernel each time, gets more than its own.
[[nodiscard]] std::uint64_t LongestPauseNs(const Board& board);

// GPU time in virtual time of a weight in hundredths.
[[nodiscard]] std::uint64_t VirtualNs(std::uint64_t gpu_ns, std::uint32_t weight);

// To be called before a job's launches are accounted: where it stands if it was idle, not so far
// behind the others that it would hold the GPU until it caught up.
void CatchUp(Board& board, int slot, std::uint64_t now_ns);

// A mark was put behind what the job launched on a track: `us` of predicted GPU time in all. If its
// queue was short for longer than the end of a step and is filled now, the time between counts as
// if the job had used it: else one that needs a fifth of the GPU would stay behind, and hold the
// others whenever it has something to do.
void NoteMark(Board& board, int slot, int track, std::uint32_t us, std::uint64_t now_ns);

// The job has let others catch up, and may go on: that its queue ran short meanwhile was not its
// own doing.
void NotePause(Slot& slot);

}  // namespace divvy::gate
