#pragma once

#include "planner/goodput.h"

namespace divvy::planner {

// A value that no schedule of the problem exceeds, by Lagrangian relaxation: tenants
// pay a price for each request that is answered in each slot, and for being retrained;
// given prices, each GPU's best use is found exactly, places and restarts included.
// Any prices give a bound; `steps` of a subgradient method look for good ones, aiming
// at the value of `good`, a schedule that is known. Without steps, and beyond some hundred
// slots, it is what answering every request would be worth.
[[nodiscard]] double GoodputBound(const GoodputProblem& problem, const GoodputSchedule& good,
                                  int steps);

}  // namespace divvy::planner
