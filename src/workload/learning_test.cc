#include "workload/learning.h"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

namespace divvy::workload {
namespace {

using namespace std::chrono_literals;

TEST(LearningTest, AccuracyFallsEvenlyToTheFloor) {
  const Learning learning{.accuracy = 0.8, .drift_per_minute = 0.05, .floor = 0.3};
  EXPECT_DOUBLE_EQ(learning.AccuracyAfter(0.8, 0s), 0.8);
  EXPECT_DOUBLE_EQ(learning.AccuracyAfter(0.8, 1min), 0.75);
  EXPECT_DOUBLE_EQ(learning.AccuracyAfter(0.9, 90s), 0.825);
  EXPECT_DOUBLE_EQ(learning.AccuracyAfter(0.8, 10min), 0.3);
  EXPECT_DOUBLE_EQ(learning.AccuracyAfter(0.8, 1000h), 0.3);
}

TEST(LearningTest, AModelIsNeverBetterThanItWasTrained) {
  const Learning learning{.accuracy = 0.8, .drift_per_minute = 0.05, .floor = 0.3};
  EXPECT_DOUBLE_EQ(learning.AccuracyAfter(0.2, 0s), 0.2);  // Below the floor from the start,
  EXPECT_DOUBLE_EQ(learning.AccuracyAfter(0.2, 1h), 0.2);  // and where it stays.
  EXPECT_DOUBLE_EQ(learning.AccuracyAfter(0.8, -1min), 0.8);
}

TEST(LearningTest, ACurveBecomesOptionsNamedByTheirSamples) {
  const LearningCurve curve{.start = 0.6, .limit = 0.92, .scale = 9000};
  EXPECT_DOUBLE_EQ(curve.AccuracyAfter(0), 0.6);
  const std::vector<double> samples = {4000, 9000, 1e7};
  const auto options = OptionsOf(curve, samples);
  ASSERT_EQ(options.size(), 3U);
  EXPECT_EQ(options[0].name, "4000");
  EXPECT_EQ(options[0].samples, 4000);
  EXPECT_NEAR(options[1].accuracy, 0.92 - 0.32 * 0.36788, 1e-5);
  EXPECT_NEAR(options[2].accuracy, 0.92, 1e-12);
  EXPECT_EQ(options[2].name, "10000000");
}

}  // namespace
}  // namespace divvy::workload
