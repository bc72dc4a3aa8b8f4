#include "planner/problem.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "planner/test_problems.h"

namespace divvy::planner {
namespace {

using testing::AddRandomModel;
using testing::Curve;
using testing::Gpu;
using testing::ProfileOf;
using testing::TestProblem;

TEST(ProblemTest, DefaultRuleIsLatencyBelow45PercentOfTheSlo) {
  EXPECT_DOUBLE_EQ(InTimeRule{}.LatencyLimitMs(FromMilliseconds(100)), 45);
}

TEST(ProblemTest, TheLimitItselfIsLate) {
  TestProblem test(Gpu("A30"));
  const ModelDemand& model = test.AddModel("m", {Curve(1, {{1, 30}, {2, 45}})}, 100, 1);
  const auto options = UsefulOptions(model, Gpu("A30"), {});
  ASSERT_EQ(options.size(), 1U);
  EXPECT_EQ(options.front().max_batch, 1);
  EXPECT_NEAR(options.front().capacity, 1e3 / 30, 1e-9);
}

TEST(ProblemTest, BatchesBetweenMeasuredOnesAreUsed) {
  TestProblem test(Gpu("A30"));
  // 10 ms at 1, 12 at 2, 14 at 3, ..: in time below 45 ms up to batch 18.
  const ModelDemand& model = test.AddModel("m", {Curve(1, {{1, 10}, {32, 72}})}, 100, 1);
  const auto options = UsefulOptions(model, Gpu("A30"), {});
  ASSERT_EQ(options.size(), 1U);
  EXPECT_EQ(options.front().max_batch, 18);
  EXPECT_NEAR(options.front().latency_ms, 44, 1e-9);
}

TEST(ProblemTest, MoreProcessesAndLargerBatchesStandSideBySide) {
  TestProblem test(Gpu("A30"));
  // Two processes answer 2 * 4 / 40 ms = 200/s, but take no more than 4 in time.
  const ModelDemand& model = test.AddModel(
      "m", {Curve(1, {{1, 10}, {8, 44}}), Curve(1, {{1, 11}, {4, 40}, {8, 90}}, 2)}, 100, 1);
  const auto options = UsefulOptions(model, Gpu("A30"), {});
  ASSERT_EQ(options.size(), 2U);
  EXPECT_EQ(options[0].max_batch, 4);
  EXPECT_EQ(options[0].processes, 2);
  EXPECT_NEAR(options[0].capacity, 200, 1e-9);
  EXPECT_EQ(options[1].max_batch, 8);
  EXPECT_EQ(options[1].processes, 1);
}

TEST(ProblemTest, WhatDoesNotFitTheMemoryIsLeftOut) {
  TestProblem test(Gpu("A30"));  // 1g.6gb has 5952 MiB.
  workload::ProfileCurve curve = Curve(1, {{1, 1}, {2, 2}, {4, 4}});
  curve.points[0].memory_mib = 4000;
  curve.points[1].memory_mib = 5952;
  curve.points[2].memory_mib = 7000;
  const ModelDemand& model = test.AddModel("m", {curve}, 100, 1);
  const auto options = UsefulOptions(model, Gpu("A30"), {});
  ASSERT_FALSE(options.empty());
  EXPECT_EQ(options.back().max_batch, 2);
  const auto profile = ProfileOf(Gpu("A30"), "1g.6gb");
  EXPECT_TRUE(OptionWithin(model, Gpu("A30"), {}, profile, 1, 2));
  EXPECT_FALSE(OptionWithin(model, Gpu("A30"), {}, profile, 1, 4));
}

TEST(ProblemTest, MpsServesOnlySoManyProcesses) {
  TestProblem test(Gpu("A100-80GB"));  // 48 / 7 = 6 on a 1g.
  const ModelDemand& model = test.AddModel(
      "m", {Curve(1, {{1, 10}}, 1), Curve(1, {{1, 10}}, 6), Curve(1, {{1, 10}}, 7)}, 100, 1);
  const auto options = UsefulOptions(model, Gpu("A100-80GB"), {});
  ASSERT_EQ(options.size(), 1U);
  EXPECT_EQ(options.front().processes, 6);
}

TEST(ProblemTest, ProfilesBeyondTheBaseSetCountWhenTheirFullNameWasMeasured) {
  const gpu::GpuModel& gpu = Gpu("A100-80GB");
  TestProblem test(gpu);
  workload::ProfileCurve named = Curve(1, {{1, 5}});
  named.size = {.unit = workload::PartitionSize::Unit::kProfile, .amount = 1, .profile = "1g.20gb"};
  const ModelDemand& model = test.AddModel("m", {Curve(1, {{1, 10}}), named}, 100, 1);
  std::vector<std::string> names;
  for (const Option& option : UsefulOptions(model, gpu, {})) {
    names.push_back(gpu.profile(option.profile).name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"1g.10gb", "1g.20gb"}));
}

TEST(ProblemTest, OptionsAreThoseThatNothingBeats) {
  Random random(11);
  for (int i = 0; i < 40; ++i) {
    TestProblem test(Gpu("A100-80GB"));
    AddRandomModel(test, random, 1);
    const ModelDemand& model = test.problem.models.front();
    const auto options = UsefulOptions(model, Gpu("A100-80GB"), {});
    const double limit = InTimeRule{}.LatencyLimitMs(model.slo);
    for (const gpu::ProfileIndex profile : Gpu("A100-80GB").Select(gpu::ProfileSet::kBase)) {
      for (const auto& curve : model.profile->curves) {
        if (curve.size.amount != Gpu("A100-80GB").profile(profile).compute_slices) continue;
        for (int batch = 1; batch <= curve.largest_batch(); ++batch) {
          if (*curve.LatencyMs(batch) >= limit) continue;
          EXPECT_TRUE(std::ranges::any_of(options,
                                          [&](const Option& option) {
                                            return option.profile == profile &&
                                                   option.max_batch >= batch &&
                                                   option.capacity >= *curve.Throughput(batch);
                                          }))
              << "case " << i << " batch " << batch;
        }
      }
    }
    for (const Option& option : options) {
      EXPECT_LT(option.latency_ms, limit);
      for (const Option& other : options) {
        EXPECT_FALSE(&other != &option && other.profile == option.profile &&
                     other.max_batch >= option.max_batch && other.capacity >= option.capacity);
      }
      const auto again = OptionWithin(model, Gpu("A100-80GB"), {}, option.profile, option.processes,
                                      option.max_batch);
      ASSERT_TRUE(again);
      EXPECT_EQ(again->max_batch, option.max_batch);
      EXPECT_EQ(again->capacity, option.capacity);
    }
  }
}

TEST(ProblemTest, OptionWithinStopsAtTheLargestBatchInTime) {
  TestProblem test(Gpu("A30"));
  const ModelDemand& model = test.AddModel("m", {Curve(1, {{1, 10}, {32, 72}})}, 100, 1);
  const auto profile = ProfileOf(Gpu("A30"), "1g.6gb");
  EXPECT_EQ(OptionWithin(model, Gpu("A30"), {}, profile, 1, 100)->max_batch, 18);
  EXPECT_EQ(OptionWithin(model, Gpu("A30"), {}, profile, 1, 7)->max_batch, 7);
  EXPECT_FALSE(OptionWithin(model, Gpu("A30"), {}, profile, 2, 7));
}

TEST(ProblemTest, QuickestLooksAtEverySize) {
  TestProblem test(Gpu("A30"));
  const ModelDemand& model =
      test.AddModel("m", {Curve(1, {{1, 10}, {8, 80}}), Curve(4, {{1, 9}, {8, 30}})}, 1, 1);
  const auto quickest = QuickestFor(model, Gpu("A30"), 8);
  ASSERT_TRUE(quickest);
  EXPECT_EQ(quickest->profile, ProfileOf(Gpu("A30"), "4g.24gb"));
  EXPECT_EQ(quickest->latency_ms, 30);
  EXPECT_FALSE(QuickestFor(model, Gpu("A30"), 9));
}

TEST(ProblemTest, ItemsAreCountedByTheRequestTheyComeIn) {
  TestProblem test(Gpu("A30"));
  ModelDemand& model = test.AddModel("m", {Curve(1, {{1, 10}})}, 100, 10);
  model.batches = *workload::BatchDistribution::Empirical(std::vector<double>{3, 0, 0, 1});
  EXPECT_NEAR(ItemsInRequestsOf(model, 1), 10 * (0.75 + 0.25 * 4), 1e-9);
  EXPECT_NEAR(ItemsInRequestsOf(model, 2), 10 * 0.25 * 4, 1e-9);
  EXPECT_EQ(ItemsInRequestsOf(model, 5), 0);
}

}  // namespace
}  // namespace divvy::planner
