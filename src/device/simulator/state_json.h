#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "device/simulator/state.h"

namespace divvy::device::simulator {

// The file form of a State: JSON, indented, keys in a fixed order, so that two
// states can be compared with diff.
[[nodiscard]] std::string FormatState(const State& state);

// Reads what FormatState writes. Files get edited by hand, so everything that
// the rest of the simulator relies on is checked: known GPUs and profiles, legal
// layouts, ids and serials in order, processes on instances that exist, fault
// rules that parse. kInvalidArgument, with what is wrong and where.
[[nodiscard]] Result<State> ParseState(std::string_view text);

}  // namespace divvy::device::simulator
