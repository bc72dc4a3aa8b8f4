#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "control/policy.h"
#include "serving/policy.h"
#include "sim/simulation.h"
#include "workload/load.h"

namespace divvy::control {

struct RunOptions {
  std::uint64_t seed = 1;  // Of what retraining brings.
  int slots = 600;         // Length of the run.
  serving::RouteOptions route = {};
  std::optional<std::pair<int, int>> refuse_changes = {};  // Changes in these slots fail, as when
                                                           // NVML refuses: from, to before.
};

// One tenant over time, by slot.
struct TenantSeries {
  std::vector<double> offered;
  std::vector<double> in_time;   // Answered in time, in the slot of the answer.
  std::vector<double> accuracy;  // Of the model that answered.
  std::vector<double> capacity;  // Requests that ready cells could answer.
  std::vector<double> lost;      // Worth of requests that cells still starting could have answered.
};

struct LayoutChange {
  int slot = 0;
  std::vector<CellState> cells;  // From then on.
  std::string why;
};

struct ControlledRun {
  std::vector<TenantSeries> tenants;
  std::vector<LayoutChange> changes;  // The first at slot 0. Ends of retrainings too.
  std::vector<std::string> log;       // What was refused or failed: one line each.
  sim::SimResult sim;
  double goodput = 0;        // Requests answered in time, each times its worth.
  double lost = 0;           // Of it, to restarts.
  int starts = 0;            // Serving cells that began anew after the start.
  int reconfigurations = 0;  // Times at which any did.
  int retrained = 0;         // Retrainings that came to their end.
  std::vector<double> gaps;  // Of each decision that had one.
};

// Serves `arrivals` (by tenant, sorted) with the routing of the server while `policy`
// shares the GPUs out. Deterministic. A cell that goes finishes the batch it runs; one
// that comes answers after Estate::restart. A retraining that the end of its window
// overtakes is given up. What it brings is the option's accuracy with the tenant's
// uncertainty, the same for every policy of one seed.
[[nodiscard]] ControlledRun RunControlled(const Estate& estate, Policy& policy,
                                          std::span<const std::vector<workload::Arrival>> arrivals,
                                          const RunOptions& options);

}  // namespace divvy::control
