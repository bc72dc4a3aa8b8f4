#pragma once

#include <string>

#include "simulate_report.h"

namespace divvy::app {

// A report as one page that opens without a network: figures, plots, the cut and
// what each partition did. Its code is in report/; the figures are embedded as JSON.
// REQUIRES: at least one row, and RunPlan::details.
[[nodiscard]] std::string HtmlReport(const SimulateReport& report);

}  // namespace divvy::app
