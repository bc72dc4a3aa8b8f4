#include "control/forecast_errors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <vector>

#include "base/random.h"

namespace divvy::control {
namespace {

TEST(InterpolateTest, IsExactAtHorizonsAndStraightBetween) {
  ByHorizon slots{};
  std::ranges::copy(kHorizons, slots.begin());
  for (int ahead = 1; ahead <= 200; ++ahead) EXPECT_NEAR(Interpolate(slots, ahead), ahead, 1e-12);
  EXPECT_EQ(Interpolate(slots, 5000), 200);
}

TEST(PendingForecastsTest, ComeDueAfterTheirHorizon) {
  PendingForecasts pending;
  // Slot t is told as 1000 * (when it was said) + t.
  for (int now = 0; now < 450; ++now) {
    for (std::size_t h = 0; h < kHorizons.size(); ++h) {
      const auto due = pending.Due(h);
      const int said = now - kHorizons[h];
      ASSERT_EQ(due.has_value(), said >= 0);
      if (due) {
        EXPECT_EQ(*due, 1000 * said + now) << kHorizons[h];
      }
    }
    ByHorizon means{};
    for (std::size_t h = 0; h < kHorizons.size(); ++h) means[h] = 1000 * now + now + kHorizons[h];
    pending.Expect(means);
  }
}

TEST(SortedWindowTest, IsWhatSortingTheLastValuesGives) {
  Random random(2);
  SortedWindow window(20);
  std::deque<double> last;
  for (int i = 0; i < 500; ++i) {
    // Few different ones, so that equals are dropped one at a time.
    const auto value = static_cast<double>(random.Below(12));
    window.Add(value);
    last.push_back(value);
    if (last.size() > 20) last.pop_front();
    ASSERT_EQ(window.size(), last.size());
    std::vector<double> sorted(last.begin(), last.end());
    std::ranges::sort(sorted);
    const auto count = static_cast<double>(sorted.size());
    for (std::size_t rank = 0; rank < sorted.size(); ++rank) {
      EXPECT_NEAR(window.Quantile((static_cast<double>(rank) + 1) / (count + 1)), sorted[rank],
                  1e-9);
    }
    EXPECT_EQ(window.Quantile(1e-9), sorted.front());
    EXPECT_EQ(window.Quantile(1 - 1e-9), sorted.back());
  }
}

TEST(ErrorBandsTest, ErrorsScaleWithTheRootOfTheForecast) {
  ErrorBands bands;
  ByHorizon means{};
  means.fill(100);
  // What comes is 10 or 20 above by turns: one or two roots of 100.
  for (int slot = 0; slot < 2000; ++slot) bands.Observe(slot / 3 % 2 == 0 ? 110 : 120, means);
  std::array<double, 3> told = {100, 400, 0};
  bands.ToQuantile(told, 0.25);
  EXPECT_NEAR(told[0], 110, 1e-9);
  EXPECT_NEAR(told[1], 420, 1e-9);
  EXPECT_NEAR(told[2], 1, 1e-9);  // Less than one arrival counts as one.
  told = {100, 400, 0};
  bands.ToQuantile(told, 0.75);
  EXPECT_NEAR(told[0], 120, 1e-9);
  EXPECT_NEAR(told[1], 440, 1e-9);
}

TEST(ErrorBandsTest, FewErrorsAreNoReasonToBeSure) {
  ErrorBands bands;
  ByHorizon means{};
  means.fill(100);
  for (int slot = 0; slot < 10; ++slot) bands.Observe(100, means);
  std::array<double, 100> told{};
  told.fill(100);
  bands.ToQuantile(told, 0.975);
  for (const double value : told) EXPECT_NEAR(value, 119.6, 0.1);
  // Enough at the short horizons, none at the long ones.
  for (int slot = 0; slot < 60; ++slot) bands.Observe(100, means);
  told.fill(100);
  bands.ToQuantile(told, 0.975);
  EXPECT_NEAR(told[0], 100, 1e-9);
  EXPECT_NEAR(told[99], 119.6, 0.1);
}

}  // namespace
}  // namespace divvy::control
