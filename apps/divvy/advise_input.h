#pragma once

#include <string>

#include "base/result.h"
#include "planner/advice.h"
#include "workload/collocations.h"
#include "workload/jobs_file.h"

namespace divvy::app {

// Where `divvy collocate` keeps what it measured; empty when this user has no home.
[[nodiscard]] std::string OwnHistory();

// Adds a set to such a file, with its folder where that is missing. The file is written anew, so
// that a crash leaves the old one or the new one; what an earlier crash cut short goes. Without
// effect for an empty path. kInvalidArgument when the file, or the set, is not what can be read
// back: then nothing is changed.
[[nodiscard]] Result<void> AppendHistory(const std::string& path, const workload::MeasuredSet& set);

[[nodiscard]] planner::AdviceRequest RequestFor(workload::JobsFile file,
                                                planner::InterferenceModels models);

}  // namespace divvy::app
