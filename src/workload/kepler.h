#pragma once

namespace divvy::workload {

// x with x - amplitude * sin(x) = mean: Kepler's equation, which a rate that swings
// as a sine leads to. Exact but for rounding. `guess` may be anything; a near one is
// quicker. REQUIRES: 0 <= amplitude <= 1.
[[nodiscard]] double SolveKepler(double mean, double amplitude, double guess);

}  // namespace divvy::workload
