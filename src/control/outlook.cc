#include "control/outlook.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace divvy::control {
namespace {

using Loads = std::vector<std::vector<double>>;

// No more than this many times what was ever seen in a slot is planned for, and a
// forecast of more than kAbsurd times that for the next kNear slots is absurd.
constexpr double kMost = 1.5;
constexpr double kAbsurd = 2;
constexpr int kNear = 10;

// So many slots ahead a forecast is believed by a third; further on what is usual takes
// its place, for a trough does not last because it is here. What is usual is what was
// seen, and before much was, what the fleet says, as if it had been seen for kPrior slots.
constexpr double kSight = 40;
constexpr double kPrior = 100;

// Requests in a slot below which any forecast is believed.
constexpr double kFew = 10;

}  // namespace

ForecastOutlook::ForecastOutlook(const Estate& estate,
                                 std::vector<std::unique_ptr<Forecaster>> forecasters,
                                 double quantile)
    : estate_(estate),
      forecasters_(std::move(forecasters)),
      quantile_(quantile),
      highest_(estate.tenants.size()),
      total_(estate.tenants.size()) {
  Check(forecasters_.size() == estate.tenants.size(), "a forecaster for each tenant");
}

Result<Loads> ForecastOutlook::Expect(const View& view, int slots) {
  Loads loads;
  const std::size_t seen = view.arrivals.front().size();
  for (std::size_t m = 0; m < forecasters_.size(); ++m) {
    for (std::size_t t = seen_; t < seen; ++t) {
      forecasters_[m]->Observe(view.arrivals[m][t]);
      highest_[m] = std::max(highest_[m], view.arrivals[m][t]);
      total_[m] += view.arrivals[m][t];
    }
  }
  seen_ = seen;
  for (std::size_t m = 0; m < forecasters_.size(); ++m) {
    const double mean = estate_.tenants[m].mean_load;
    if (view.arrivals[m].empty()) {
      loads.emplace_back(static_cast<std::size_t>(slots), mean);
      continue;
    }
    loads.push_back(forecasters_[m]->Quantile(slots, quantile_));
    const double most = kMost * std::max({highest_[m], mean, kFew});
    // Far ahead a quantile may well be beyond all that was seen. Near it may not.
    double near = 0;
    for (int t = 0; t < std::min(slots, kNear); ++t) near += loads[m][static_cast<std::size_t>(t)];
    near /= std::min(slots, kNear);
    if (!(near <= kAbsurd * most)) {  // True for NaN, too.
      return Fail(ErrorCode::kUnavailable,
                  fmt::format("the forecast for {} is absurd: {:.0f} requests in a slot, when "
                              "the most ever seen is {:.0f}",
                              estate_.tenants[m].name, near, highest_[m]));
    }
    const double usual = (kPrior * mean + total_[m]) / (kPrior + static_cast<double>(seen));
    for (std::size_t t = 0; t < loads[m].size(); ++t) {
      const double trust = std::exp(-static_cast<double>(t) / kSight);
      loads[m][t] = trust * std::min(loads[m][t], most) + (1 - trust) * usual;
    }
  }
  return loads;
}

PerfectOutlook::PerfectOutlook(Loads arrivals) : arrivals_(std::move(arrivals)) {}

Result<Loads> PerfectOutlook::Expect(const View& view, int slots) {
  Loads loads;
  for (const std::vector<double>& arrivals : arrivals_) {
    std::vector<double>& load = loads.emplace_back();
    for (int t = view.slot; t < view.slot + slots; ++t) {
      // After the end of the run, the last slot over and over.
      const auto at = std::min(static_cast<std::size_t>(t), arrivals.size() - 1);
      load.push_back(arrivals[at]);
    }
  }
  return loads;
}

}  // namespace divvy::control
