#pragma once

#include <string>

#include "base/result.h"
#include "planner/advice.h"
#include "workload/collocations.h"
#include "workload/jobs_file.h"

namespace divvy::app {

// Where `divvy collocate` keeps what it measured; empty when this user has no home.
[[nodiscard]] std::string OwnHistory();

// Adds a set to such a file, with its folder and heading where they are missing. On disk when it
// returns. Without effect for an empty path.
[[nodiscard]] Result<void> AppendHistory(const std::string& path, const workload::MeasuredSet& set);

[[nodiscard]] planner::AdviceRequest RequestFor(workload::JobsFile file,
                                                planner::InterferenceModels models);

}  // namespace divvy::app
