#pragma once

#include <string>

#include "base/result.h"
#include "fleet_input.h"

namespace divvy::app {

// Puts the arrivals of a trace file in the place of the load of the models that it
// names, for planners too. A trace that names none is that of the only model.
//
// kInvalidArgument, with the file's name, for a trace that cannot be read, names a
// model that the fleet lacks, or names none where there are several; the fleet is
// then of no more use. A note says what was replaced.
[[nodiscard]] Result<void> ReplaceLoad(LoadedFleet& fleet, const std::string& path);

}  // namespace divvy::app
