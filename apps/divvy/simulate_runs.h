#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "fleet_input.h"
#include "run_progress.h"
#include "serving/policy.h"
#include "sim/simulation.h"
#include "simulate_arguments.h"
#include "simulate_plans.h"

namespace divvy::app {

// What to simulate: every plan under every route at every factor on the load.
struct RunPlan {
  std::vector<serving::RouteOptions> routes;
  std::vector<double> factors = {1};
  std::optional<std::uint64_t> requests = 100000;  // A run has no more than this,
  Duration duration = Duration::max();             // and none after this time.
  std::uint64_t seed = 1;
  Spread spread = {};
  bool bounded = false;  // Find the latency-bounded rate of every plan and route.
  bool details = false;  // Timelines, batches and a curve over the load, for a page.
};

// One model in one run.
struct ModelRow {
  std::size_t plan = 0;   // Into Candidates::plans.
  std::size_t route = 0;  // Into RunPlan::routes.
  std::size_t model = 0;
  double factor = 1;
  double rate = 0;  // Offered requests a second.
  std::uint64_t offered = 0;
  std::optional<Duration> p50 = {};  // Nothing: too many were refused, or none came.
  std::optional<Duration> p95 = {};
  std::optional<Duration> p99 = {};
  double attainment = 0;
  double goodput = 0;  // Requests a second.
  std::uint64_t shed = 0;
  double utilization = 0;  // Mean over the model's replicas, by size.
  std::optional<double> bounded_rps = {};
};

// One instance, or one of the models that share it, in one run.
struct PartitionRow {
  enum class Kind { kModel, kJob, kIdle };
  std::size_t plan = 0;
  std::size_t route = 0;
  double factor = 1;
  std::size_t gpu = 0;        // Position in its plan,
  std::string gpu_name = {};  // and as the plan calls it.
  std::string profile = {};
  std::optional<int> start = {};
  TimePoint from{};  // When its plan came, for those of --change.
  Kind kind = Kind::kIdle;
  std::string runs = {};  // The model or job.
  int processes = 1;
  int max_batch = 0;
  double utilization = 0;  // 1 for a job: it keeps what it has busy.
  std::uint64_t requests = 0;
  std::uint64_t batches = 0;
  std::uint64_t items = 0;
  std::optional<std::size_t> model = {};
  std::vector<std::uint64_t> by_items = {};  // As sim::ReplicaResult, with details.
  sim::Timeline timeline = {};               // With details.
};

struct Study {
  std::vector<ModelRow> rows;            // By plan, route, factor and model.
  std::vector<PartitionRow> partitions;  // Of the run whose factor is nearest to 1.
  std::vector<ModelRow> curve;           // With details: over a wide range of load.
  std::vector<std::string> notes;
};

// How many simulations RunStudy will make, about.
[[nodiscard]] int CountRuns(const Candidates& candidates, const RunPlan& plan);

// Runs everything. `log` may be null; it hears all runs of plan x route x factor, and
// those alone.
[[nodiscard]] Study RunStudy(const LoadedFleet& fleet, const Candidates& candidates,
                             const RunPlan& plan, sim::EventLog* log, RunProgress& progress);

}  // namespace divvy::app
