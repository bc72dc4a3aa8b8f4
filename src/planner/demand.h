#pragma once

#include <optional>
#include <string>

#include "workload/jobs_file.h"

namespace divvy::planner {

// How much of a GPU a job needs: the share of its step's time that would grow if the
// job had less of the GPU (docs/design/advice.md). 0: bound by its host or its input;
// 1: every part of the GPU it loses, it feels.
struct Demand {
  double share = 0;
  double error = 0;       // Standard error, on models that the estimate was not fitted on.
  std::string basis;      // What it was taken from: "power, utilisation".
  bool is_guess = false;  // From nothing.
};

// Estimates the demand from whatever `profile` knows, each source weighted by how well
// it told the demand of unseen models. Power counts only with `gpu_power_w`, the board's
// limit. Never falls when utilisation, SM activity, bandwidth or power rises alone.
[[nodiscard]] Demand EstimateDemand(const workload::SoloProfile& profile,
                                    std::optional<double> gpu_power_w);

// The part of a step's time that grows with the batch, at the profile's own batch: of
// fixed + b * marginal fitted to its `speeds`. Nothing without two of them.
[[nodiscard]] std::optional<double> BatchScalingShare(const workload::SoloProfile& profile);

// The part that a faster GPU makes shorter, or a slower one longer.
[[nodiscard]] std::optional<double> GpuScalingShare(const workload::SoloProfile& profile);

// A speed that is expected, over that alone on a whole GPU, and one standard error to either side.
struct ExpectedSpeed {
  double speed = 1;
  double low = 1;
  double high = 1;
};

// SpeedInPart with what is not known of the demand. REQUIRES: 0 < part <= 1.
[[nodiscard]] ExpectedSpeed ExpectedInPart(const Demand& demand, double part);

// Speed of a job in a part of the GPU, over its speed on all of it. REQUIRES: 0 < part <= 1.
[[nodiscard]] double SpeedInPart(const Demand& demand, double part);

}  // namespace divvy::planner
