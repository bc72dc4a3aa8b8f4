#include "planner/leftovers.h"

#include <gtest/gtest.h>

#include "planner/test_problems.h"

namespace divvy::planner {
namespace {

using testing::Curve;
using testing::Gpu;
using testing::ProfileOf;
using testing::TestProblem;
using workload::CollocatedJob;

class LeftoversTest : public ::testing::Test {
 protected:
  // An A30 has four slices of 6 GB; the model's 2g is half busy: a quarter of the GPU.
  LeftoversTest() : test_(Gpu("A30")) { test_.AddModel("m", {Curve(2, {{4, 20}})}, 100, 100); }

  Replica On(int start, std::string_view profile, Replica::Kind kind) const {
    return {.instance = {start, ProfileOf(Gpu("A30"), profile)}, .kind = kind, .max_batch = 4};
  }

  static CollocatedJob Job(std::string name, double demand, double memory_gib) {
    CollocatedJob job{.name = std::move(name)};
    job.profile.demand = demand;
    job.profile.memory_gib = memory_gib;
    return job;
  }

  std::vector<LeftoverAdvice> Ask(const Deployment& deployment, std::vector<CollocatedJob> jobs) {
    return JobsInLeftovers(test_.problem, deployment, jobs, {});
  }

  std::string_view ProfileOfFree(const LeftoverAdvice& advice) const {
    return Gpu("A30").profile(advice.free->instance.profile).name;
  }

  TestProblem test_;
};

TEST_F(LeftoversTest, JobsTakeFreeInstancesInTurnAndNobodyTwice) {
  const Deployment deployment{{{On(0, "2g.12gb", Replica::Kind::kModel)}}};
  const auto advice = Ask(deployment, {Job("hungry", 0.9, 4), Job("second", 0.9, 4)});
  ASSERT_EQ(advice.size(), 2U);
  ASSERT_TRUE(advice[0].free.has_value());
  EXPECT_EQ(ProfileOfFree(advice[0]), "2g.12gb");
  EXPECT_EQ(advice[0].free->instance.start, 2);
  EXPECT_LT(advice[0].free->speed.low, advice[0].free->speed.speed + 1e-12);
  EXPECT_LT(advice[0].free->speed.speed, 1);
  EXPECT_FALSE(advice[1].free.has_value());
  EXPECT_EQ(advice[1].why_not, "no instance is free");
}

TEST_F(LeftoversTest, MemoryIsAskedFirst) {
  const Deployment deployment{{{On(0, "2g.12gb", Replica::Kind::kModel)}}};
  const auto advice = Ask(deployment, {Job("large", 0.1, 20), Job("small", 0.1, 3)});
  EXPECT_FALSE(advice[0].free.has_value());
  EXPECT_NE(advice[0].why_not.find("needs 20.5 GiB"), std::string::npos) << advice[0].why_not;
  EXPECT_TRUE(advice[1].free.has_value());
}

TEST_F(LeftoversTest, IdleInstancesAndUnusedGpusAreFree) {
  test_.problem.gpus = 2;
  const Deployment deployment{
      {{On(0, "2g.12gb", Replica::Kind::kModel), On(2, "2g.12gb", Replica::Kind::kIdle)}}};
  const auto advice = Ask(deployment, {Job("whole", 0.9, 4), Job("half", 0.9, 4)});
  EXPECT_EQ(ProfileOfFree(advice[0]), "4g.24gb");
  EXPECT_EQ(advice[0].free->gpu, 1U);
  EXPECT_DOUBLE_EQ(advice[0].free->speed.speed, 1);
  EXPECT_EQ(ProfileOfFree(advice[1]), "2g.12gb");
  EXPECT_EQ(advice[1].free->gpu, 0U);
}

TEST_F(LeftoversTest, BesideServicesItIsAsSlowAsTheyAreBusy) {
  const Deployment calm{{{On(0, "2g.12gb", Replica::Kind::kModel)}}};
  const auto beside = Ask(calm, {Job("train", 0.9, 4)})[0].beside;
  ASSERT_TRUE(beside.has_value());
  EXPECT_NEAR(beside->busy, 0.25, 1e-9);
  test_.problem.models.front().rate *= 2;
  const auto busier = Ask(calm, {Job("train", 0.9, 4)})[0].beside;
  EXPECT_NEAR(busier->busy, 0.5, 1e-9);
  EXPECT_LT(busier->speed.speed, beside->speed.speed);
  EXPECT_FALSE(Ask({{{}}}, {Job("train", 0.9, 4)})[0].beside.has_value());
  // A job of the plan is always busy, and a GPU has only so much memory.
  Deployment full = calm;
  full.gpus[0].push_back(On(2, "2g.12gb", Replica::Kind::kJob));
  EXPECT_NEAR(Ask(full, {Job("train", 0.9, 4)})[0].beside->busy, 1, 1e-9);
  // It has all memory of its instance: 12 of 24 GB, so that 12 are not there for another.
  EXPECT_TRUE(Ask(calm, {Job("train", 0.9, 12)})[0].beside.has_value());
  EXPECT_FALSE(Ask(full, {Job("train", 0.9, 12)})[0].beside.has_value());
  const auto huge = Ask(calm, {Job("huge", 0.9, 40)})[0];
  EXPECT_FALSE(huge.beside.has_value());
  EXPECT_NE(huge.why_not_beside.find("needs 41.0 GiB"), std::string::npos) << huge.why_not_beside;
}

// The calmer of two GPUs has little room: a model says that it takes 11 GiB of its 24.
TEST_F(LeftoversTest, BesideServicesThereMustBeMemoryForBoth) {
  workload::ProfileCurve large = Curve(2, {{4, 20}});
  large.points.front().memory_mib = 11.0 * 1024;
  test_.AddModel("large", {large}, 100, 10);
  Replica other = On(0, "2g.12gb", Replica::Kind::kModel);
  other.index = 1;
  const Deployment deployment{{{other}, {On(0, "2g.12gb", Replica::Kind::kModel)}}};
  EXPECT_EQ(Ask(deployment, {Job("small", 0.9, 8)})[0].beside->gpu, 0U);
  EXPECT_EQ(Ask(deployment, {Job("medium", 0.9, 13)})[0].beside->gpu, 1U);
  const Deployment alone{{{other}}};
  const auto neither = Ask(alone, {Job("medium", 0.9, 13)})[0];
  EXPECT_FALSE(neither.beside.has_value());
  EXPECT_NE(neither.why_not_beside.find("needs 25.0 GiB"), std::string::npos)
      << neither.why_not_beside;
}

TEST_F(LeftoversTest, AServiceBelongsIntoTheFleet) {
  CollocatedJob service = Job("service", 0.9, 4);
  service.job_class = workload::JobClass::kLatency;
  const auto advice = Ask({{{}}}, {service})[0];
  EXPECT_FALSE(advice.free.has_value());
  EXPECT_FALSE(advice.beside.has_value());
  EXPECT_NE(advice.why_not.find("belongs into the fleet"), std::string::npos);
}

}  // namespace
}  // namespace divvy::planner
