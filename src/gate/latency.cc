#include "gate/latency.h"

#include "gate/marking.h"

#include <algorithm>

namespace divvy::gate {

LatencyTuning TuningAt(std::uint32_t openness) {
  if (openness >= kNoProtection) {
    return {.waiting_level = kOpen,
            .marks_behind = UINT32_MAX,
            .open_share = 100,
            .closed_share = 0,
            .rest_ns = 0,
            .closes_late = true};
  }
  LatencyTuning tuning;
  tuning.marks_behind = 4 + openness / 250;
  tuning.open_share = 70 + openness * 6 / kBalanced;
  // What is between two requests in a row: without a rest the second meets what was let in there.
  tuning.rest_ns = 200'000 - openness * 300;
  if (openness > kBalanced) {
    // Opening before the end of a wait makes the wait longer, and with it the next ones' closed
    // part: neither side gains much.
    const std::uint32_t beyond = openness - kBalanced;
    tuning.open_share = 76 + beyond * 24 / (kNoProtection - kBalanced);
    tuning.closed_share = 100 - beyond * 100 / (kNoProtection - kBalanced);
    tuning.rest_ns = 50'000 - beyond * 100;
  }
  if (openness >= kBalanced) {
    tuning.waiting_level = kLightClass;
    tuning.closes_late = true;
  }
  return tuning;
}

std::uint32_t LevelFor(const LatencyCounts& counts, const LatencyTuning& tuning) {
  if (counts.waiting > 0) return counts.early ? kOpen : tuning.waiting_level;
  if (counts.active > 0) {
    const bool near_end = counts.launched * 100 >= counts.usual_launches * tuning.open_share;
    return counts.resting || near_end || counts.behind >= tuning.marks_behind ? tuning.waiting_level
                                                                              : kOpen;
  }
  return counts.resting ? tuning.waiting_level : kOpen;
}

std::uint64_t ClosedNs(const LatencyTuning& tuning, std::uint64_t usual_ns) {
  // Below this there is too little to win for the trouble of a timer.
  constexpr std::uint64_t kWorthwhileNs = 300'000;
  return tuning.closed_share >= 100 || usual_ns < kWorthwhileNs
             ? 0
             : usual_ns * tuning.closed_share / 100 + 1;
}

std::uint64_t UsualNs(std::uint64_t usual_ns, std::uint64_t took_ns) {
  if (usual_ns == 0) return took_ns;
  if (took_ns < usual_ns) return usual_ns - (usual_ns - took_ns + 1) / 2;
  return usual_ns + (std::min(took_ns, 2 * usual_ns) - usual_ns + 7) / 8;
}

std::uint64_t MeanNs(std::uint64_t mean_ns, std::uint64_t took_ns) {
  if (mean_ns == 0) return took_ns;
  if (took_ns < mean_ns / 8) return (mean_ns + took_ns) / 2;
  return mean_ns - mean_ns / 8 + std::min(took_ns, 2 * mean_ns) / 8;
}

std::uint32_t RestNs(const LatencyTuning& tuning, std::uint64_t request_ns, bool apart) {
  const std::uint64_t wanted = apart ? kApartRestNs : request_ns / 16;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(wanted, tuning.rest_ns));
}

}  // namespace divvy::gate
