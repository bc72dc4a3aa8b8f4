#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "plan/plan.h"

namespace divvy::app {

// Reads, parses and validates a plan file ("-" is standard input).
//
// The error is kInvalidArgument for a file that is no valid plan, and its
// message then has a line "FILE:LINE: ..." for each problem.
[[nodiscard]] Result<plan::Plan> LoadPlan(const std::string& path);

// The plan itself, or an error that lists all that Validate finds.
[[nodiscard]] Result<plan::Plan> Validated(plan::Plan plan, std::string_view file_name);

}  // namespace divvy::app
