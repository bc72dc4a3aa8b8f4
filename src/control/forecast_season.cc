#include "control/forecast_season.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "control/forecast_point.h"

namespace divvy::control {
namespace {

constexpr int kMostStretches = 96;
constexpr double kLearned = 0.3;       // Of a new season, once there was one.
constexpr double kLeastFactor = 0.02;  // So that one stray arrival at night is no flood.

class SeasonalForecaster final : public PointForecaster {
 public:
  SeasonalForecaster(std::unique_ptr<PointForecaster> inner, int season)
      : inner_(std::move(inner)), shape_(season) {}

  void Observe(double arrivals) override {
    inner_->Observe(arrivals / shape_.Factor(1));
    shape_.Observe(arrivals);
  }

  void Tell(std::span<const int> ahead, std::span<double> means) const override {
    inner_->Tell(ahead, means);
    for (std::size_t i = 0; i < means.size(); ++i) means[i] *= shape_.Factor(ahead[i]);
  }

 private:
  std::unique_ptr<PointForecaster> inner_;
  SeasonShape shape_;
};

}  // namespace

SeasonShape::SeasonShape(int season) : season_(season) {
  Check(season >= 2, "a season of two slots at least");
  const auto stretches = static_cast<std::size_t>(std::min(season, kMostStretches));
  factors_.assign(stretches, 1.0);
  sums_.assign(stretches, 0.0);
  slots_.assign(stretches, 0);
  for (int phase = 0; phase < season; ++phase) ++slots_[StretchOf(phase)];
}

std::size_t SeasonShape::StretchOf(int phase) const {
  return static_cast<std::size_t>(phase) * factors_.size() / static_cast<std::size_t>(season_);
}

void SeasonShape::Observe(double arrivals) {
  sums_[StretchOf(phase_)] += arrivals;
  if (++phase_ < season_) return;
  phase_ = 0;
  LearnSeason();
  std::ranges::fill(sums_, 0.0);
}

void SeasonShape::LearnSeason() {
  const double all = std::accumulate(sums_.begin(), sums_.end(), 0.0);
  if (all <= 0) return;  // A silent season has no shape.
  const double mean = all / season_;
  const auto count = static_cast<double>(sums_.size());
  double variance = 0;
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    const double ratio = sums_[i] / slots_[i] / mean;
    variance += (ratio - 1) * (ratio - 1) / count;
  }
  // Counts scatter by themselves; only what they scatter beyond that is shape.
  const double noise = count / all;
  const double trust = variance > 0 ? std::max(0.0, 1 - noise / variance) : 0;
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    const double seen = std::max(kLeastFactor, 1 + trust * (sums_[i] / slots_[i] / mean - 1));
    factors_[i] = learned_ ? std::lerp(factors_[i], seen, kLearned) : seen;
  }
  learned_ = true;
}

double SeasonShape::Factor(int ahead) const {
  const int phase = (phase_ + (ahead - 1) % season_) % season_;
  const auto count = factors_.size();
  if (static_cast<int>(count) == season_) return factors_[static_cast<std::size_t>(phase)];
  // Between the middles of two stretches; the season's end leads to its beginning.
  const double place = (phase + 0.5) * static_cast<double>(count) / season_ - 0.5;
  const double low = std::floor(place);
  const auto left = static_cast<std::size_t>(low + static_cast<double>(count)) % count;
  return std::lerp(factors_[left], factors_[(left + 1) % count], place - low);
}

std::unique_ptr<PointForecaster> Seasonal(std::unique_ptr<PointForecaster> inner, int season) {
  if (season < 2) return inner;
  return std::make_unique<SeasonalForecaster>(std::move(inner), season);
}

}  // namespace divvy::control
