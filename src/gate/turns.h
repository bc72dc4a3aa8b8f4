#pragma once

// Batch jobs of one GPU in turn: each may run ahead of the others' virtual time (GPU time over
// weight) by so much.

#include "gate/board.h"

namespace divvy::gate {

inline constexpr std::uint64_t kMayLeadNs = 20'000'000;
// A job that launched nothing for this long does not hold the others back.
inline constexpr std::uint64_t kIdleAfterNs = 50'000'000;

// Whether the batch job in `slot` should let others catch up before it launches more.
[[nodiscard]] bool LeadsTooFar(const Board& board, int slot, std::uint64_t now_ns);

// GPU time in virtual time of a weight in hundredths.
[[nodiscard]] std::uint64_t VirtualNs(std::uint64_t gpu_ns, std::uint32_t weight);

// Where a job that comes back from idling stands: not behind the others, or it would hold the GPU
// until it caught up.
void CatchUp(Board& board, int slot, std::uint64_t now_ns);

}  // namespace divvy::gate
