#include "gate/marking.h"

#include "gate/latency.h"

namespace divvy::gate {
namespace {

constexpr std::uint32_t kFirstClassNs = 16'000;

// Counts a launch. Threads that launch at once may lose some of each other's counts: the spread is
// an estimate, and its way is that of every launch.
void Spread(StreamSpread& spread, StreamGauge& gauge, std::uint32_t ns) {
  const std::uint32_t work = ns < kSpreadRoundNs ? ns : kSpreadRoundNs;
  const std::uint32_t round = spread.round.load(std::memory_order_relaxed);
  const bool stale = gauge.round.load(std::memory_order_relaxed) != round;
  const std::uint32_t own = work + (stale ? 0 : gauge.round_ns.load(std::memory_order_relaxed));
  gauge.round.store(round, std::memory_order_relaxed);
  gauge.round_ns.store(own, std::memory_order_relaxed);
  const std::uint32_t total = spread.total_ns.load(std::memory_order_relaxed) + work;
  const std::uint32_t before = spread.most_ns.load(std::memory_order_relaxed);
  const std::uint32_t most = own > before ? own : before;
  if (total < kSpreadRoundNs || most == 0) {
    spread.total_ns.store(total, std::memory_order_relaxed);
    spread.most_ns.store(most, std::memory_order_relaxed);
    return;
  }
  // A stream with little in it next to the others counts for little.
  const std::uint32_t streams = (total + most / 2) / most;
  spread.streams.store(streams < kMostSpread ? streams : kMostSpread, std::memory_order_relaxed);
  spread.total_ns.store(0, std::memory_order_relaxed);
  spread.most_ns.store(0, std::memory_order_relaxed);
  spread.round.store(round + 1, std::memory_order_relaxed);
}

}  // namespace

std::uint32_t ClassOf(std::uint32_t ns) {
  std::uint32_t result = kLightClass + 1;
  for (std::uint64_t bound = kFirstClassNs; bound < ns; bound *= 2) ++result;
  return result;
}

std::uint32_t MarkerIntervalNs(std::uint32_t least_openness) {
  if (least_openness <= kBalanced) return kMarkerIntervalNs + least_openness * 400;
  return kMarkerIntervalNs + kBalanced * 400 + (least_openness - kBalanced) * 1'400;
}

Marking Mark(StreamGauge& gauge, StreamSpread& spread, const Cost& cost,
             std::uint32_t interval_ns) {
  if (cost.exempt.load(std::memory_order_relaxed) != 0) return {};
  const std::uint32_t ns = PredictedNs(cost);
  Spread(spread, gauge, ns);
  const std::uint32_t streams = spread.streams.load(std::memory_order_relaxed);
  if (streams > 1) interval_ns /= streams;
  const std::uint32_t unmarked = gauge.unmarked_ns.load(std::memory_order_relaxed);
  // Two threads that launch into one stream at once may both mark or both count: a marker more or
  // less.
  if (unmarked != 0 && unmarked < interval_ns && ns <= interval_ns - unmarked) {
    gauge.unmarked_ns.store(unmarked + ns, std::memory_order_relaxed);
    return {};
  }
  gauge.unmarked_ns.store(ns < interval_ns ? ns : interval_ns, std::memory_order_relaxed);
  return {.marker = true, .job_class = IsLight(cost) ? kLightClass : ClassOf(ns)};
}

}  // namespace divvy::gate
