#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "control/request_counter.h"
#include "sim/simulation.h"
#include "workload/load.h"

namespace divvy::app {

// What came in, as a controller learns of it. Not thread-safe.
class Observation {
 public:
  virtual ~Observation() = default;

  // Requests of each tenant in a slot, on average over those since the last answer. `slot`
  // is the one that begins, later than at the last look. Nothing when this look was the
  // first and only shows where counters stand; an Error, which says why, when it is not
  // known.
  [[nodiscard]] virtual Result<std::optional<std::vector<double>>> Look(int slot) = 0;
};

// Counters in a file of the Prometheus text format that somebody rewrites.
class MetricsObservation final : public Observation {
 public:
  MetricsObservation(std::string path, control::RequestCounter counter);

  Result<std::optional<std::vector<double>>> Look(int slot) override;

 private:
  std::string path_;
  control::RequestCounter counter_;
};

// The fleet's own load, drawn by seed: the requests that `divvy simulate --control` has
// with this seed.
class ReplayObservation final : public Observation {
 public:
  // Answers from the slot after `last_slot` on. What `sources` refer to outlives this.
  ReplayObservation(std::span<const sim::Source> sources, std::uint64_t seed, Duration slot,
                    int last_slot);

  Result<std::optional<std::vector<double>>> Look(int slot) override;

 private:
  struct Tenant {
    workload::ArrivalStream stream;
    std::optional<workload::Arrival> next;
  };

  std::vector<Tenant> tenants_;
  Duration slot_;
  int last_slot_;
};

}  // namespace divvy::app
