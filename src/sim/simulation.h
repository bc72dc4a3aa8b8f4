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

// The arrivals of each source. One seed gives each its own, the same ones wherever they
// are asked for. Traces outlive the streams.
[[nodiscard]] std::vector<workload::ArrivalStream> StreamsOf(std::span<const Source> sources,
                                                             std::uint64_t seed);

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

// What became of one model's requests in one slot of time: arrivals by when they
// came, the rest by when it was over. Those of a warm-up count too.
struct SlotCounts {
  std::uint64_t offered = 0;
  std::uint64_t in_time = 0;
  std::uint64_t late = 0;
  std::uint64_t refused = 0;
};

// Stands beside a run, hears how each slot of time went, and may switch replicas: a
// controller of the layout.
//
// A slot has its beginning and not its end: a tick comes before all else that happens
// at its instant. Ticks come at the start and at the end of every slot, until every
// request has its outcome and no more arrive: Options::requests came, or the sources are
// at their ends and Options::duration, if there is one, is over. So each outcome is in
// the counts of exactly one tick. A run that gives up has no further tick.
class Operator {
 public:
  virtual ~Operator() = default;

  // `now` is a whole number of slots after the start; `past` counts the slot that just
  // ended, by ModelId, and is zero at the start. Appends to `switches`, which is empty
  // and valid during the call only. Those at `now` are taken at once, in the order given;
  // later ones, be it slots later, after whatever was due at the same instant before.
  // Bringing up what is up, or taking down what is down, is nothing. What is not due by
  // the last tick is never taken, be it from here or from Simulate's own switches.
  //
  // REQUIRES: no switch before `now`, and only of replicas that the setup has.
  virtual void Tick(TimePoint now, std::span<const SlotCounts> past,
                    std::vector<Switch>& switches) = 0;
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
  Operator* op = nullptr;
  Duration slot = std::chrono::seconds(1);  // Between two ticks of `op`; more than zero.
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
