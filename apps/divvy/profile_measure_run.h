#pragma once

#include "base/result.h"
#include "profile_measure.h"

namespace divvy::app {

// Measures what the options say, with progress on standard error, and prints or saves the profile.
// Besides wrong options (kInvalidArgument, kNotFound):
//   kFailedPrecondition  the machine has not what was asked for, or the model fails at any batch;
//   kUnavailable         a worker or server did not answer;
//   kAborted             a signal ended it. With --save what was measured is kept for another run.
[[nodiscard]] Result<void> RunMeasurement(const MeasureOptions& options);

}  // namespace divvy::app
