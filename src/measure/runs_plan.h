#pragma once

#include <vector>

#include "measure/runs_file.h"
#include "measure/together.h"
#include "workload/jobs_file.h"

namespace divvy::measure {

// Whose run alone counts for each job: the first that runs the same command in the same way.
[[nodiscard]] AloneOf CopiesAmong(const std::vector<workload::CollocatedJob>& jobs);

// What is to be run when nobody says otherwise: every job alone, copies once; then all together in
// each of `modes`. `shares`, in percent, are the jobs' under mps-shares.
[[nodiscard]] std::vector<RunRow> PlanRuns(const std::vector<workload::CollocatedJob>& jobs,
                                           const std::vector<workload::SharingMode>& modes,
                                           const std::vector<int>& shares);

// The job with what its run alone has shown in place of what the file says.
[[nodiscard]] workload::SoloProfile ProfileFromRun(const workload::CollocatedJob& job,
                                                   const RunRow& alone);

}  // namespace divvy::measure
