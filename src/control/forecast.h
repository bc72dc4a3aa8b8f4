#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace divvy::control {

// Tells what will arrive. One for each tenant; fed one count a slot, in order.
// Whatever it is fed, what it says is finite and not negative; zeros before
// anything was observed. Memory does not grow with what is observed.
// docs/design/forecasts.md says what each kind does. Not thread-safe.
class Forecaster {
 public:
  virtual ~Forecaster() = default;

  // The arrivals of the slot that just ended. REQUIRES: not negative, no NaN. What
  // is above 1e12 counts as 1e12.
  virtual void Observe(double arrivals) = 0;

  // Expected arrivals in each of the next `slots`. REQUIRES: slots >= 0.
  [[nodiscard]] virtual std::vector<double> Mean(int slots) const = 0;

  // For each of the next `slots`, the count that a share `q` of what may come stays
  // at or below: what a plan is made for. Slot by slot: that all of them stay below
  // is less likely than q. Grows with q; may lie below the mean where single slots
  // are far above the others. REQUIRES: slots >= 0, 0 < q < 1.
  [[nodiscard]] virtual std::vector<double> Quantile(int slots, double q) const = 0;
};

struct ForecastOptions {
  int season = 0;  // Slots after which the load repeats itself; 0: none known.
};

// A forecaster by one of ForecasterNames(). kInvalidArgument for another name, which
// lists those there are, and for a season that is negative or above 1'000'000 slots.
[[nodiscard]] Result<std::unique_ptr<Forecaster>> MakeForecaster(std::string_view name,
                                                                 const ForecastOptions& options);

// The names, for --help and errors: the default first.
[[nodiscard]] std::span<const std::string_view> ForecasterNames();

}  // namespace divvy::control
