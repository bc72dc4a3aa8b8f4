#include "workload/kepler.h"

#include <algorithm>
#include <cmath>

namespace divvy::workload {

// Newton inside a bracket that every step narrows, since at amplitude 1 the slope
// vanishes at 0 and Newton alone may leave.
double SolveKepler(double mean, double amplitude, double guess) {
  double low = mean - amplitude;
  double high = mean + amplitude;
  double x = std::clamp(guess, low, high);
  constexpr int kMostSteps = 80;
  for (int i = 0; i < kMostSteps; ++i) {
    const double error = x - amplitude * std::sin(x) - mean;
    (error > 0 ? high : low) = x;
    const double slope = 1 - amplitude * std::cos(x);
    const double step = -error / slope;
    if (!(low <= x + step && x + step <= high)) {  // Not a number among it.
      x = (low + high) / 2;
      continue;
    }
    x += step;
    // Newton's next step would be about this one squared over the slope.
    if (step * step * amplitude <= 1e-16 * slope) break;
  }
  return x;
}

}  // namespace divvy::workload
