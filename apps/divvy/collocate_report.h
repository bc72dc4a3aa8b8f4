#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "collocate_advice.h"
#include "collocate_jobs.h"
#include "measure/runs_file.h"
#include "measure/together.h"

namespace divvy::app {

// All that `divvy collocate` has to show.
struct CollocateFindings {
  std::string title;         // The jobs file.
  std::string gpu;           // The kind that is here, or the file's.
  std::string driver;        // Empty: nobody told.
  std::set<std::string> on;  // Which GPUs the runs that are done were made on.
  std::vector<measure::RunRow> rows;
  std::vector<measure::SetTogether> sets;
  std::map<std::string, std::vector<GpuMoment>> timelines;  // Of the workloads run just now.
  std::vector<SetAdvice> advice;
};

// The study's table: each set of jobs alone, one after the other, and together in each way.
[[nodiscard]] std::string DescribeFindings(const CollocateFindings& findings);
[[nodiscard]] nlohmann::ordered_json FindingsJson(const CollocateFindings& findings);
// A page that needs no network.
[[nodiscard]] std::string FindingsPage(const CollocateFindings& findings);

}  // namespace divvy::app
