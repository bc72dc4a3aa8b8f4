#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "base/histogram.h"
#include "base/time.h"
#include "serving/dispatcher.h"
#include "serving/setup.h"
#include "workload/load.h"

namespace divvy::sim {

// What arrives for one model.
struct Source {
  serving::ModelId model{};
  Duration slo{};
  int priority = 0;
  std::variant<workload::Load, std::span<const workload::Arrival>> arrivals;
};

// A replica that goes or comes at some time, as a change of the MIG layout makes
// it do. What it costs lies in the time between the two.
struct Switch {
  TimePoint at{};
  serving::ReplicaId replica{};
  bool up = false;
};

// Takes the lines of an event log, newline included.
class EventLog {
 public:
  virtual ~EventLog() = default;
  virtual void Write(std::string_view line) = 0;
};

struct Options {
  std::uint64_t seed = 1;
  std::uint64_t requests = 100000;      // No more arrive than this,
  Duration duration = Duration::max();  // nor after this time.
  std::uint64_t warm_up = 0;            // The first so many are served but not counted.
  std::vector<double> spread = {};      // By table: sigma of the logarithm of a batch's time
                                        // around its mean; empty for exact times.
  bool timelines = false;               // Fill ReplicaResult::timeline.
  std::optional<std::uint64_t> give_up_after = {};  // So many counted requests late or refused.
  EventLog* log = nullptr;
};

struct ModelResult {
  std::uint64_t offered = 0;  // Counted ones, as all below.
  std::uint64_t answered = 0;
  std::uint64_t in_time = 0;
  std::array<std::uint64_t, 4> refused{};  // By serving::Refusal.
  Histogram latency = {};                  // Of those answered.

  [[nodiscard]] std::uint64_t shed() const;

  // Share of those offered that were answered in time; 1 when none were.
  [[nodiscard]] double attainment() const;

  // The latency that a share q of all offered requests kept to; a refused request
  // never was answered. Duration::max() when more than 1 - q were refused.
  [[nodiscard]] Duration Quantile(double q) const;
};

// How busy a replica was over time, in slots of equal length.
struct Timeline {
  Duration slot{};
  std::vector<float> busy = {};  // Share of its lanes, 0 to 1.
};

struct ReplicaResult {
  Duration busy{};  // Over all lanes, of batches that began in the counted time.
  std::uint64_t batches = 0;
  std::uint64_t requests = 0;
  std::uint64_t items = 0;
  double utilization = 0;                    // busy / (SimResult::counted * lanes).
  std::vector<std::uint64_t> by_items = {};  // Batches by items; [0] is for one item.
  Timeline timeline = {};
};

struct SimResult {
  std::vector<ModelResult> models;      // By ModelId.
  std::vector<ReplicaResult> replicas;  // By ReplicaId.
  Duration counted{};                   // From the end of the warm-up to the end of the run: the
                                        // last answer, or Options::duration if that is later.
  Duration drained{};                   // From the last arrival to the last answer.
  std::uint64_t events = 0;
  bool gave_up = false;  // See Options::give_up_after; figures are of what was seen.

  // Goodput of a model: requests answered in time a second.
  [[nodiscard]] double Goodput(std::size_t model) const;
};

// Serves `sources` by a Dispatcher over `setup` in simulated time, until the last
// request has its answer. The same arguments give the same result and the same log,
// byte for byte. A batch takes what its table says, times a log-normal factor where
// there is a spread.
//
// REQUIRES: every source's model exists; switches sorted by time; spread empty or
// one entry a table.
[[nodiscard]] SimResult Simulate(const serving::Setup& setup, const serving::RouteOptions& route,
                                 std::span<const Source> sources, std::span<const Switch> switches,
                                 const Options& options);

}  // namespace divvy::sim
