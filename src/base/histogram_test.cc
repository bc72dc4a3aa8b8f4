#include "base/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"

namespace divvy {
namespace {

TEST(HistogramTest, QuantilesAreWithinEightTenthsOfAPercent) {
  Random random(5);
  Histogram histogram;
  std::vector<Duration> all;
  for (int i = 0; i < 20000; ++i) {
    // Nine orders of magnitude.
    const Duration value(static_cast<Duration::rep>(std::pow(10, 9 * random.Uniform())));
    histogram.Add(value);
    all.push_back(value);
  }
  std::ranges::sort(all);
  for (const double q : {0.0001, 0.01, 0.5, 0.95, 0.99, 0.9999, 1.0}) {
    const auto rank = static_cast<std::size_t>(std::ceil(q * 20000)) - 1;
    const double truth = static_cast<double>(all[rank].count());
    const double found = static_cast<double>(histogram.Quantile(q).count());
    EXPECT_GE(found, truth) << q;
    EXPECT_LE(found, truth * 1.008 + 1) << q;
  }
  EXPECT_EQ(histogram.max(), all.back());
}

TEST(HistogramTest, TheLargestDurationHasABucket) {
  Histogram histogram;
  histogram.Add(Duration::max());
  histogram.Add(Duration(-5));
  EXPECT_EQ(histogram.Quantile(1), Duration::max());
  EXPECT_EQ(histogram.Quantile(0), Duration(0));
}

TEST(HistogramTest, EmptyAnswersZero) { EXPECT_EQ(Histogram().Quantile(0.5), Duration(0)); }

}  // namespace
}  // namespace divvy
