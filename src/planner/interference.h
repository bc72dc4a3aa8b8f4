#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "planner/demand.h"
#include "workload/collocations.h"

namespace divvy::planner {

// How much longer a job takes for sharing a GPU with others: for each other job a part
//   exp(base + demand * (sum of all demands) + pace * (log of their step over ours))
// of its time alone. Three numbers that can be read: two idle jobs cost each other
// exp(base); demand says how fast that grows as the GPU fills; pace, that of two jobs
// the one with the shorter steps waits for the other.
struct InterferenceModel {
  double base = 0;
  double demand = 0;
  double pace = 0;
  double error = 0;  // Standard error of the exponent, on models left out of the fit.

  friend bool operator==(const InterferenceModel&, const InterferenceModel&) = default;
};

// One job's share of a set.
struct Exposure {
  double demand = 0;  // Sum over the set, its own included.
  double pace = 0;    // Mean log of the others' step times over its own; 0 when unknown.
  int others = 1;
};

[[nodiscard]] std::vector<Exposure> Exposures(
    std::span<const Demand> demands, std::span<const std::optional<double>> steps_per_second);

// Extra time over the time alone: 0.25 makes a job run at 1 / 1.25 of its speed. At most
// two for each other job: beyond that the data are of jobs bound by something else.
[[nodiscard]] double ExtraTime(const InterferenceModel& model, const Exposure& exposure);

struct InterferenceSample {
  Exposure exposure;
  double speed = 1;  // Together over alone.
};

// The coefficients nearest to the samples and to `prior`, which counts as `weight`
// samples do. Least squares of the exponent; speeds are taken to be 1 / 9 to 1 / 1.02.
// `demand` is never below 0: more demand never means less interference. The error is
// the prior's.
[[nodiscard]] InterferenceModel FitInterference(std::span<const InterferenceSample> samples,
                                                const InterferenceModel& prior, double weight);

// What ships, before there were data: two jobs that fill the GPU take turns (half their
// speed), and two whose demands sum to 1.25 keep 85 %, as the rule of thumb has it.
inline constexpr InterferenceModel kRuleOfThumb{.base = -4.6, .demand = 2.3, .pace = 0, .error = 1};
inline constexpr double kRuleWeight = 0.01;  // Of the number of samples, in the shipped fit.

// One model a way of sharing.
struct InterferenceModels {
  InterferenceModel time_slicing;        // From Volta on.
  InterferenceModel older_time_slicing;  // Before.
  InterferenceModel mps;
  int learned = 0;  // Sets that were learned from, beyond what ships.

  [[nodiscard]] static InterferenceModels Shipped();

  // The shipped ones, drawn towards what was measured. Sets in other modes teach nothing.
  [[nodiscard]] static InterferenceModels LearnedFrom(
      std::span<const workload::MeasuredSet> history);

  [[nodiscard]] const InterferenceModel& TimeSlicing(std::string_view gpu) const;
};

// Whether a GPU's name is of a generation before Volta, whose time slices are coarser.
[[nodiscard]] bool IsBeforeVolta(std::string_view gpu);

}  // namespace divvy::planner
