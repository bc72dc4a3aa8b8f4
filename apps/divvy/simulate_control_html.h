#pragma once

#include <string>

#include "simulate_control_report.h"

namespace divvy::app {

// A report about control as one page that opens without a network: figures, and on the
// first seed how each policy shared out the GPUs over time, loads, capacities,
// accuracies and goodput. Its code is in report/; the figures are embedded as JSON.
// REQUIRES: at least one policy ran.
[[nodiscard]] std::string ControlHtml(const ControlReport& report);

}  // namespace divvy::app
