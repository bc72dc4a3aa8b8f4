#include "control/forecast.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/spelling.h"
#include "base/text_safety.h"
#include "control/forecast_errors.h"
#include "control/forecast_point.h"

namespace divvy::control {
namespace {

constexpr int kLongestSeason = 1'000'000;
constexpr double kMostArrivals = 1e12;

// Lets a count be at most a few times what came of late. One absurd count is cut to
// something that is soon forgotten; a step that stays is believed a slot or two later.
class SpikeGuard {
 public:
  [[nodiscard]] double Pass(double arrivals) {
    const double most = *std::ranges::max_element(recent_);
    const double passed = first_ ? arrivals : std::min(arrivals, 4 * most + 16);
    first_ = false;
    recent_[next_] = passed;
    next_ = (next_ + 1) % recent_.size();
    return passed;
  }

 private:
  std::array<double, 16> recent_{};
  std::size_t next_ = 0;
  bool first_ = true;
};

// A point forecaster, guarded, with quantiles from its errors.
class BandedForecaster final : public Forecaster {
 public:
  explicit BandedForecaster(std::unique_ptr<PointForecaster> point) : point_(std::move(point)) {}

  void Observe(double arrivals) override {
    Check(arrivals >= 0, "arrivals are not negative");
    const double passed = guard_.Pass(std::min(arrivals, kMostArrivals));
    point_->Observe(passed);
    observed_ = true;
    ByHorizon means{};
    point_->Tell(kHorizons, means);
    bands_.Observe(std::min(arrivals, kMostArrivals), means);
  }

  std::vector<double> Mean(int slots) const override {
    Check(slots >= 0, "slots to come");
    std::vector<double> means(static_cast<std::size_t>(slots));
    if (!observed_) return means;
    std::vector<int> ahead(means.size());
    std::iota(ahead.begin(), ahead.end(), 1);
    point_->Tell(ahead, means);
    return means;
  }

  std::vector<double> Quantile(int slots, double q) const override {
    std::vector<double> means = Mean(slots);
    if (observed_) bands_.ToQuantile(means, q);
    return means;
  }

 private:
  SpikeGuard guard_;
  std::unique_ptr<PointForecaster> point_;
  ErrorBands bands_;
  bool observed_ = false;
};

// From hardly moving to nearly the last value, without and with trend. Which of them
// fits a tenant is found out as it goes.
constexpr HoltOptions kHoltGrid[] = {
    {.level = 0.003},
    {.level = 0.01},
    {.level = 0.03},
    {.level = 0.1},
    {.level = 0.3},
    {.level = 0.8},
    {.level = 0.1, .trend = 0.05, .damping = 0.98},
    {.level = 0.3, .trend = 0.1, .damping = 0.95},
    {.level = 0.3, .trend = 0.1, .damping = 0.995},
};

std::unique_ptr<PointForecaster> HoltGrid() {
  PointForecasters members;
  for (const HoltOptions& options : kHoltGrid) members.push_back(MakeHolt(options));
  return Combine(std::move(members));
}

std::unique_ptr<PointForecaster> HoltWinters(int season) {
  if (season < 2) return HoltGrid();
  PointForecasters members;
  members.push_back(Seasonal(HoltGrid(), season));
  members.push_back(HoltGrid());  // A season that is none must not cost much.
  return Combine(std::move(members));
}

std::unique_ptr<PointForecaster> BestOf(int season) {
  PointForecasters members;
  members.push_back(HoltWinters(season));
  members.push_back(Seasonal(MakeAutoRegression(), season));
  if (season >= 2) members.push_back(MakeSeasonalNaive(season));
  return Combine(std::move(members));
}

struct Kind {
  std::string_view name;
  std::unique_ptr<PointForecaster> (*make)(int season);
};

constexpr std::array kKinds = {
    Kind{"best", BestOf},
    Kind{"holt-winters", HoltWinters},
    Kind{"ar", [](int season) { return Seasonal(MakeAutoRegression(), season); }},
    Kind{"ewma", [](int /*season*/) { return MakeHolt({.level = 0.1}); }},
    Kind{"seasonal-naive", MakeSeasonalNaive},
};

constexpr auto kNames = [] {
  std::array<std::string_view, kKinds.size()> names;
  std::ranges::transform(kKinds, names.begin(), &Kind::name);
  return names;
}();

}  // namespace

Result<std::unique_ptr<Forecaster>> MakeForecaster(std::string_view name,
                                                   const ForecastOptions& options) {
  const auto* const kind = std::ranges::find(kKinds, name, &Kind::name);
  if (kind == kKinds.end()) {
    const std::string hint = DidYouMean(name, kNames);
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("forecast {}: no such forecaster{} There are {}", Quoted(name),
                            hint.empty() ? "." : hint, OneOf(kNames)));
  }
  if (options.season < 0 || options.season > kLongestSeason) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("a season of {} slots; it takes 0 (none) to {}", options.season,
                            kLongestSeason));
  }
  return std::make_unique<BandedForecaster>(kind->make(options.season));
}

std::span<const std::string_view> ForecasterNames() { return kNames; }

}  // namespace divvy::control
