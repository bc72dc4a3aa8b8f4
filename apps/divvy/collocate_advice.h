#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "measure/runs_file.h"
#include "measure/together.h"
#include "planner/advice.h"
#include "workload/collocations.h"
#include "workload/jobs_file.h"

namespace divvy::app {

// What `divvy advise` would have said of jobs, had it seen their runs alone.
struct SetAdvice {
  std::vector<std::string> jobs;  // Copies stand there again.
  planner::Advice advice;
};

// One for each set of jobs that was run together, and for all jobs of the file where none was. None
// of sets in which a job has no run alone.
[[nodiscard]] std::vector<SetAdvice> AdviseSets(const workload::JobsFile& file,
                                                const std::vector<measure::RunRow>& rows,
                                                const std::vector<measure::SetTogether>& sets);

// What a set teaches: the jobs as their runs alone show them, and what they did together.
// kFailedPrecondition when it teaches nothing: a job was measured by its latency, or nothing is
// known of it, that the history would keep, but how long it took. `jobs_file` is where more can be
// said. REQUIRES: all of its jobs have runs alone.
[[nodiscard]] Result<workload::MeasuredSet> LessonOf(const measure::SetTogether& set,
                                                     const workload::JobsFile& file,
                                                     const std::vector<measure::RunRow>& rows,
                                                     std::string_view jobs_file);

}  // namespace divvy::app
