#include "workload/batch_distribution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace divvy::workload {
namespace {

using ::testing::HasSubstr;

// Every size comes as often as its probability says, within 5 deviations.
void ExpectSamplesFollow(const BatchDistribution& batches, std::uint64_t seed) {
  constexpr int kSamples = 100'000;
  std::vector<int> counts(static_cast<std::size_t>(batches.largest()) + 1);
  Random random(seed);
  for (int i = 0; i < kSamples; ++i) {
    const int size = batches.Sample(random);
    ASSERT_GE(size, 1);
    ASSERT_LE(size, batches.largest());
    ++counts[static_cast<std::size_t>(size)];
  }
  double mean = 0;
  double sum = 0;
  for (int size = 1; size <= batches.largest(); ++size) {
    const double p = batches.probability(size);
    const double deviation = std::sqrt(kSamples * p * (1 - p));
    EXPECT_NEAR(counts[static_cast<std::size_t>(size)], kSamples * p, 5 * deviation + 1e-6) << size;
    mean += size * p;
    sum += p;
  }
  EXPECT_NEAR(sum, 1, 1e-12);
  EXPECT_NEAR(mean, batches.mean(), 1e-9);
}

TEST(BatchDistributionTest, ConstantIsOneSize) {
  const auto batches = BatchDistribution::Constant(8);
  EXPECT_EQ(batches.largest(), 8);
  EXPECT_EQ(batches.mean(), 8);
  EXPECT_EQ(batches.probability(8), 1);
  EXPECT_EQ(batches.probability(7), 0);
  EXPECT_EQ(batches.probability(0), 0);
  EXPECT_EQ(batches.probability(9), 0);
  EXPECT_EQ(batches.description(), "constant 8");
  Random random(1);
  EXPECT_EQ(batches.Sample(random), 8);
  EXPECT_EQ(BatchDistribution::Constant(kLargestBatch).mean(), kLargestBatch);
}

TEST(BatchDistributionTest, LogNormalIsTheDensityAtTheIntegers) {
  const auto batches = BatchDistribution::LogNormal(6, 0.9, 32);
  double sum = 0;
  const auto density = [](int b) {
    const double z = (std::log(b) - std::log(6.0)) / 0.9;
    return std::exp(-z * z / 2) / b;
  };
  for (int b = 1; b <= 32; ++b) sum += density(b);
  for (int b = 1; b <= 32; ++b) EXPECT_NEAR(batches.probability(b), density(b) / sum, 1e-12);
  EXPECT_EQ(batches.description(), "log-normal, median 6, sigma 0.9, at most 32");
  ExpectSamplesFollow(batches, 3);
}

TEST(BatchDistributionTest, LogNormalFarFromItsMedianStillHasASize) {
  const auto batches = BatchDistribution::LogNormal(60'000, 0.001, 4);
  EXPECT_NEAR(batches.probability(4), 1, 1e-12);
  EXPECT_EQ(BatchDistribution::LogNormal(0.001, 0.001, 5).largest(), 1);
}

TEST(BatchDistributionTest, EmpiricalFollowsItsWeights) {
  const std::vector<double> weights = {3, 0, 1, 0, 0};
  const auto batches = BatchDistribution::Empirical(weights);
  ASSERT_TRUE(batches);
  EXPECT_EQ(batches->largest(), 3);
  EXPECT_EQ(batches->probability(1), 0.75);
  EXPECT_EQ(batches->probability(2), 0);
  EXPECT_EQ(batches->mean(), 1.5);
  EXPECT_EQ(batches->description(), "empirical, 2 sizes up to 3, mean 1.5");
  ExpectSamplesFollow(*batches, 4);
}

TEST(BatchDistributionTest, RandomWeightsAreSampledAsTheyAre) {
  Random random(11);
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    std::vector<double> weights(1 + random.Below(40));
    for (double& weight : weights) {
      if (random.Below(3) > 0) weight = random.Exponential();
    }
    weights.push_back(1);
    ExpectSamplesFollow(*BatchDistribution::Empirical(weights), seed);
  }
}

TEST(BatchDistributionTest, WeightsNearTheEndOfTheRangeDoNotOverflow) {
  const double huge = std::numeric_limits<double>::max();
  const std::vector<double> weights = {huge, huge};
  EXPECT_EQ(BatchDistribution::Empirical(weights)->probability(2), 0.5);
}

TEST(BatchDistributionTest, RefusesWeightsThatAreNone) {
  const auto error = [](std::vector<double> weights) {
    const auto batches = BatchDistribution::Empirical(weights);
    return batches ? "no error" : batches.error().message;
  };
  EXPECT_EQ(error({1, -1}), "the weight -1 of batch size 2 is not a number from 0 up");
  EXPECT_THAT(error({std::nan("")}), HasSubstr("of batch size 1 is not a number"));
  EXPECT_THAT(error({std::numeric_limits<double>::infinity()}), HasSubstr("is not a number"));
  EXPECT_EQ(error({0, 0}), "no batch size has a weight above 0");
  EXPECT_EQ(error({}), "no batch size has a weight above 0");
  EXPECT_EQ(error(std::vector<double>(65'537, 1)), "a batch size of 65537; the largest is 65536");
}

}  // namespace
}  // namespace divvy::workload
