#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "control/policy.h"
#include "control/share_packing.h"

namespace divvy::control {

// Ekya (continuous learning on edge servers): retraining and inference of every tenant
// share GPUs under MPS, in quanta of a tenth. At the start of a window and whenever a
// retraining has ended, its thief scheduler sets out from a fair split and lets each job
// steal quanta from each other one as long as the mean over the window is estimated to
// rise; a retraining's setting is the best of those that reach an accuracy of a_min.
//
// What we had to choose, mostly in its favour:
// - The mean is of goodput, which all policies here are measured by: requests in time,
//   at the rate of the last 20 slots, times what their answers are worth. Not beyond the
//   window, as published.
// - a_min is the accuracy that the present model would have by then.
// - A thief takes the number of quanta that raises the mean most, not one at a time, and
//   rounds go on until no theft helps: so none stops at a retraining that needs several
//   quanta more to end in the window. It also sets out from the present split.
// - What a retraining had is its tenant's once it is done. The estimate knows what a
//   restart costs, and a split that promises no more than the present one is not taken.
// - Quanta that help nobody go to services that begin anew anyway.
class Ekya final : public Policy {
 public:
  // REQUIRES: the estate outlives the policy.
  explicit Ekya(const Estate& estate) : estate_(estate) {}

  std::string_view name() const override { return "ekya"; }
  Sharing sharing() const override { return Sharing::kMps; }

  // Without cells but at a window's start, after a retraining's end, and when what it
  // decided did not come about.
  [[nodiscard]] Decision Decide(const View& view) override;

 private:
  const Estate& estate_;
  int window_ = -1;           // Of the last decision.
  std::vector<Cell> wanted_;  // By it.
};

}  // namespace divvy::control
