#include "planner/baselines.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "planner/exact.h"
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

// Instances of `model` by profile name.
std::multiset<std::string> InstancesOf(const Problem& problem, const Outcome& outcome,
                                       std::size_t model) {
  std::multiset<std::string> names;
  for (const auto& gpu : std::get<Planned>(outcome).deployment.gpus) {
    for (const Replica& replica : gpu) {
      if (replica.kind != Replica::Kind::kModel || replica.index != model) continue;
      names.insert(problem.gpu->profile(replica.instance.profile).name);
    }
  }
  return names;
}

// 100 items a second on 1g, `two` on 2g, `four` on 4g, one at a time.
std::vector<workload::ProfileCurve> Speeds(double two, double four) {
  return {Curve(1, {{1, 10}}), Curve(2, {{1, 1e3 / two}}), Curve(4, {{1, 1e3 / four}})};
}

TEST(BaselinesTest, HomogeneousDealsByDemand) {
  TestProblem test(Gpu("A30"));
  test.AddModel("busy", Speeds(200, 400), 100, 300);
  test.AddModel("quiet", Speeds(200, 400), 100, 90);
  test.problem.gpus = 1;
  const Outcome outcome = PlanHomogeneous(test.problem, ProfileOf(Gpu("A30"), "1g.6gb"));
  EXPECT_EQ(InstancesOf(test.problem, outcome, 0).size(), 3U);
  EXPECT_EQ(InstancesOf(test.problem, outcome, 1).size(), 1U);
  EXPECT_TRUE(Carries(test.problem, std::get<Planned>(outcome).deployment));
}

TEST(BaselinesTest, HomogeneousGivesEverybodyOneOrSaysWhoGoesWithout) {
  TestProblem test(Gpu("A30"));
  test.AddModel("busy", Speeds(200, 400), 100, 1000);
  test.AddModel("quiet", Speeds(200, 400), 100, 1);
  test.problem.gpus = 1;
  const auto half = ProfileOf(Gpu("A30"), "2g.12gb");
  EXPECT_EQ(InstancesOf(test.problem, PlanHomogeneous(test.problem, half), 1).size(), 1U);
  const auto whole = ProfileOf(Gpu("A30"), "4g.24gb");
  const auto infeasible = std::get<Infeasible>(PlanHomogeneous(test.problem, whole));
  EXPECT_EQ(infeasible.model, 1U);
}

TEST(BaselinesTest, HomogeneousLeavesJobsTheirInstances) {
  TestProblem test(Gpu("A30"));
  test.AddModel("m", Speeds(200, 400), 100, 10);
  test.problem.jobs = {{"job", ProfileOf(Gpu("A30"), "2g.12gb"), 1}};
  test.problem.gpus = 1;
  const Outcome outcome = PlanHomogeneous(test.problem, ProfileOf(Gpu("A30"), "1g.6gb"));
  EXPECT_EQ(InstancesOf(test.problem, outcome, 0).size(), 2U);
  EXPECT_TRUE(Carries(test.problem, std::get<Planned>(outcome).deployment));
}

TEST(BaselinesTest, BestHomogeneousTakesTheSizeWithTheLowestLoad) {
  TestProblem test(Gpu("A30"));
  test.AddModel("m", Speeds(250, 450), 100, 100);
  test.problem.gpus = 1;
  EXPECT_EQ(InstancesOf(test.problem, PlanBestHomogeneous(test.problem), 0),
            (std::multiset<std::string>{"2g.12gb", "2g.12gb"}));
  TestProblem tie(Gpu("A30"));
  tie.AddModel("m", Speeds(200, 400), 100, 100);
  tie.problem.gpus = 1;
  EXPECT_EQ(InstancesOf(tie.problem, PlanBestHomogeneous(tie.problem), 0),
            (std::multiset<std::string>{"4g.24gb"}));
}

TEST(BaselinesTest, RandomDiffersBySeedAndIsTheSameForOne) {
  TestProblem test(Gpu("A100-80GB"));
  test.AddModel("m", Speeds(200, 400), 100, 100);
  test.problem.gpus = 8;
  const auto plan = [&](std::uint64_t seed) {
    test.problem.seed = seed;
    return ToPlan(test.problem, std::get<Planned>(PlanRandom(test.problem)).deployment);
  };
  EXPECT_EQ(plan(1), plan(1));
  EXPECT_NE(plan(1), plan(2));
}

