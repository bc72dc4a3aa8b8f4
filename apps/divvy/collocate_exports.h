#pragma once

#include <string>

#include "base/result.h"
#include "collocate_report.h"

namespace divvy::app {

// Files and folders to write what was found to; empty: not there.
struct ExportPaths {
  std::string html = {};
  std::string prometheus = {};
  std::string mlflow = {};
};

// Whether that can be done, before the work begins: kInvalidArgument names the option.
[[nodiscard]] Result<void> CheckExports(const ExportPaths& paths);
[[nodiscard]] Result<void> Export(const ExportPaths& paths, const CollocateFindings& findings);

// The figures as a file for Prometheus' textfile collector.
[[nodiscard]] std::string PrometheusText(const CollocateFindings& findings);

// Writes the runs that are done or have failed under `folder` as MLflow's file store lays them out:
// one experiment, named after the jobs file, and one run for each row. `now_ms` since 1970. Runs
// that are there already are not written again.
[[nodiscard]] Result<void> SaveForMlflow(const std::string& folder,
                                         const CollocateFindings& findings, long long now_ms);

}  // namespace divvy::app
