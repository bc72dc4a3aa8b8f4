#include "planner/demand.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "workload/model_families.h"

namespace divvy::planner {
namespace {

using workload::SoloProfile;

// Fits to MISO's 32 training jobs (A100-40GB), whose demand their speeds on MIG slices
// tell. Errors are of models left out of the fit; `advice_bench` prints both.
constexpr double kPowerBase = -0.257;
constexpr double kPowerSlope = 1.159;
constexpr double kPowerError = 0.11;
constexpr double kBusyBase = -0.251;
constexpr double kBusySlope = 1.073;
constexpr double kBusyError = 0.19;
constexpr double kBothBase = -0.135;
constexpr double kBothBusySlope = 0.698;
constexpr double kBothBandwidthSlope = 0.505;
constexpr double kBothError = 0.17;
constexpr double kBandwidthBase = 0.242;
constexpr double kBandwidthSlope = 0.868;
constexpr double kBandwidthError = 0.21;
constexpr double kBatchScalingError = 0.26;

// No data tells these. Two GPUs' speeds are taken to tell as much as two batches'; SM
// activity as much as utilisation and bandwidth together, being close to what is meant.
constexpr double kGpuScalingError = 0.26;
constexpr double kActivityError = 0.17;
constexpr double kFamilyError = 0.2;  // Another's code and inputs.
constexpr double kMeasuredError = 0.05;
constexpr double kUnknown = 0.6;  // MISO's jobs have 0.47 in the mean; guessing low costs more.
constexpr double kUnknownError = 0.31;

struct Source {
  std::string_view name;
  double share;
  double error;
};

std::vector<Source> Sources(const SoloProfile& profile, std::optional<double> gpu_power_w) {
  std::vector<Source> sources;
  const auto add = [&](std::string_view name, double share, double error) {
    sources.push_back({name, std::clamp(share, 0.0, 1.0), error});
  };
  if (profile.power_w && gpu_power_w && *gpu_power_w > 0) {
    add("power", kPowerBase + kPowerSlope * *profile.power_w / *gpu_power_w, kPowerError);
  }
  if (profile.utilisation && profile.bandwidth) {
    add("utilisation and bandwidth",
        kBothBase + kBothBusySlope * *profile.utilisation +
            kBothBandwidthSlope * *profile.bandwidth,
        kBothError);
  } else if (profile.utilisation) {
    add("utilisation", kBusyBase + kBusySlope * *profile.utilisation, kBusyError);
  } else if (profile.bandwidth) {
    add("bandwidth", kBandwidthBase + kBandwidthSlope * *profile.bandwidth, kBandwidthError);
  }
  if (profile.sm_activity) add("SM activity", *profile.sm_activity, kActivityError);
  if (const auto share = BatchScalingShare(profile)) {
    add("speeds by batch", *share, kBatchScalingError);
  }
  if (const auto share = GpuScalingShare(profile)) {
    add("speed on another GPU", *share, kGpuScalingError);
  }
  if (!sources.empty()) return sources;
  if (const auto share = workload::FamilyDemand(profile.family, profile.batch)) {
    add("family", *share, kFamilyError);
  }
  return sources;
}

}  // namespace

std::optional<double> BatchScalingShare(const SoloProfile& profile) {
  if (!profile.batch || profile.speeds.size() < 2) return std::nullopt;
  // Least squares of relative errors: each time counts the same, be it short or long.
  double one = 0;
  double batch = 0;
  double batch_squared = 0;
  double time = 0;
  double batch_time = 0;
  for (const workload::BatchSpeed& speed : profile.speeds) {
    const double rate = speed.steps_per_second;
    const double size = speed.batch;
    one += rate * rate;
    batch += size * rate * rate;
    batch_squared += size * size * rate * rate;
    time += rate;
    batch_time += size * rate;
  }
  const double determinant = one * batch_squared - batch * batch;
  if (determinant <= 0) return std::nullopt;
  const double fixed = std::max(0.0, (time * batch_squared - batch * batch_time) / determinant);
  const double marginal = fixed > 0 ? std::max(0.0, (one * batch_time - batch * time) / determinant)
                                    : batch_time / batch_squared;
  const double growing = marginal * *profile.batch;
  if (fixed + growing <= 0) return std::nullopt;
  return growing / (fixed + growing);
}

std::optional<double> GpuScalingShare(const SoloProfile& profile) {
  if (!profile.elsewhere || !profile.steps_per_second) return std::nullopt;
  const double gpu = profile.elsewhere->gpu_speed;
  const double job = profile.elsewhere->steps_per_second / *profile.steps_per_second;
  if (gpu <= 0 || gpu == 1 || job <= 0) return std::nullopt;
  return std::clamp((1 - 1 / job) / (1 - 1 / gpu), 0.0, 1.0);
}

Demand EstimateDemand(const SoloProfile& profile, std::optional<double> gpu_power_w) {
  if (profile.demand)
    return {.share = *profile.demand, .error = kMeasuredError, .basis = "measured"};
  const auto sources = Sources(profile, gpu_power_w);
  if (sources.empty()) {
    return {
        .share = kUnknown, .error = kUnknownError, .basis = "nothing: a guess", .is_guess = true};
  }
  Demand demand{.share = 0, .error = kUnknownError, .basis = {}};
  double weights = 0;
  for (const Source& source : sources) {
    const double weight = 1 / (source.error * source.error);
    demand.share += weight * source.share;
    weights += weight;
    // Sources err together, being of one job: two are not taken to be surer than the better.
    demand.error = std::min(demand.error, source.error);
    if (!demand.basis.empty()) demand.basis += ", ";
    demand.basis += source.name;
  }
  demand.share /= weights;
  return demand;
}

double SpeedInPart(const Demand& demand, double part) {
  Check(part > 0 && part <= 1, "a part of a GPU is above 0 and at most 1");
  return 1 / (1 - demand.share + demand.share / part);
}

ExpectedSpeed ExpectedInPart(const Demand& demand, double part) {
  const auto with = [part](double share) {
    return SpeedInPart({std::clamp(share, 0.0, 1.0), 0, {}}, part);
  };
  return {with(demand.share), with(demand.share + demand.error), with(demand.share - demand.error)};
}

}  // namespace divvy::planner
