#pragma once

#include <string>
#include <string_view>
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

// What the figures of a job's run hang on: its command and how it is read, warm-up and limit. Words
// of the form "limit=300s"; long ones by a hash, "command=#5d1f22ab". What a job has not is left
// out.
[[nodiscard]] std::string MadeWith(const workload::CollocatedJob& job,
                                   const workload::CollocationRun& run);

// In what two of these differ: "command, limit (300s, now 600s)". Empty when they do not, and where
// nobody wrote down the first.
[[nodiscard]] std::string WhatChanged(std::string_view before, std::string_view now);

// The job with what its run alone has shown in place of what the file says.
[[nodiscard]] workload::SoloProfile ProfileFromRun(const workload::CollocatedJob& job,
                                                   const RunRow& alone);

}  // namespace divvy::measure
