#pragma once

#include "base/result.h"

namespace divvy::kserve {

// HTTP's words for our errors, in both directions; the one table of them.
[[nodiscard]] int HttpStatusOf(ErrorCode code);
// kAborted for what is not in the table.
[[nodiscard]] ErrorCode ErrorCodeOf(int http_status);

}  // namespace divvy::kserve