TEST(BaselinesTest, ParvaGpuTakesTheBestPerSliceAndTheSmallestForTheRest) {
  TestProblem test(Gpu("A30"));
  test.AddModel("m", Speeds(250, 400), 100, 580);  // 2 x 250, and 80 are left.
  const Outcome outcome = PlanParvaGpu(test.problem);
  EXPECT_EQ(InstancesOf(test.problem, outcome, 0),
            (std::multiset<std::string>{"1g.6gb", "2g.12gb", "2g.12gb"}));
  EXPECT_EQ(std::get<Planned>(outcome).deployment.gpus.size(), 2U);
  test.problem.gpus = 1;
  EXPECT_EQ(std::get<Infeasible>(PlanParvaGpu(test.problem)).gpus_needed, 2);
  test.problem.gpus = 3;
  EXPECT_EQ(std::get<Planned>(PlanParvaGpu(test.problem)).deployment.gpus.size(), 3U);
}

TEST(BaselinesTest, AWholeMultipleNeedsNoRest) {
  TestProblem test(Gpu("A30"));
  test.AddModel("m", Speeds(250, 400), 100, 500);
  EXPECT_EQ(InstancesOf(test.problem, PlanParvaGpu(test.problem), 0).size(), 2U);
}

TEST(BaselinesTest, GpuletHasAtMostTwoPartitionsAGpu) {
  TestProblem test(Gpu("A100-80GB"));
  test.AddModel("a", Speeds(150, 200), 100, 330);  // 1g is the most efficient: 4 of them.
  test.AddModel("b", {Curve(1, {{1, 10}}), Curve(2, {{1, 4}}), Curve(3, {{1, 3.9}})}, 100, 300);
  const Outcome outcome = PlanGpulet(test.problem);
  EXPECT_EQ(InstancesOf(test.problem, outcome, 0).size(), 4U);
  EXPECT_EQ(InstancesOf(test.problem, outcome, 1),
            (std::multiset<std::string>{"1g.10gb", "2g.20gb"}));
  for (const auto& gpu : std::get<Planned>(outcome).deployment.gpus) EXPECT_LE(gpu.size(), 2U);
  EXPECT_EQ(std::get<Planned>(outcome).deployment.gpus.size(), 3U);
}

const NamedPlanner* FindPlanner(std::string_view name) {
  const auto found = std::ranges::find(Planners(), name, &NamedPlanner::name);
  return found == Planners().end() ? nullptr : &*found;
}

TEST(BaselinesTest, NamesAreThoseOfThePolicyFlag) {
  for (const std::string_view name :
       {"exact", "paris", "homogeneous-1g", "homogeneous-2g", "homogeneous-3g", "homogeneous-4g",
        "homogeneous-7g", "best-homogeneous", "random", "gpulet", "parvagpu"}) {
    ASSERT_NE(FindPlanner(name), nullptr) << name;
    EXPECT_FALSE(FindPlanner(name)->what.empty()) << name;
  }
  EXPECT_EQ(FindPlanner("homogeneous"), nullptr);
}

TEST(BaselinesTest, ASizeThatTheGpuLacksIsNamed) {
  TestProblem test(Gpu("A30"));
  test.AddModel("m", Speeds(200, 400), 100, 100);
  EXPECT_EQ(std::get<Infeasible>(FindPlanner("homogeneous-3g")->plan(test.problem)).why,
            "A30-24GB has no 3g instances; it has 1g, 2g, 4g");
}

// Every planner's answer can be cut, holds the jobs, and never beats the exact one.
TEST(BaselinesTest, NobodyBreaksTheRulesOrBeatsExact) {
  Random random(21);
  for (int i = 0; i < 6; ++i) {
    TestProblem test(Gpu(i % 2 == 0 ? "A30" : "A100-80GB"));
    for (int m = Between(random, 1, 3); m > 0; --m) AddRandomModel(test, random, 4);
    if (i % 3 == 0) {
      test.problem.jobs = {{"job", test.problem.gpu->Select(gpu::ProfileSet::kBase)[1], 2}};
    }
    const Outcome exact = PlanExact(test.problem);
    for (const NamedPlanner& planner : Planners()) {
      if (planner.name == "paris") continue;  // Its search takes long and has its own tests.
      const Outcome outcome = planner.plan(test.problem);
      const auto* planned = std::get_if<Planned>(&outcome);
      if (planned == nullptr) {
        EXPECT_FALSE(std::get<Infeasible>(outcome).why.empty());
        continue;
      }
      ExpectLegal(test.problem, planned->deployment);
      if (!Carries(test.problem, planned->deployment)) {
        EXPECT_EQ(planner.name, "gpulet") << "case " << i;  // By its own rule it does.
        continue;
      }
      ASSERT_TRUE(std::holds_alternative<Planned>(exact));
      EXPECT_GE(planned->deployment.gpus.size(), std::get<Planned>(exact).deployment.gpus.size())
          << planner.name << ", case " << i;
    }
  }
}

}  // namespace
}  // namespace divvy::planner
