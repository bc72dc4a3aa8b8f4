#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "sim/plan_change.h"

// The words that options of `divvy simulate` take, as values. Every error is
// kInvalidArgument and names the option, the word and what would be right.

namespace divvy::app {

// "60s" or "1.5ms". `option` is for the message.
[[nodiscard]] Result<Duration> ParseTimeArgument(std::string_view option, std::string_view text);

// "0.5:1.5:0.1", both ends included: the factors 0.5, 0.6, .. 1.5.
[[nodiscard]] Result<std::vector<double>> ParseSweep(std::string_view text);

// How much batches vary around their measured time.
struct Spread {
  bool measured = false;        // As the profile's p95 says.
  std::optional<double> sigma;  // Or this deviation of the logarithm, for all.
};

// "none", "measured" or a number.
[[nodiscard]] Result<Spread> ParseSpread(std::string_view text);

// A plan that the GPUs turn to during a run.
struct LaterPlan {
  std::string plan;
  Duration at{};
};

// "plan.yaml@20s".
[[nodiscard]] Result<LaterPlan> ParseLaterPlan(std::string_view text);

// "destroy=150ms,create=130ms,start=5s"; those left out keep their default.
[[nodiscard]] Result<sim::ChangeCost> ParseChangeCost(std::string_view text);

}  // namespace divvy::app
