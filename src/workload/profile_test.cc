#include "workload/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "gpu/catalogue.h"

namespace divvy::workload {
namespace {

using ::testing::ElementsAre;

const gpu::MigProfile& Profile(std::string_view name) {
  const gpu::GpuModel& model = **gpu::FindGpuModel("A100-80GB");
  return model.profile(*model.FindProfile(name));
}

ProfileCurve Curve(std::string_view size, int processes, std::vector<ProfilePoint> points) {
  return {.size = *ParsePartitionSize(size), .processes = processes, .points = std::move(points)};
}

TEST(ProfileTest, LatencyIsLinearBetweenPoints) {
  const ProfileCurve curve = Curve("1g", 1, {{4, 10}, {8, 14}, {16, 30}});
  EXPECT_EQ(curve.LatencyMs(4), 10);
  EXPECT_EQ(curve.LatencyMs(5), 11);
  EXPECT_EQ(curve.LatencyMs(8), 14);
  EXPECT_EQ(curve.LatencyMs(12), 22);
  EXPECT_EQ(curve.LatencyMs(16), 30);
}

TEST(ProfileTest, BelowTheSmallestIsPaddedAndAboveTheLargestUnknown) {
  const ProfileCurve curve = Curve("1g", 1, {{4, 10}, {8, 14}});
  EXPECT_EQ(curve.LatencyMs(1), 10);
  EXPECT_EQ(curve.LatencyMs(9), std::nullopt);
  EXPECT_EQ(curve.LatencyMs(0), std::nullopt);
  EXPECT_EQ(curve.LatencyMs(-3), std::nullopt);
}

TEST(ProfileTest, APointBelowAnEarlierOneCountsAsThatOne) {
  const ProfileCurve curve = Curve("1g", 1, {{1, 10}, {2, 6}, {4, 8}, {8, 20}});
  EXPECT_EQ(curve.LatencyMs(2), 10);
  EXPECT_EQ(curve.LatencyMs(4), 10);
  EXPECT_EQ(curve.LatencyMs(6), 15);
}

TEST(ProfileTest, ThroughputCountsAllProcesses) {
  const ProfileCurve curve = Curve("1g", 3, {{8, 20}});
  EXPECT_DOUBLE_EQ(*curve.Throughput(8), 3 * 8 / 0.020);
  EXPECT_DOUBLE_EQ(*curve.Throughput(1), 3 * 1 / 0.020);
  EXPECT_EQ(curve.Throughput(9), std::nullopt);
}

TEST(ProfileTest, OptionalFiguresNeedThePointsAround) {
  const ProfileCurve curve = Curve("1g", 1,
                                   {{.batch = 1, .latency_ms = 1, .p95_ms = 2, .memory_mib = 900},
                                    {.batch = 3, .latency_ms = 2, .p95_ms = 4, .memory_mib = 800},
                                    {.batch = 5, .latency_ms = 3},
                                    {.batch = 7, .latency_ms = 4, .p95_ms = 3}});
  EXPECT_EQ(curve.P95Ms(1), 2);
  EXPECT_EQ(curve.P95Ms(2), 3);
  EXPECT_EQ(curve.P95Ms(4), std::nullopt);
  EXPECT_EQ(curve.P95Ms(5), std::nullopt);
  EXPECT_EQ(curve.P95Ms(6), std::nullopt);
  EXPECT_EQ(curve.P95Ms(7), 4);  // The running maximum passes over the gap.
  EXPECT_EQ(curve.MemoryMib(3), 900);
  EXPECT_EQ(curve.MemoryMib(7), std::nullopt);
}

TEST(ProfileTest, LatencyNeverFallsAndNeverUndercutsAMeasurement) {
  Random random(7);
  for (int round = 0; round < 300; ++round) {
    ProfileCurve curve = Curve("1g", 1, {});
    int batch = 0;
    const auto points = 1 + random.Below(8);
    for (std::uint64_t i = 0; i < points; ++i) {
      batch += 1 + static_cast<int>(random.Below(9));
      curve.points.push_back({.batch = batch, .latency_ms = 1 + 9 * random.Uniform()});
    }
    double before = 0;
    double highest = 0;
    for (int b = 1; b <= batch; ++b) {
      const double latency = *curve.LatencyMs(b);
      EXPECT_GE(latency, before);
      for (const ProfilePoint& point : curve.points) {
        highest = std::max(highest, point.latency_ms);
        if (point.batch == b) {
          EXPECT_GE(latency, point.latency_ms);
        }
      }
      EXPECT_LE(latency, highest);
      before = latency;
    }
  }
}

TEST(ProfileTest, FindsTheCurveThatSpeaksBest) {
  const ModelProfile model{
      .model = "m",
      .gpu = {},
      .source = {},
      .curves = {Curve("3g", 1, {{1, 1}}), Curve("3g", 2, {{1, 2}}), Curve("3g.40gb", 1, {{1, 3}}),
                 Curve("42sm", 1, {{1, 4}}), Curve("42sm", 4, {{1, 5}})}};
  EXPECT_EQ(model.Find(Profile("3g.40gb"), 1), &model.curves[2]);
  EXPECT_EQ(model.Find(Profile("3g.40gb"), 2), &model.curves[1]);
  EXPECT_EQ(model.Find(Profile("3g.40gb"), 4), &model.curves[4]);
  EXPECT_EQ(model.Find(Profile("3g.40gb"), 3), nullptr);
  EXPECT_EQ(model.Find(Profile("4g.40gb"), 1), nullptr);
  EXPECT_THAT(model.Processes(Profile("3g.40gb")), ElementsAre(1, 2, 4));
  EXPECT_THAT(model.Processes(Profile("7g.80gb")), ElementsAre());
}

}  // namespace
}  // namespace divvy::workload
