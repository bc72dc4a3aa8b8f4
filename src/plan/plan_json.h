#pragma once

#include <nlohmann/json_fwd.hpp>

#include "plan/plan.h"

namespace divvy::plan {

// A plan as JSON, with the keys of the plan file; instances are listed one by
// one, without `count`, and `start` is null where `divvy apply` chooses.
[[nodiscard]] nlohmann::ordered_json ToJson(const Plan& plan);

}  // namespace divvy::plan
