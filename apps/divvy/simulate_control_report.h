#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "simulate_control_runs.h"

namespace divvy::app {

// All that a report about control is about.
struct ControlReport {
  std::string fleet_name;  // The file.
  const LoadedFleet& fleet;
  const control::Estate& estate;
  const ControlPlan& plan;
  const ControlStudy& study;
  std::vector<std::string> notes;  // Of the fleet, and of control.
};

// A mean over seeds. With two seeds at least, its standard error.
struct Estimate {
  double mean = 0;
  std::optional<double> error = {};
};

// A tenant under a policy, over all seeds.
struct TenantStanding {
  double attainment = 1;
  std::optional<double> accuracy = {};
};

// A policy, over all seeds. Comparisons are made seed by seed, as every policy meets
// the same arrivals; nothing where there is nothing to compare with.
struct PolicyStanding {
  std::string policy;
  Estimate goodput;                       // Worth of answers in time, a second.
  std::optional<Estimate> against_first;  // Share more than the first policy has.
  std::optional<Estimate> of_oracle;      // Share of what the oracle has.
  double attainment = 1;
  std::optional<double> accuracy = {};
  double retrained = 0;
  double reconfigurations = 0;
  double starts = 0;
  double lost = 0;  // Share of the goodput.
  std::optional<double> mean_gap = {};
  std::optional<double> worst_gap = {};  // Of all seeds.
  std::size_t not_done = 0;              // Decisions that were refused or failed.
  std::vector<TenantStanding> tenants;
};

// In the order of the study.
[[nodiscard]] std::vector<PolicyStanding> StandingsOf(const ControlReport& report);

// What was simulated, in one line: GPUs, windows, costs, seeds.
[[nodiscard]] std::string DescribeControl(const ControlReport& report);

// For a person; ends with a newline.
[[nodiscard]] std::string ControlTable(const ControlReport& report);

// For programs. docs/design/simulator.md names the keys.
[[nodiscard]] std::string ControlJson(const ControlReport& report);

}  // namespace divvy::app
