#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "client/schedule.h"
#include "fleet_input.h"
#include "sim/simulation.h"
#include "workload/trace_file.h"

namespace divvy::app {

// What `divvy bench` is to send, as it stands on the command line.
struct BenchLoadOptions {
  std::optional<std::string> model = {};
  std::optional<std::string> fleet = {};
  std::optional<std::string> trace = {};
  std::optional<double> rate = {};
  std::string arrivals = {};  // Empty: poisson.
  std::string batch = {};     // Empty: 1.
  std::optional<std::string> slo = {};
  std::optional<std::string> duration = {};
  std::optional<std::uint64_t> seed = {};
  bool search = false;
};

// The same as values. Parts point into one another, so it stays where it was made.
struct BenchLoad {
  BenchLoad() = default;
  BenchLoad(const BenchLoad&) = delete;
  BenchLoad& operator=(const BenchLoad&) = delete;

  // "": the one model that the server has.
  std::vector<std::string> names;
  std::vector<std::optional<Duration>> slos;  // By model.
  std::vector<sim::Source> sources;           // By model.
  std::vector<int> largest;                   // Items of a request, by model.
  std::optional<Duration> sent_slo;           // Goes with every request.
  std::uint64_t seed = 1;
  Duration length{};
  std::string description;  // "200/s poisson", "trace.csv", "fleet.yaml".

  std::unique_ptr<LoadedFleet> fleet;
  std::deque<workload::Trace> traces;

  // Requests a second of all models together, on average.
  [[nodiscard]] double Rate() const;
};

// Errors are kInvalidArgument and name the option or the file.
[[nodiscard]] Result<std::unique_ptr<BenchLoad>> ReadBenchLoad(const BenchLoadOptions& options);

// What to send at `factor` times the load. With a fleet's seed and a factor of 1, the arrivals that
// `divvy simulate` has. `storage` must outlive the schedule.
[[nodiscard]] client::Schedule ScheduleOf(const BenchLoad& load, double factor, Duration length,
                                          Duration warm_up,
                                          std::vector<std::vector<workload::Arrival>>& storage);

}  // namespace divvy::app
