#pragma once

#include <span>

#include "sim/simulation.h"

namespace divvy::sim {

struct SearchOptions {
  double attainment = 0.95;        // Share of the requests of every model that must be in time.
  double precision = 0.002;        // Relative, of the factor.
  std::uint64_t requests = 30000;  // More where rates differ much, so that all are seen.
  Duration duration = Duration::max();  // Of the load as it is; played faster, it is shorter.
  std::uint64_t seed = 1;
  std::vector<double> spread = {};  // As Options::spread.
};

// Latency-bounded throughput: the largest factor on all arrival rates at which
// every model still answers the wanted share of its requests in time; refused ones
// count as late. So, without shedding, p95 is at most the SLO. And the queue must not
// grow with the run: emptying it takes at most a twentieth of the run. Traces are played
// faster or slower. Found by bisection; each probe sees the same random numbers, so
// that the answer is smooth. 0 when not even a millionth of the load is in time.
[[nodiscard]] double LatencyBoundedFactor(const serving::Setup& setup,
                                          const serving::RouteOptions& route,
                                          std::span<const Source> sources,
                                          const SearchOptions& options);

// `sources` with every rate times `factor`. Traces are copied into `storage`, which
// must outlive the answer. REQUIRES: factor > 0.
[[nodiscard]] std::vector<Source> Scaled(std::span<const Source> sources, double factor,
                                         std::vector<std::vector<workload::Arrival>>& storage);

}  // namespace divvy::sim
