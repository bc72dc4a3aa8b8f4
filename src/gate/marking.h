#pragma once

// Where a batch job puts its markers: points in a stream at which the GPU looks whether a latency
// job wants it.

#include "gate/costs.h"

namespace divvy::gate {

// At most this much predicted work of a stream runs between two markers, or one kernel that is
// longer. A marker costs the GPU two to three microseconds; where the latency jobs leave room, they
// are put further apart.
inline constexpr std::uint32_t kMarkerIntervalNs = 100'000;
[[nodiscard]] std::uint32_t MarkerIntervalNs(std::uint32_t least_openness);

// The class of a kernel: what a latency job's level is compared with. Light kernels have class 1;
// others of up to 16 us have class 2, each doubling one more: a level of ClassOf(d) therefore lets
// in what takes up to d.
inline constexpr std::uint32_t kLightClass = 1;
[[nodiscard]] std::uint32_t ClassOf(std::uint32_t ns);

struct StreamGauge {
  std::atomic<std::uint32_t> unmarked_ns;  // work launched since the last marker
};

struct Marking {
  bool marker = false;          // put a marker before this launch
  std::uint32_t job_class = 0;  // of that marker
};

// What to do about one launch.
[[nodiscard]] Marking Mark(StreamGauge& gauge, const Cost& cost, std::uint32_t interval_ns);

}  // namespace divvy::gate
