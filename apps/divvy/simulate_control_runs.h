#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "control/controlled_run.h"
#include "control/estate.h"
#include "fleet_input.h"
#include "run_progress.h"
#include "serving/policy.h"

namespace divvy::app {

// What to simulate: every policy on every seed.
struct ControlPlan {
  std::vector<std::string> policies;  // Of control::PolicyNames(), each once.
  std::vector<std::uint64_t> seeds;
  int slots = 0;
  serving::RouteOptions route = {};
};

// What became of one tenant's requests.
struct TenantOutcome {
  double offered = 0;
  double in_time = 0;
  std::optional<double> accuracy = {};  // Of the models that answered in time, on average;
                                        // nothing when it does not learn, or none did.
};

// One policy on one seed.
struct ControlOutcome {
  std::uint64_t seed = 0;
  double goodput = 0;                   // Worth of answers in time, a second.
  double lost = 0;                      // To restarts, as a share of the goodput.
  double attainment = 1;                // Of all requests that were offered.
  std::optional<double> accuracy = {};  // Over tenants that learn; nothing if none does.
  int retrained = 0;                    // As in control::ControlledRun.
  int reconfigurations = 0;
  int starts = 0;
  std::optional<double> mean_gap = {};  // Of decisions that had one.
  std::optional<double> worst_gap = {};
  std::vector<std::string> log;
  std::vector<TenantOutcome> tenants;
};

// One policy on all seeds.
struct PolicyOutcomes {
  std::string policy;
  std::vector<ControlOutcome> by_seed;
  control::ControlledRun first;  // On the first seed.
  bool mig = true;               // It cuts by MIG, not by MPS.
};

struct RejectedPolicy {
  std::string policy;
  std::string why;
};

struct ControlStudy {
  std::vector<PolicyOutcomes> policies;  // As asked for, less the rejected.
  std::vector<RejectedPolicy> rejected;
};

// Runs everything, on as many threads as there are processors. The outcome does not
// depend on how many. `progress` is used by one thread at a time.
[[nodiscard]] ControlStudy RunControlStudy(const LoadedFleet& fleet, const control::Estate& estate,
                                           const ControlPlan& plan, RunProgress& progress);

}  // namespace divvy::app
