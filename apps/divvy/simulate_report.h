#pragma once

#include <optional>
#include <string>
#include <vector>

#include "simulate_plans.h"
#include "simulate_runs.h"

namespace divvy::app {

// All that a report is about.
struct SimulateReport {
  std::string fleet_name;  // The file.
  const LoadedFleet& fleet;
  const Candidates& candidates;
  const RunPlan& plan;
  const Study& study;

  // Of the fleet, the plans and the runs, in this order.
  [[nodiscard]] std::vector<std::string> Notes() const;
};

// A plan under a route, and what it makes of the load.
struct Standing {
  std::size_t plan = 0;
  std::size_t route = 0;
  double goodput = 0;                  // At the highest load, over all models, by weight.
  std::optional<double> bounded = {};  // Factor on the load that it carries.
  std::size_t gpus = 0;
};

// Each plan under each route, best first: by the bounded factor if there is one,
// else by goodput; what is equal within 0.1 % goes by fewer GPUs.
[[nodiscard]] std::vector<Standing> Rank(const SimulateReport& report);

// For a person; ends with a newline.
[[nodiscard]] std::string SimulateTable(const SimulateReport& report);

// For programs.
[[nodiscard]] std::string SimulateJson(const SimulateReport& report);

}  // namespace divvy::app
