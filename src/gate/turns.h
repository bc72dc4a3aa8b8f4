#pragma once

// Batch jobs of one GPU in turn: each may run ahead of the others' virtual time (GPU time over
// weight) by so much. Only who has work on the GPU holds others back: a job that its CPU keeps
// busy, or that waits for data, would get no further by their waiting. Nor is time without work a
// claim on the GPU later: what others did meanwhile leaves a job no further behind.

#include "gate/board.h"

namespace divvy::gate {

inline constexpr std::uint64_t kMayLeadNs = 20'000'000;
// A job whose marks are all passed has work for so long still: behind the last mark there may be
// some, and between two steps there is a moment without.
inline constexpr std::uint64_t kDryAfterNs = 3'000'000;
// One that cannot put marks has work for so long after a launch.
inline constexpr std::uint64_t kIdleAfterNs = 50'000'000;
// Streams may pass marks out of order, and the last one never be seen: it holds others no longer.
inline constexpr std::uint64_t kStuckAfterNs = 1'000'000'000;

// Whether the batch job in `slot` should let others catch up before it launches more. Notes which
// of the others have no work.
[[nodiscard]] bool LeadsTooFar(Board& board, int slot, std::uint64_t now_ns);

// GPU time in virtual time of a weight in hundredths.
[[nodiscard]] std::uint64_t VirtualNs(std::uint64_t gpu_ns, std::uint32_t weight);

// The job in `slot` has work again: where it stands then, if others saw it without.
void ComeBack(Board& board, int slot, std::uint64_t now_ns);

}  // namespace divvy::gate
