#include "planner/deployment.h"

#include <gtest/gtest.h>

#include <cmath>

#include "planner/test_problems.h"

namespace divvy::planner {
namespace {

using testing::Curve;
using testing::Gpu;
using testing::ProfileOf;
using testing::TestProblem;

class DeploymentTest : public ::testing::Test {
 protected:
  // 1g answers 100/s in batches of 1, 2g 200/s in batches of 4 (20 ms).
  DeploymentTest() : test_(Gpu("A30")) {
    test_.AddModel("m", {Curve(1, {{1, 10}}), Curve(2, {{4, 20}, {8, 60}})}, 100, 100);
  }

  Replica Model(int start, std::string_view profile, int max_batch) const {
    return {.instance = {start, ProfileOf(Gpu("A30"), profile)},
            .kind = Replica::Kind::kModel,
            .max_batch = max_batch};
  }

  ModelFigures Figures(const Deployment& deployment) const {
    return Assess(test_.problem, deployment).front();
  }

  TestProblem test_;
};

TEST_F(DeploymentTest, LoadIsDemandOverCapacity) {
  const Deployment deployment{{{Model(0, "1g.6gb", 1)}, {Model(2, "2g.12gb", 4)}}};
  const ModelFigures figures = Figures(deployment);
  EXPECT_EQ(figures.instances, 2);
  EXPECT_NEAR(figures.demand, 100, 1e-9);
  EXPECT_NEAR(figures.capacity, 300, 1e-9);
  EXPECT_NEAR(figures.load, 1.0 / 3, 1e-9);
}

TEST_F(DeploymentTest, LargeRequestsLoadOnlyWhatTakesThem) {
  ModelDemand& model = test_.problem.models.front();
  model.batches = *workload::BatchDistribution::Empirical(std::vector<double>{1, 0, 0, 1});
  model.rate = 60;  // 30 items/s alone, 120 items/s in fours.
  const Deployment both{{{Model(0, "1g.6gb", 1), Model(2, "2g.12gb", 4)}}};
  EXPECT_NEAR(Figures(both).load, 120.0 / 200, 1e-9);
  const Deployment small{{{Model(0, "1g.6gb", 1)}}};
  EXPECT_TRUE(std::isinf(Figures(small).load));
}

TEST_F(DeploymentTest, ABatchThatIsLateCountsAsTheLargestInTime) {
  // Batch 8 takes 60 ms, 45 is the limit: 6 items at 40 ms are the most.
  const Deployment deployment{{{Model(0, "2g.12gb", 8)}}};
  EXPECT_NEAR(Figures(deployment).capacity, 150, 1e-9);
}

TEST_F(DeploymentTest, ExactlyCarriedIsCarried) {
  const Deployment deployment{{{Model(0, "1g.6gb", 1)}}};
  EXPECT_TRUE(Carries(test_.problem, deployment));
  test_.problem.models.front().rate = 100.001;
  EXPECT_FALSE(Carries(test_.problem, deployment));
}

TEST_F(DeploymentTest, JobsMustHaveTheirInstances) {
  const auto profile = ProfileOf(Gpu("A30"), "2g.12gb");
  test_.problem.jobs = {{.name = "train", .instance = profile, .count = 1}};
  Deployment deployment{{{Model(0, "1g.6gb", 1)}}};
  EXPECT_FALSE(Carries(test_.problem, deployment));
  deployment.gpus[0].push_back({.instance = {2, profile}, .kind = Replica::Kind::kJob});
  EXPECT_TRUE(Carries(test_.problem, deployment));
  deployment.gpus[0].back().instance = {2, ProfileOf(Gpu("A30"), "1g.6gb")};
  EXPECT_FALSE(Carries(test_.problem, deployment));
}

TEST_F(DeploymentTest, NobodyNeedsInstancesForNoRequests) {
  test_.problem.models.front().rate = 0;
  EXPECT_EQ(Figures(Deployment{{{}}}).load, 0);
  EXPECT_TRUE(Carries(test_.problem, Deployment{}));
}

TEST_F(DeploymentTest, APlanNamesWhatRuns) {
  const auto profile = ProfileOf(Gpu("A30"), "1g.6gb");
  test_.problem.jobs = {{.name = "train", .instance = profile, .count = 1}};
  Replica model = Model(2, "2g.12gb", 4);
  model.processes = 3;
  const Deployment deployment{{{},
                               {{.instance = {0, profile}, .kind = Replica::Kind::kJob},
                                {.instance = {1, profile}},
                                model}}};
  const plan::Plan plan = ToPlan(test_.problem, deployment);
  EXPECT_TRUE(plan::Validate(plan).empty());
  ASSERT_EQ(plan.gpus.size(), 2U);
  EXPECT_TRUE(plan.gpus[0].instances.empty());
  EXPECT_EQ(plan.gpus[1].gpu, plan::GpuRef(1));
  EXPECT_EQ(plan.gpus[1].kind, "A30-24GB");
  const auto& instances = plan.gpus[1].instances;
  ASSERT_EQ(instances.size(), 3U);
  EXPECT_EQ(instances[0].runs.front().name, "train");
  EXPECT_EQ(instances[0].runs.front().kind, plan::Assignment::Kind::kJob);
  EXPECT_TRUE(instances[1].runs.empty());
  EXPECT_EQ(instances[2].profile, "2g.12gb");
  EXPECT_EQ(instances[2].start, 2);
  EXPECT_EQ(instances[2].runs.front().processes, 3);
  EXPECT_EQ(instances[2].runs.front().batch, 4);
}

}  // namespace
}  // namespace divvy::planner
