#pragma once

#include <optional>

#include "planner/goodput.h"
#include "planner/milp.h"

namespace divvy::planner {

// What the solver found out about a window.
struct GoodputReference {
  std::optional<GoodputSchedule> schedule;  // The best that it found, if any.
  double value = 0;                         // Of that schedule, as the solver adds it up.
  double bound = 0;                         // No schedule has more; perhaps infinite.
  bool optimal = false;                     // Nothing is better than `schedule`.
};

// The whole question as one MILP, place by place and slot by slot: exact, and slow. It
// is what PlanGoodput is measured against; one GPU, three tenants and a dozen slots
// take seconds.
[[nodiscard]] GoodputReference SolveGoodputByMilp(const GoodputProblem& problem,
                                                  const MilpOptions& options = {});

}  // namespace divvy::planner
