#include "control/static_cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "control/test_estate.h"
#include "gpu/enumerate.h"
#include "planner/test_problems.h"

namespace divvy::control {
namespace {

using planner::Work;

std::vector<Cell> ServingOf(const std::vector<Cell>& cells) {
  std::vector<Cell> serving;
  std::ranges::copy_if(cells, std::back_inserter(serving),
                       [](const Cell& cell) { return cell.work.kind == Work::Kind::kServe; });
  return serving;
}

std::vector<Cell> RetrainingOf(const std::vector<Cell>& cells) {
  std::vector<Cell> retraining;
  std::ranges::copy_if(cells, std::back_inserter(retraining),
                       [](const Cell& cell) { return cell.work.kind == Work::Kind::kRetrain; });
  return retraining;
}

gpu::MigInstance At(const Estate& estate, int start, int slices) {
  for (const gpu::ProfileIndex index : estate.gpu->Select(gpu::ProfileSet::kBase)) {
    if (estate.gpu->profile(index).compute_slices == slices) return {start, index};
  }
  return {};
}

FixedCut HalfAndHalf(const Estate& estate) {
  return {{{0, At(estate, 0, 4), {Work::Kind::kServe, 0, 0}}}, {{0, At(estate, 4, 3)}}};
}

std::vector<std::vector<double>> MeanLoads(const Estate& estate, int slots) {
  std::vector<std::vector<double>> loads;
  for (const EstateTenant& tenant : estate.tenants) {
    loads.emplace_back(static_cast<std::size_t>(slots), tenant.mean_load);
  }
  return loads;
}

TEST(StaticCutTest, RetrainsOneAfterAnotherAndThenIsIdle) {
  const Estate estate = testing::MakeTestEstate(
      1, {{.training = 4, .reached = {0.8}}, {.training = 4, .reached = {0.8}}});
  FixedCut cut = HalfAndHalf(estate);
  cut.serving = {{0, At(estate, 0, 2), {Work::Kind::kServe, 0, 0}},
                 {0, At(estate, 2, 2), {Work::Kind::kServe, 1, 0}}};
  StaticCut policy(estate, cut, "static");
  const testing::Drive drive = testing::DriveLoop(estate, policy, MeanLoads(estate, 100));
  EXPECT_EQ(RetrainingOf(drive.cells[0]).size(), 1U);
  EXPECT_EQ(RetrainingOf(drive.cells[12]).size(), 1U);
  EXPECT_NE(RetrainingOf(drive.cells[0]), RetrainingOf(drive.cells[12]));
  EXPECT_TRUE(RetrainingOf(drive.cells[60]).empty());
  for (const auto& cells : drive.cells) EXPECT_EQ(ServingOf(cells), cut.serving);
}

TEST(StaticCutTest, BeginsNothingThatDoesNotEndInTheWindow) {
  const Estate estate = testing::MakeTestEstate(1, {{.training = 90, .reached = {0.8}}});
  StaticCut policy(estate, HalfAndHalf(estate), "static");
  const Decision decision = policy.Decide(testing::FirstView(estate));
  ASSERT_TRUE(decision.cells);
  EXPECT_TRUE(RetrainingOf(*decision.cells).empty());
}

TEST(StaticCutTest, ServesAlwaysTheSameAndDecidesOnlyWhatCanBe) {
  Random random(3);
  for (int i = 0; i < 12; ++i) {
    const Estate estate = testing::RandomEstate(1 + i % 2, 1 + i % 3, random);
    const auto loads = testing::RandomLoads(estate, 250, random);
    const FixedCut cut = PlanHindsightCut(estate, loads);
    StaticCut policy(estate, cut, "static");
    const testing::Drive drive = testing::DriveLoop(estate, policy, loads);
    for (const LoopEvent& event : drive.events) {
      EXPECT_TRUE(event.kind == LoopEvent::Kind::kChanged ||
                  event.kind == LoopEvent::Kind::kRetrained)
          << i << ": " << event.text;
    }
    for (const auto& cells : drive.cells) {
      ASSERT_THAT(ServingOf(cells), ::testing::UnorderedElementsAreArray(cut.serving)) << i;
    }
  }
}

TEST(CutCourseTest, CountsAnswersByTheWorthOfTheirModel) {
  // No drift, no restart. On 3 of 7 slices the retraining takes 10 slots, and 57 of 60
  // requests are answered.
  const double training = 10 * std::pow(3.0 / 7, 0.8);
  const Estate estate = testing::MakeTestEstate(
      1, {{.load = 60, .training = training, .reached = {0.8}, .drift_per_minute = 0}}, 0);
  const double served = 100 * 4.0 / 7;
  const CutCourse course = FollowCut(estate, HalfAndHalf(estate), MeanLoads(estate, 250));
  EXPECT_NEAR(course.goodput, served * (10 * 0.6 + 240 * 0.8), 1e-6);
  EXPECT_EQ(course.worth[0][9], 0.6);
  EXPECT_EQ(course.worth[0][10], 0.8);
  EXPECT_EQ(course.worth[0].size(), 250U);
}

TEST(HindsightCutTest, IsTheBestCutOfOneGpuForServing) {
  Random random(9);
  for (int i = 0; i < 10; ++i) {
    Estate estate = testing::RandomEstate(1, 2, random);
    for (EstateTenant& tenant : estate.tenants) tenant.learning.reset();
    const auto loads = testing::RandomLoads(estate, 60, random);
    const double found = FollowCut(estate, PlanHindsightCut(estate, loads), loads).goodput;
    double best = 0;
    // Every layout, and every way to give its instances to two tenants.
    for (const gpu::MigLayout& layout :
         gpu::EnumerateMaximalLayouts(*estate.gpu, estate.gpu->Select(gpu::ProfileSet::kBase))) {
      for (unsigned deal = 0; deal < 1U << layout.instances().size(); ++deal) {
        FixedCut cut;
        for (std::size_t j = 0; j < layout.instances().size(); ++j) {
          cut.serving.push_back(
              {0, layout.instances()[j], {Work::Kind::kServe, (deal >> j) & 1U, 0}});
        }
        best = std::max(best, FollowCut(estate, cut, loads).goodput);
      }
    }
    EXPECT_NEAR(found, best, 1e-6 * best) << i;
  }
}

TEST(HindsightCutTest, SetsAnInstanceAsideWhereRetrainingPays) {
  const Estate estate =
      testing::MakeTestEstate(1, {{.training = 4, .accuracy = 0.3, .reached = {0.9}}});
  EXPECT_FALSE(PlanHindsightCut(estate, MeanLoads(estate, 300)).retraining.empty());
  const Estate vain = testing::MakeTestEstate(
      1,
      {{.load = 200, .training = 4, .accuracy = 0.899, .reached = {0.9}, .drift_per_minute = 0}});
  EXPECT_TRUE(PlanHindsightCut(vain, MeanLoads(vain, 300)).retraining.empty());
}

// A fleet whose models were measured, and its estate.
struct Measured {
  planner::testing::TestProblem test;
  Estate estate;

