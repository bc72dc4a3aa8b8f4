#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "control/policy.h"

namespace divvy::app {

// What a controller knows, as JSON, so that the next process can go on. Arrivals are not
// part of it. It holds for one fleet and policy: the estate leaves its fingerprint.
[[nodiscard]] std::string FormatControlState(const control::Estate& estate, std::string_view policy,
                                             const control::View& view);

// Reads it back. Any bytes give a view that the estate allows or
//   kInvalidArgument     it is damaged;
//   kFailedPrecondition  it is of another fleet or policy.
[[nodiscard]] Result<control::View> ParseControlState(std::string_view text,
                                                      const control::Estate& estate,
                                                      std::string_view policy);

}  // namespace divvy::app
