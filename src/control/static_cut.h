#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "control/policy.h"
#include "planner/problem.h"

namespace divvy::control {

// An instance that is set aside for retraining.
struct RetrainingPlace {
  int gpu = 0;
  gpu::MigInstance place;

  friend bool operator==(const RetrainingPlace&, const RetrainingPlace&) = default;
};

// A cut that never changes.
struct FixedCut {
  std::vector<Cell> serving;
  std::vector<RetrainingPlace> retraining;
};

// A fixed cut of MIG instances, as systems like PARIS make it before they serve: what
// serves is always the same, and retrainings run one after another on the instances that
// were set aside for them, which are idle otherwise (static means static).
//
// What we had to choose: in which order they run. It is the one that gains most over the
// rest of the window (BestQueue), at the rate of the last 20 slots as far as the cut can
// answer it; thought over whenever a place is free. None is begun that would not end in
// its window.
class StaticCut final : public Policy {
 public:
  // REQUIRES: a legal cut; the estate outlives the policy.
  StaticCut(const Estate& estate, FixedCut cut, std::string name);

  std::string_view name() const override { return name_; }
  Sharing sharing() const override { return Sharing::kMig; }
  [[nodiscard]] Decision Decide(const View& view) override;

 private:
  const Estate& estate_;
  FixedCut cut_;
  std::string name_;
};

// Requests by tenant and slot.
using Loads = std::span<const std::vector<double>>;

// What a cut does over time if what comes is what `loads` says.
struct CutCourse {
  double goodput = 0;                      // Answers times their worth.
  std::vector<std::vector<double>> worth;  // Of an answer, by tenant and slot.
};
[[nodiscard]] CutCourse FollowCut(const Estate& estate, const FixedCut& cut, Loads loads);

// PARIS' cut for the mean rates. How much to set aside for retraining PARIS does not
// say: nothing, or one instance of a size (two on several GPUs), whatever promises the
// most goodput over three windows of mean load. Instances that PARIS leaves idle retrain
// too. kInvalidArgument when the GPUs cannot hold one instance for every model.
//
// REQUIRES: the models of `problem` are the tenants of the estate, in the same order.
[[nodiscard]] Result<FixedCut> PlanParisCut(const Estate& estate, planner::Problem problem);
[[nodiscard]] Result<std::unique_ptr<Policy>> ParisCut(const Estate& estate,
                                                       const planner::Problem& problem);

// The best fixed cut that was found for what will come in the whole run. The GPUs are
// improved in turn, each over every way to use it, from several starts, for each way to
// set instances aside that PlanParisCut tries. Not proven to be the best: on several GPUs
// the ascent may stop short, and other ways to set aside are not looked at.
[[nodiscard]] FixedCut PlanHindsightCut(const Estate& estate, Loads loads);
[[nodiscard]] std::unique_ptr<Policy> HindsightCut(const Estate& estate, Loads loads);

}  // namespace divvy::control
