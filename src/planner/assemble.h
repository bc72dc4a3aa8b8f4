#pragma once

#include <vector>

#include "planner/deployment.h"
#include "planner/exact_milp.h"
#include "planner/layout_columns.h"
#include "planner/problem.h"

namespace divvy::planner {

// The deployment that `counts` describe. Instances that nobody was given go, one
// after the other, to the model with the least headroom that gains by it; the rest
// stay idle. REQUIRES: the layouts offer what options and jobs take.
[[nodiscard]] Deployment Assemble(const Problem& problem, const std::vector<ModelSide>& sides,
                                  const std::vector<LayoutColumn>& layouts,
                                  const CutCounts& counts);

}  // namespace divvy::planner
