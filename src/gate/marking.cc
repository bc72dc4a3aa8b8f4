#include "gate/marking.h"

#include "gate/latency.h"

namespace divvy::gate {
namespace {

constexpr std::uint32_t kFirstClassNs = 16'000;

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

Marking Mark(StreamGauge& gauge, const Cost& cost, std::uint32_t interval_ns) {
  if (cost.exempt.load(std::memory_order_relaxed) != 0) return {};
  const std::uint32_t ns = PredictedNs(cost);
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
