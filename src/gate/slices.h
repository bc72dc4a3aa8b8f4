#pragma once

// Turns on the GPU of those who do not share it by MPS.
//
// A process outside of MPS, and MPS' server with all its clients as one, have the GPU in turns. A
// turn is over when its owner has nothing to do, or after its *slice* when another has; the GPU
// then stops kernels in their middle and goes on with them later. The driver gives everybody
// slices of 2 ms. A latency job with long slices is not interrupted, and batch jobs with short ones
// are out of its way within a slice and a switch (0.2 ms on an H200).
//
// Short slices are not free: a latency job that launches kernel by kernel leaves the GPU after each
// of them, and what a batch job gets between two is its slice, less two switches.

#include "gate/board.h"

#include <cstdint>

namespace divvy::gate {

// What libcuda asks for.
inline constexpr std::uint32_t kDriverSliceUs = 2'048;
// Of a latency job that is apart: as long as most requests, and short enough for two such jobs.
inline constexpr std::uint32_t kLatencySliceUs = 20'000;
// A request of more launches is one of kernel by kernel.
inline constexpr std::uint32_t kStepwiseLaunches = 16;

// Beside such a job slices are no shorter, since shorter ones cost both: that is two switches.
inline constexpr std::uint32_t kLeastStepwiseUs = 300;
inline constexpr std::uint32_t kMostStepwiseUs = 4'000;

// The slice of batch jobs beside a latency job that is apart. Where it launches kernel by kernel,
// its requests take `stepwise_us`: at its end one waits for a slice and a switch at most, so that a
// slice is a part of a request's time. 0: it does not.
[[nodiscard]] std::uint32_t BatchSliceUs(std::uint32_t openness, std::uint32_t stepwise_us);

// What is told of requests that take `mean_ns` where `told_us` was: small changes are not, since
// slices would be set anew all the time.
[[nodiscard]] std::uint32_t StepwiseUs(std::uint32_t told_us, std::uint64_t mean_ns);

// Whether several, batch jobs in turns of their own or MPS' server, have turns beside each other:
// with short ones they would do nothing but switch.
[[nodiscard]] bool HasSeveralInTurns(const Board& board);

// The slice that the jobs on `board` want of MPS' server, or of a batch job in turns of its own:
// the shortest; the driver's own if none is apart, or several would have it.
[[nodiscard]] std::uint32_t WantedSliceUs(const Board& board);

// Whether a batch job's kernels can be interrupted by a job that is apart, so that they need no
// markers for it: `served` by MPS, in whose server's turns they run, or in turns of its own, those
// of `slot`.
[[nodiscard]] bool IsInterruptible(const Board& board, int slot, bool served);

}  // namespace divvy::gate