  explicit Measured(std::uint64_t seed, int gpus)
      : test(planner::testing::Gpu("a100-80gb")), estate{test.problem.gpu, gpus, {}, 1, 1, 0, {}} {
    Random random(seed);
    workload::Fleet fleet;
    std::vector<const workload::TrainingSpeeds*> training;
    for (int m = 0; m < 3; ++m) {
      planner::testing::AddRandomModel(test, random, 2.0 * gpus);
      workload::FleetModel& model = fleet.models.emplace_back();
      if (m > 0) {
        model.learning.emplace().learning = {
            0.6, 0.02, 0.3, {{"short", 3000, 0.7}, {"long", 8000, 0.8}}, 0};
        for (const int slices : {1, 2, 3, 4, 7}) {
          speeds.speeds.push_back(
              {{workload::PartitionSize::Unit::kSlices, slices}, 60.0 * slices});
        }
      }
      training.push_back(m > 0 ? &speeds : nullptr);
    }
    fleet.control.window = std::chrono::seconds(100);
    estate = MakeEstate(fleet, test.problem, gpus, training);
  }

  workload::TrainingSpeeds speeds;
};

TEST(ParisCutTest, IsLegalAndNoBetterThanHindsight) {
  int set_aside = 0;
  int judged = 0;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const Measured measured(seed, 1 + static_cast<int>(seed % 2));
    const auto cut = PlanParisCut(measured.estate, measured.test.problem);
    if (!cut) continue;
    ++judged;
    StaticCut policy(measured.estate, *cut, "static");
    View view = testing::FirstView(measured.estate);
    const Decision decision = policy.Decide(view);
    ASSERT_TRUE(decision.cells);
    EXPECT_EQ(FindFault(measured.estate, view, *decision.cells), std::nullopt);
    const auto loads = MeanLoads(measured.estate, 300);
    const FixedCut best = PlanHindsightCut(measured.estate, loads);
    const double hindsight = FollowCut(measured.estate, best, loads).goodput;
    const double paris = FollowCut(measured.estate, *cut, loads).goodput;
    EXPECT_GE(hindsight, paris * (1 - 1e-9)) << seed;
    set_aside += cut->retraining.empty() ? 0 : 1;
  }
  EXPECT_GE(judged, 4);
  EXPECT_GT(set_aside, 0);
}

TEST(ParisCutTest, SaysWhyThereIsNone) {
  const Measured measured(1, 1);
  planner::Problem problem = measured.test.problem;
  for (int i = 0; i < 8; ++i) problem.models.push_back(problem.models.front());
  const auto cut = PlanParisCut(measured.estate, problem);
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(cut.error().message, ::testing::StartsWith("no static cut: "));
}

TEST(StaticCutTest, PlansTheSameTwice) {
  const Measured measured(2, 2);
  const auto loads = MeanLoads(measured.estate, 100);
  EXPECT_EQ(PlanHindsightCut(measured.estate, loads).serving,
            PlanHindsightCut(measured.estate, loads).serving);
  const auto one = PlanParisCut(measured.estate, measured.test.problem);
  const auto two = PlanParisCut(measured.estate, measured.test.problem);
  ASSERT_TRUE(one && two);
  EXPECT_EQ(one->serving, two->serving);
}

}  // namespace
}  // namespace divvy::control
