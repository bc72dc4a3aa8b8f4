#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "command.h"
#include "fleet_input.h"
#include "serving/policy.h"

// `divvy simulate --control`: the GPUs are shared out anew while they serve.

namespace divvy::app {

// Options that go with --control alone, as they stand on the command line.
struct ControlOptions {
  std::vector<std::string> policies;  // Empty: --control was not given.
  std::uint64_t seeds = 1;
  std::optional<int> gpus;
  std::optional<std::string> restart;
  std::optional<std::string> every;
  std::optional<std::string> forecast;
  std::optional<double> quantile;
};

// Adds them to a command.
void AddControlOptions(CLI::App& command, ControlOptions& options);

// What else of the command line matters.
struct ControlSetting {
  std::string fleet;  // The file.
  serving::RouteOptions route;
  std::optional<std::string> duration;
  std::optional<std::string> html;
  OutputFormat format = OutputFormat::kTable;
};

// Runs the policies on `fleet`, which the options change, and reports. Seeds begin with
// that of its problem. kFailed when no policy could be run. Errors are of options and
// files.
[[nodiscard]] Result<ExitStatus> SimulateControl(LoadedFleet& fleet, const ControlOptions& options,
                                                 const ControlSetting& setting);

}  // namespace divvy::app
