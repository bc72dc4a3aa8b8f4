#include "planner/paris.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "planner/test_problems.h"

namespace divvy::planner {
namespace {

using testing::AddRandomModel;
using testing::Between;
using testing::Curve;
using testing::ExpectLegal;
using testing::Gpu;
using testing::ProfileOf;
using testing::TestProblem;

// 1g saturates at 2, 2g at 4, 4g never below 8.
std::vector<workload::ProfileCurve> Saturating() {
  return {Curve(1, {{1, 10}, {2, 12}, {4, 24}, {8, 48}}),
          Curve(2, {{1, 9}, {2, 10}, {4, 11}, {8, 24}}),
          Curve(4, {{1, 9}, {2, 9}, {4, 9}, {8, 10}})};
}

TEST(ParisTest, KneesAreWhereThroughputReachesFourFifths) {
  TestProblem test(Gpu("A30"));
  ModelDemand& model = test.AddModel("m", Saturating(), 100, 100);
  model.batches = workload::BatchDistribution::LogNormal(3, 0.9, 8);
  const ParisSteps steps = RunParis(model, Gpu("A30"), 4);
  EXPECT_EQ(steps.raw_knees, (std::vector<int>{2, 4, 7}));
  EXPECT_EQ(steps.knees, (std::vector<int>{2, 4, 8}));
  EXPECT_EQ(steps.weights, (std::vector<double>{1, 2, 4}));
  // Each size answers its own segment.
  const auto& dist = model.batches;
  EXPECT_NEAR(steps.demand[0], dist.probability(1) * 10 + dist.probability(2) * 12, 1e-9);
  EXPECT_NEAR(steps.demand[1], dist.probability(3) * 10.5 + dist.probability(4) * 11, 1e-9);
  // The whole budget is spent, in proportion to demand.
  EXPECT_NEAR(steps.counts[0] + 2 * steps.counts[1] + 4 * steps.counts[2], 4, 1e-9);
  EXPECT_NEAR(steps.counts[0] / steps.counts[1], steps.demand[0] / steps.demand[1], 1e-9);
}

TEST(ParisTest, UtilisationDecidesWhereItWasMeasured) {
  TestProblem test(Gpu("A30"));
  auto curves = Saturating();
  curves.resize(2);
  curves[0].points[0].utilization = 0.5;
  curves[0].points[1].utilization = 0.79;
  curves[0].points[2].utilization = 0.8;
  ModelDemand& model = test.AddModel("m", curves, 100, 100);
  model.batches = workload::BatchDistribution::LogNormal(3, 0.9, 8);
  EXPECT_EQ(RunParis(model, Gpu("A30"), 4).raw_knees.front(), 4);
}

TEST(ParisTest, AKneeNeverFallsWithSize) {
  TestProblem test(Gpu("A30"));
  auto curves = Saturating();
  std::swap(curves[0].points, curves[1].points);
  ModelDemand& model = test.AddModel("m", curves, 100, 100);
  model.batches = workload::BatchDistribution::LogNormal(3, 0.9, 8);
  const ParisSteps steps = RunParis(model, Gpu("A30"), 4);
  EXPECT_EQ(steps.raw_knees, (std::vector<int>{4, 2, 7}));
  EXPECT_EQ(steps.knees, (std::vector<int>{4, 4, 8}));
  EXPECT_EQ(steps.demand[1], 0);  // Its segment is empty.
}

TEST(ParisTest, OnHopperSizesWeighTheirSms) {
  TestProblem test(Gpu("H200"));
  ModelDemand& model =
      test.AddModel("m", {Curve(3, {{1, 10}, {8, 20}}), Curve(4, {{1, 10}, {8, 19}})}, 100, 100);
  model.batches = workload::BatchDistribution::Constant(8);
  const ParisSteps steps = RunParis(model, Gpu("H200"), 7);
  EXPECT_NEAR(steps.weights[0], 60 * 7.0 / 132, 1e-9);
  EXPECT_NEAR(steps.weights[1], 64 * 7.0 / 132, 1e-9);
}

// No room is left for any instance of a size that a model runs on.
void ExpectFull(const Problem& problem, const Deployment& deployment) {
  for (const auto& gpu : deployment.gpus) {
    std::vector<gpu::MigInstance> instances;
    for (const Replica& replica : gpu) instances.push_back(replica.instance);
    const auto layout = gpu::MigLayout::Of(*problem.gpu, instances);
    ASSERT_TRUE(layout);
    for (const auto size : RunParis(problem.models.front(), *problem.gpu, 1).sizes) {
      EXPECT_TRUE(layout->FreeStarts(size).empty());
    }
  }
}

TEST(ParisTest, RandomFleetsAreLegalFullAndServeEverybody) {
  Random random(8);
  int planned_count = 0;
  for (int i = 0; i < 60; ++i) {
    TestProblem test(Gpu(i % 2 == 0 ? "A100-80GB" : "H200"));
    for (int m = Between(random, 1, 4); m > 0; --m) AddRandomModel(test, random, 3);
    if (i % 4 == 0)
      test.problem.jobs = {{"job", test.problem.gpu->Select(gpu::ProfileSet::kBase)[2], 1}};
    test.problem.gpus = Between(random, 1, 6);
    const Outcome outcome = PlanParisNearest(test.problem);
    if (std::holds_alternative<Infeasible>(outcome)) continue;
    ++planned_count;
    const Deployment& deployment = std::get<Planned>(outcome).deployment;
    EXPECT_EQ(deployment.gpus.size(), static_cast<std::size_t>(*test.problem.gpus));
    ExpectLegal(test.problem, deployment);
    ExpectFull(test.problem, deployment);
    for (std::size_t m = 0; m < test.problem.models.size(); ++m) {
      int largest = 0;
      for (const auto& gpu : deployment.gpus) {
        for (const Replica& replica : gpu) {
          if (replica.kind != Replica::Kind::kModel || replica.index != m) continue;
          largest = std::max(largest, replica.max_batch);
          EXPECT_EQ(replica.processes, 1);
        }
      }
      const ModelDemand& model = test.problem.models[m];
      int measured = 0;
      for (const auto& curve : model.profile->curves) {
        if (curve.processes == 1) measured = std::max(measured, curve.largest_batch());
      }
      EXPECT_GE(largest, std::min(measured, model.batches.largest())) << "case " << i;
      EXPECT_LE(largest, measured) << "case " << i;
    }
  }
  EXPECT_GT(planned_count, 50);
}

TEST(ParisTest, WholeWishesAreGrantedToTheLetter) {
  TestProblem test(Gpu("A30"));
  ModelDemand& model = test.AddModel("m", Saturating(), 100, 100);
  // Twice as much to do for 1g as for 2g, p(1) * 10 ms = 2 * p(3) * 10.5 ms: then two
  // 1g and one 2g fill each GPU. The 4g owns nothing.
  model.batches = *workload::BatchDistribution::Empirical(std::vector<double>{21, 0, 10});
  test.problem.gpus = 3;
  const Outcome outcome = PlanParisNearest(test.problem);
  const Deployment& deployment = std::get<Planned>(outcome).deployment;
  int small = 0;
  int medium = 0;
  for (const auto& gpu : deployment.gpus) {
    for (const Replica& replica : gpu) {
      small += replica.instance.profile == ProfileOf(Gpu("A30"), "1g.6gb");
      medium += replica.instance.profile == ProfileOf(Gpu("A30"), "2g.12gb");
    }
  }
  const ParisSteps steps = RunParis(model, Gpu("A30"), 12);
  EXPECT_NEAR(steps.counts[0], 6, 1e-9);
  EXPECT_NEAR(steps.counts[1], 3, 1e-9);
  EXPECT_EQ(small, 6);
  EXPECT_EQ(medium, 3);
}

// 1g and 2g fill any A30 to the last slice, so only whole numbers stand between the
// wish and the cut.
TEST(ParisTest, NoSizeIsFarFromItsWish) {
  for (const double weight : {3.0, 7.0, 15.0, 40.0}) {
    TestProblem test(Gpu("A30"));
    ModelDemand& model = test.AddModel("m", Saturating(), 100, 100);
    model.batches = *workload::BatchDistribution::Empirical(std::vector<double>{weight, 0, 10});
    test.problem.gpus = 7;
    const Outcome outcome = PlanParisNearest(test.problem);
    const ParisSteps steps = RunParis(model, Gpu("A30"), 28);
    std::vector<int> counts(steps.sizes.size());
    for (const auto& gpu : std::get<Planned>(outcome).deployment.gpus) {
      for (const Replica& replica : gpu) {
        ++counts[static_cast<std::size_t>(std::ranges::find(steps.sizes, replica.instance.profile) -
                                          steps.sizes.begin())];
      }
    }
    for (std::size_t k = 0; k < counts.size(); ++k) {
      EXPECT_NEAR(counts[k], steps.counts[k], 2) << "weight " << weight << ", size " << k;
    }
  }
}

TEST(ParisTest, WhatIsLeftOverIsSpreadOverTheModels) {
  TestProblem test(Gpu("A30"));
  for (int m = 0; m < 5; ++m) {
    test.AddModel("m" + std::to_string(m), {Curve(1, {{1, 10}})}, 100, 50);
  }
  test.problem.gpus = 3;  // 12 instances for five: 2 or 3 each.
  const Outcome outcome = PlanParisNearest(test.problem);
  for (const auto& figures : Assess(test.problem, std::get<Planned>(outcome).deployment)) {
    EXPECT_GE(figures.instances, 2);
    EXPECT_LE(figures.instances, 3);
  }
}

TEST(ParisTest, MoreModelsThanInstancesIsInfeasible) {
  TestProblem test(Gpu("A30"));
  for (int m = 0; m < 5; ++m) test.AddModel("m" + std::to_string(m), Saturating(), 100, 10);
  test.problem.gpus = 1;
  EXPECT_TRUE(std::holds_alternative<Infeasible>(PlanParisNearest(test.problem)));
  test.problem.gpus = 2;
  EXPECT_TRUE(std::holds_alternative<Planned>(PlanParisNearest(test.problem)));
}

TEST(ParisTest, WithoutACountItGrowsUntilAllIsCarried) {
  TestProblem test(Gpu("A30"));
  test.AddModel("m", Saturating(), 100, 2000);
  const Outcome outcome = PlanParisNearest(test.problem);
  const auto* planned = std::get_if<Planned>(&outcome);
  ASSERT_NE(planned, nullptr);
  EXPECT_TRUE(Carries(test.problem, planned->deployment));
  test.problem.gpus = static_cast<int>(planned->deployment.gpus.size()) - 1;
  EXPECT_FALSE(Carries(test.problem, std::get<Planned>(PlanParisNearest(test.problem)).deployment));
}

}  // namespace
}  // namespace divvy::planner
