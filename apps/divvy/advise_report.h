#pragma once

#include <nlohmann/json_fwd.hpp>

#include "planner/advice.h"

namespace divvy::app {

// For people: what each job needs, what each mode would do, and the advice.
void PrintAdvice(const planner::AdviceRequest& request, const planner::Advice& advice);

// The same for programs.
[[nodiscard]] nlohmann::json AdviceJson(const planner::AdviceRequest& request,
                                        const planner::Advice& advice);

}  // namespace divvy::app
