#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "plan/plan.h"

// A plan as a YAML file; docs/formats/plan.md describes it for its authors.

namespace divvy::plan {

// Reads a plan. `file_name` is for the messages alone: nothing is opened.
//
// Checks the form: keys, types, ranges, and that no GPU appears twice. Whether
// the GPUs can be cut so is Validate's question. An instance with `count: 3`
// becomes three equal ones. Any bytes give a plan or kInvalidArgument with one
// message, "FILE:LINE: what is wrong, and what would be right"; without a line
// when the file is empty or too large.
[[nodiscard]] Result<Plan> ParsePlan(std::string_view text, std::string_view file_name);

// Writes a plan so that ParsePlan reads an equal one, provided that its values
// are in the file's ranges, as they are in every plan that ParsePlan returned or
// that Validate found nothing wrong with. Equal neighbours without a start are
// written once, with a count.
[[nodiscard]] std::string FormatPlan(const Plan& plan);

}  // namespace divvy::plan
