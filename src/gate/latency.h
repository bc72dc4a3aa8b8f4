#pragma once

// When a latency job needs the GPU, and how far batch jobs may run meanwhile.
//
// A job is idle, launching (work is submitted, its CPU goes on), waiting (its CPU is stopped until
// the GPU has finished) or resting (just done; the next request is likely to follow at once). Only
// waiting hurts it. While it launches kernel by kernel the GPU mostly idles, and batch work may
// fill the gaps as long as the job's own kernels are not far behind (known from progress marks,
// which the GPU writes as it passes them) and its end is not near (known from how many launches its
// requests usually take): what is late then has no time left to be caught up.

#include "gate/board.h"

#include <cstdint>

namespace divvy::gate {

struct LatencyTuning {
  std::uint32_t waiting_level = kClosed;  // who may run while the job waits
  std::uint32_t marks_behind = 1;  // progress marks outstanding from which on it counts as waiting
  std::uint32_t open_share =
      0;  // of a request's usual launches, in hundredths: until then all may run
  std::uint32_t closed_share =
      100;                    // of its usual wait, in hundredths: after that all may run again
  std::uint32_t rest_ns = 0;  // longest rest
  // Only once a graph is submitted, not while its CPU is at it (100 us and more): what is under way
  // then is in the request's way, and the GPU does not idle.
  bool closes_late = false;
};

// The tuning for an openness of 0 .. kNoProtection.
[[nodiscard]] LatencyTuning TuningAt(std::uint32_t openness);

inline constexpr std::uint32_t kTight = 0;
inline constexpr std::uint32_t kBalanced = 500;

// Launches between two progress marks of a job that launches kernel by kernel.
inline constexpr std::uint32_t kLaunchesPerMark = 8;

// The job's state, from the counts of its threads in each.
struct LatencyCounts {
  std::uint32_t active = 0;    // threads with work submitted and not known to be done
  std::uint32_t waiting = 0;   // of them: stopped until it is
  std::uint32_t behind = 0;    // progress marks outstanding
  std::uint64_t launched = 0;  // launches of this request so far
  std::uint64_t usual_launches = 0;
  bool resting = false;  // a request that begins meanwhile finds the gate closed
  bool early = false;    // the gate was opened before the end of the wait
};

[[nodiscard]] std::uint32_t LevelFor(const LatencyCounts& counts, const LatencyTuning& tuning);

// How long to keep the gate closed in a wait that usually takes `usual_ns`; 0: to its end.
[[nodiscard]] std::uint64_t ClosedNs(const LatencyTuning& tuning, std::uint64_t usual_ns);

// A job that has launched nothing for this long and waits for nothing has left its work to itself.
inline constexpr std::uint64_t kAbandonedNs = 5'000'000;

// What a request usually takes, `usual_ns` so far (0: not known), after one that took `took_ns`. It
// falls fast and rises slowly: a program's first requests take longer than those it serves, and
// what is to happen before a request's end must not come after it.
[[nodiscard]] std::uint64_t UsualNs(std::uint64_t usual_ns, std::uint64_t took_ns);

// The mean of the last requests, each of which counts for an eighth: `mean_ns` so far (0: not
// known), after one that took `took_ns`. A program's first ones may take a thousand times as long:
// one that takes less than an eighth counts for a half.
[[nodiscard]] std::uint64_t MeanNs(std::uint64_t mean_ns, std::uint64_t took_ns);

// How long to rest after a request of about `request_ns`. One that is apart rests for as long as
// the next of several in a row takes to come, whatever its requests take: fetching the GPU back
// would take longer.
[[nodiscard]] std::uint32_t RestNs(const LatencyTuning& tuning, std::uint64_t request_ns,
                                   bool apart);
inline constexpr std::uint32_t kApartRestNs = 100'000;

}  // namespace divvy::gate
