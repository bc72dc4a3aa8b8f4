#include "control/policies.h"

#include <fmt/format.h>

#include <array>

#include "base/spelling.h"
#include "control/astraea.h"
#include "control/ekya.h"
#include "control/static_cut.h"

namespace divvy::control {
namespace {

constexpr std::array<PolicyName, 6> kPolicies = {{
    {"migrator", "forecasts, and cuts anew where that is worth its cost (MIGRator's loop, ours)"},
    {"ekya", "MPS shares by Ekya's thief scheduler, at each window and retraining's end"},
    {"astraea", "MPS shares just large enough for each service, the rest to retraining"},
    {"static", "a fixed cut by PARIS, retraining on what it sets aside"},
    {"hindsight", "the best fixed cut, knowing all that will come"},
    {"oracle", "as migrator, knowing all that will come: what a perfect forecast would bring"},
}};

// What a solver that fails at the start leaves the GPUs to; null where PARIS has none.
std::unique_ptr<Policy> StartOf(const PolicyInputs& inputs) {
  auto cut = ParisCut(inputs.estate, inputs.problem);
  return cut ? std::move(*cut) : nullptr;
}

[[nodiscard]] Result<std::unique_ptr<Policy>> MakeMigrator(const PolicyInputs& inputs) {
  const workload::FleetControl& control = inputs.control;
  std::vector<std::unique_ptr<Forecaster>> forecasters;
  const ForecastOptions options{static_cast<int>(control.season / control.slot)};
  for (std::size_t m = 0; m < inputs.estate.tenants.size(); ++m) {
    auto forecaster = MakeForecaster(control.forecast, options);
    if (!forecaster) return Fail(forecaster.error());
    forecasters.push_back(std::move(*forecaster));
  }
  auto outlook =
      std::make_unique<ForecastOutlook>(inputs.estate, std::move(forecasters), control.quantile);
  return std::make_unique<Migrator>(inputs.estate, std::move(outlook), inputs.solver,
                                    StartOf(inputs),
                                    MigratorOptions{.hysteresis = control.hysteresis});
}

}  // namespace

std::span<const PolicyName> PolicyNames() { return kPolicies; }

Result<std::unique_ptr<Policy>> MakePolicy(std::string_view name, const PolicyInputs& inputs) {
  if (name == "migrator") return MakeMigrator(inputs);
  if (name == "oracle") {
    return std::make_unique<Migrator>(
        inputs.estate, std::make_unique<PerfectOutlook>(inputs.arrivals), inputs.solver,
        StartOf(inputs), MigratorOptions{.name = "oracle", .hysteresis = 0, .doubts = false});
  }
  if (name == "ekya") return std::make_unique<Ekya>(inputs.estate);
  if (name == "astraea") return std::make_unique<Astraea>(inputs.estate);
  if (name == "static") return ParisCut(inputs.estate, inputs.problem);
  if (name == "hindsight") return HindsightCut(inputs.estate, inputs.arrivals);
  std::vector<std::string_view> known;
  for (const PolicyName& policy : kPolicies) known.push_back(policy.name);
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("there is no control policy '{}'{}; there are {}", name,
                          DidYouMean(name, known), OneOf(known)));
}

}  // namespace divvy::control
