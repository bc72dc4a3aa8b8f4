#pragma once

#include <memory>
#include <span>
#include <vector>

namespace divvy::control {

// What a forecaster is built of: expected arrivals, without a word on how sure they
// are. Not thread-safe.
class PointForecaster {
 public:
  virtual ~PointForecaster() = default;

  // The arrivals of the slot that just ended: finite, not negative.
  virtual void Observe(double arrivals) = 0;

  // Writes to `means` what is expected so many slots ahead, 1 being the next one:
  // finite, not negative. REQUIRES: something was observed; `ahead` ascends and is as
  // long as `means`.
  virtual void Tell(std::span<const int> ahead, std::span<double> means) const = 0;
};

using PointForecasters = std::vector<std::unique_ptr<PointForecaster>>;

// The last value again; with a season, what came a season ago.
[[nodiscard]] std::unique_ptr<PointForecaster> MakeSeasonalNaive(int season);

// Level and damped trend. `level` and `trend` are the shares of the last error that
// they learn from, `damping` what is left of the trend after a slot. With a trend of
// 0 this is an exponentially weighted mean. All in [0, 1], level above 0.
struct HoltOptions {
  double level = 0.1;
  double trend = 0;
  double damping = 1;
};
[[nodiscard]] std::unique_ptr<PointForecaster> MakeHolt(const HoltOptions& options);

// A regression of the next count on its own past, learned as it goes.
[[nodiscard]] std::unique_ptr<PointForecaster> MakeAutoRegression();

// Feeds `inner` what arrives less its season, and gives the season back to what it
// says. `inner` itself when there is no season (below 2 slots).
[[nodiscard]] std::unique_ptr<PointForecaster> Seasonal(std::unique_ptr<PointForecaster> inner,
                                                        int season);

// The mean of the members, at each horizon weighted by how well they did there of
// late. REQUIRES: at least one member.
[[nodiscard]] std::unique_ptr<PointForecaster> Combine(PointForecasters members);

}  // namespace divvy::control
