#pragma once

#include <vector>

#include "planner/advice.h"

namespace divvy::planner {

// What each mode would do to the jobs of a request. `demands` are theirs.
[[nodiscard]] std::vector<ModeOutlook> OutlookOfModes(const AdviceRequest& request,
                                                      const std::vector<Demand>& demands);

// Whole percentages of the SMs that sum to 100 at most, by demand, of which a tenth is counted at
// least.
[[nodiscard]] std::vector<int> SharesByDemand(const std::vector<Demand>& demands);

// GiB that the jobs take as processes of their own; nothing when a job's is not known.
[[nodiscard]] std::optional<double> MemoryTogether(const AdviceRequest& request);

}  // namespace divvy::planner
