#pragma once

// Where a batch job puts its markers: points in a stream at which the GPU looks whether a latency
// job wants it.

#include "gate/costs.h"

namespace divvy::gate {

// About this much predicted work of a job, evenly spread over its streams, runs between their
// markers, or in each one kernel that is longer. A marker costs the GPU two to three microseconds;
// where the latency jobs leave room, they are put further apart.
inline constexpr std::uint32_t kMarkerIntervalNs = 100'000;
[[nodiscard]] std::uint32_t MarkerIntervalNs(std::uint32_t least_openness);

// The class of a kernel: what a latency job's level is compared with. Light kernels have class 1;
// others of up to 16 us have class 2, each doubling one more: a level of ClassOf(d) therefore lets
// in what takes up to d.
inline constexpr std::uint32_t kLightClass = 1;
[[nodiscard]] std::uint32_t ClassOf(std::uint32_t ns);

struct StreamGauge {
  std::atomic<std::uint32_t> unmarked_ns;  // work launched since the last marker
  std::atomic<std::uint32_t> round;        // of the spread in which it was last launched into,
  std::atomic<std::uint32_t> round_ns;     // and the work launched into it in that round
};

// Over how many streams a job's work is spread, told anew after every millisecond of it: streams
// that get more than that in one go count as one. When the gate closes a stretch of each stream
// still runs: with several streams stretches are shorter.
struct StreamSpread {
  std::atomic<std::uint32_t> round;
  std::atomic<std::uint32_t> total_ns;  // launched in this round,
  std::atomic<std::uint32_t> most_ns;   // and into the stream that got most of it
  std::atomic<std::uint32_t> streams;   // by the round before; 0: none is over
};
inline constexpr std::uint32_t kSpreadRoundNs = 1'000'000;
// An MPS client under `divvy run` has this many ways into the GPU unless told otherwise; and more
// would be a marker before every kernel.
inline constexpr std::uint32_t kMostSpread = 4;

struct Marking {
  bool marker = false;          // put a marker before this launch
  std::uint32_t job_class = 0;  // of that marker
};

// What to do about one launch into the stream of `gauge`, one of those of `spread`.
[[nodiscard]] Marking Mark(StreamGauge& gauge, StreamSpread& spread, const Cost& cost,
                           std::uint32_t interval_ns);

}  // namespace divvy::gate
