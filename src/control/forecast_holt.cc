#include <algorithm>
#include <cmath>

#include "control/forecast_point.h"

namespace divvy::control {
namespace {

// As a ring: the oldest value is what comes next.
class SeasonalNaive final : public PointForecaster {
 public:
  explicit SeasonalNaive(int season) : season_(static_cast<std::size_t>(std::max(season, 1))) {}

  void Observe(double arrivals) override {
    if (past_.size() < season_) {
      past_.push_back(arrivals);
      return;
    }
    past_[oldest_] = arrivals;
    oldest_ = (oldest_ + 1) % season_;
  }

  void Tell(std::span<const int> ahead, std::span<double> means) const override {
    for (std::size_t i = 0; i < means.size(); ++i) {
      const auto slots = static_cast<std::size_t>(ahead[i]) - 1;
      means[i] = past_.size() < season_ ? past_.back() : past_[(oldest_ + slots) % season_];
    }
  }

 private:
  std::size_t season_;
  std::size_t oldest_ = 0;
  std::vector<double> past_;
};

class Holt final : public PointForecaster {
 public:
  explicit Holt(const HoltOptions& options) : options_(options) {}

  void Observe(double arrivals) override {
    // A mean of all there is, as long as that is faster: the first count is no level.
    ++seen_;
    const double share = std::max(options_.level, 1 / seen_);
    const double expected = level_ + options_.damping * trend_;
    const double before = level_;
    level_ = std::max(0.0, expected + share * (arrivals - expected));
    if (seen_ < 2) return;
    trend_ = std::lerp(options_.damping * trend_, level_ - before, options_.trend);
  }

  void Tell(std::span<const int> ahead, std::span<double> means) const override {
    double mean = level_;
    double step = trend_;
    int slot = 0;
    for (std::size_t i = 0; i < means.size(); ++i) {
      for (; slot < ahead[i] && step != 0; ++slot) {
        step *= options_.damping;
        mean += step;
      }
      means[i] = std::max(0.0, mean);
    }
  }

 private:
  HoltOptions options_;
  double seen_ = 0;
  double level_ = 0;
  double trend_ = 0;
};

}  // namespace

std::unique_ptr<PointForecaster> MakeSeasonalNaive(int season) {
  return std::make_unique<SeasonalNaive>(season);
}

std::unique_ptr<PointForecaster> MakeHolt(const HoltOptions& options) {
  return std::make_unique<Holt>(options);
}

}  // namespace divvy::control
