#pragma once

#include <string>

namespace divvy::bench {

// Prints how well power, utilisation, bandwidth and speeds by batch tell the demand of MISO's
// training jobs, each model predicted by a fit on the others, and the fits on all.
void JudgeDemand(const std::string& folder);

}  // namespace divvy::bench
