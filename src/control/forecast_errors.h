#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace divvy::control {

// The horizons, in slots, at which forecasts are compared with what came. What lies
// between them is interpolated; what lies beyond the last is as the last.
inline constexpr std::array kHorizons = {1, 2, 5, 10, 20, 50, 100, 200};

using ByHorizon = std::array<double, kHorizons.size()>;

// What stands at the horizons, for one between them. REQUIRES: ahead >= 1.
[[nodiscard]] double Interpolate(const ByHorizon& values, int ahead);

// Forecasts that wait for the slot they are about.
class PendingForecasts {
 public:
  PendingForecasts();

  // What was said for the slot that just ended, that many slots ago; nothing while
  // nothing was. By index into kHorizons.
  [[nodiscard]] std::optional<double> Due(std::size_t horizon) const;

  // After Due: the forecast made now.
  void Expect(const ByHorizon& means);

 private:
  std::array<std::vector<double>, kHorizons.size()> rings_;
  std::int64_t slot_ = 0;
};

// The last so many values, in order of size.
class SortedWindow {
 public:
  explicit SortedWindow(std::size_t capacity) : capacity_(capacity) {}

  void Add(double value);
  [[nodiscard]] std::size_t size() const { return sorted_.size(); }

  // Interpolated between neighbours. REQUIRES: size() > 0.
  [[nodiscard]] double Quantile(double q) const;

 private:
  std::size_t capacity_;
  std::size_t oldest_ = 0;
  std::vector<double> by_age_;  // A ring from oldest_ on, once full.
  std::vector<double> sorted_;
};

// Turns expectations into quantiles by the errors that the same forecaster made
// before, horizon by horizon. Errors are kept in units of the square root of the
// forecast, as counts have it: so they hold at another level too. While there are
// few, the spread is at least that of Poisson counts. Not thread-safe.
class ErrorBands {
 public:
  ErrorBands();

  // What came in the slot that just ended, and the forecast made after it.
  void Observe(double arrivals, const ByHorizon& means);

  // Replaces the means of the next slots, from the first on, by their quantile.
  // REQUIRES: 0 < q < 1.
  void ToQuantile(std::span<double> means, double q) const;

 private:
  PendingForecasts pending_;
  std::vector<SortedWindow> errors_;  // By horizon.
  std::int64_t slot_ = 0;
};

}  // namespace divvy::control
