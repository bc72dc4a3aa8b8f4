#pragma once

#include <string>

#include "base/result.h"
#include "collocate_report.h"

namespace divvy::app {

// The figures as a file for Prometheus' textfile collector.
[[nodiscard]] std::string PrometheusText(const CollocateFindings& findings);

// Writes the runs that are done under `folder` as MLflow's file store lays them out: one
// experiment, named after the jobs file, and one run for each row. `now_ms` since 1970. Runs that
// are there already are not written again.
[[nodiscard]] Result<void> SaveForMlflow(const std::string& folder,
                                         const CollocateFindings& findings, long long now_ms);

}  // namespace divvy::app
