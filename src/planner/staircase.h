#pragma once

#include <span>
#include <vector>

#include "gpu/gpu_model.h"
#include "planner/problem.h"

namespace divvy::planner {

// What instances of several sizes carry of one model when small requests go to
// small instances and larger ones up the stairs, as ELSA sends them. A fluid model:
// time is divided without loss, so it is a bound that routing comes close to, and
// cheap enough to value thousands of cuts.
//
// Assumptions:
// - A request is one batch in one process.
// - It may run where its time leaves room for a wait before its SLO is over. The more
//   instances of a size there are, the shorter the wait: kWait times their mean time,
//   divided by their number, but no more than kMostWait of the SLO. Where nothing is
//   that fast, it runs on the fastest.
// - The largest requests, up to the share kSacrifice of all, may be late: a target of
//   95 % leaves them out before it pays for large instances that only they need.
// - Requests that no size answers within the SLO are lost either way and not counted.
//
// The three constants were chosen on published profiles of 19 models (make bench,
// latency_bounded_bench).
class Staircase {
 public:
  static constexpr double kWait = 5;
  static constexpr double kMostWait = 0.2;
  static constexpr double kSacrifice = 0.03;

  Staircase(const ModelDemand& model, const gpu::GpuModel& gpu);

  // Sizes that the model was measured on with one process, ascending in compute.
  const std::vector<gpu::ProfileIndex>& sizes() const { return sizes_; }

  // Requests a second that counts[k] instances of sizes()[k] carry.
  [[nodiscard]] double Rate(std::span<const int> counts) const;

 private:
  // Requests of about one size, with what they take on each size of instance.
  struct Step {
    double share = 0;
    std::vector<double> seconds = {};  // By size; 0 where they do not fit.
    double fastest = 0;
    bool may_be_late = false;
  };

  [[nodiscard]] bool Carries(double rate, std::span<const int> counts,
                             std::span<const double> limits) const;

  std::vector<gpu::ProfileIndex> sizes_;
  std::vector<double> mean_;  // Seconds a request takes on each size.
  std::vector<Step> steps_;   // Ascending in request size.
  double slo_ = 0;            // Seconds.
};

}  // namespace divvy::planner
