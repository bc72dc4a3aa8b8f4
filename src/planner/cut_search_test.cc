#include "planner/cut_search.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "planner/layout_columns.h"
#include "planner/paris.h"
#include "planner/staircase.h"
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

// Rate carried / rate demanded of each model.
std::vector<double> Carried(const Problem& problem, const Deployment& deployment) {
  std::vector<double> carried;
  for (std::size_t m = 0; m < problem.models.size(); ++m) {
    const Staircase stairs(problem.models[m], *problem.gpu);
    std::vector<int> counts(stairs.sizes().size());
    for (const auto& gpu : deployment.gpus) {
      for (const Replica& replica : gpu) {
        if (replica.kind != Replica::Kind::kModel || replica.index != m) continue;
        const auto size = std::ranges::find(stairs.sizes(), replica.instance.profile);
        ++counts[static_cast<std::size_t>(size - stairs.sizes().begin())];
      }
    }
    carried.push_back(stairs.Rate(counts) / problem.models[m].rate);
  }
  return carried;
}

TEST(StaircaseTest, OneSizeCarriesWhatItsTimeAllows) {
  TestProblem test(Gpu("A30"));
  ModelDemand& model = test.AddModel("m", {Curve(1, {{1, 10}})}, 100, 1);
  const Staircase stairs(model, Gpu("A30"));
  EXPECT_NEAR(stairs.Rate(std::vector{1}), 100, 1e-3);
  EXPECT_NEAR(stairs.Rate(std::vector{3}), 300, 1e-3);
  EXPECT_EQ(stairs.Rate(std::vector{0}), 0);
}

TEST(StaircaseTest, SmallRequestsClimbWhenTheSmallInstancesAreFull) {
  // Half of the requests have 1 item, half 4. A 1g takes 10 ms for one and 95 for four,
  // which leaves no room to wait; a 4g takes 5 and 8.
  TestProblem test(Gpu("A30"));
  ModelDemand& model =
      test.AddModel("m", {Curve(1, {{1, 10}, {4, 95}}), Curve(4, {{1, 5}, {4, 8}})}, 100, 1);
  model.batches = *workload::BatchDistribution::Empirical(std::vector<double>{1, 0, 0, 1});
  const Staircase stairs(model, Gpu("A30"));
  // One 4g alone: 6.5 ms a request. No 1g alone, since nothing takes the large ones.
  EXPECT_NEAR(stairs.Rate(std::vector{0, 1}), 1000 / 6.5, 1e-3);
  EXPECT_EQ(stairs.Rate(std::vector{4, 0}), 0);
  // With many 1g, the 4g has the large ones to itself.
  EXPECT_NEAR(stairs.Rate(std::vector{4, 1}), 2 * 1000 / 8.0, 1e-3);
  // With one, 100 small ones a second stay below and the rest climbs:
  // (r / 2 - 100) * 5 + r / 2 * 8 = 1000.
  EXPECT_NEAR(stairs.Rate(std::vector{1, 1}), 1500 / 6.5, 1e-3);
}

TEST(StaircaseTest, WhatNobodyAnswersInTimeIsNotCounted) {
  TestProblem test(Gpu("A30"));
  ModelDemand& model = test.AddModel("m", {Curve(1, {{1, 10}, {4, 200}})}, 100, 1);
  model.batches = *workload::BatchDistribution::Empirical(std::vector<double>{1, 0, 0, 1});
  EXPECT_NEAR(Staircase(model, Gpu("A30")).Rate(std::vector{1}), 200, 1e-3);
}

TEST(StaircaseTest, MoreInstancesNeverCarryLess) {
  Random random(5);
  for (int round = 0; round < 300; ++round) {
    TestProblem test(Gpu("A100-40GB"));
    AddRandomModel(test, random, 3);
    const Staircase stairs(test.problem.models[0], *test.problem.gpu);
    std::vector<int> counts(stairs.sizes().size());
    double before = 0;
    for (int step = 0; step < 12; ++step) {
      ++counts[random.Below(counts.size())];
      const double rate = stairs.Rate(counts);
      EXPECT_GE(rate, before * (1 - 1e-9)) << "round " << round;
      before = rate;
    }
  }
}

TEST(CutSearchTest, FindsTheBestOfAllCutsOfTwoGpus) {
  Random random(8);
  int best_found = 0;
  constexpr int kRounds = 40;
  for (int round = 0; round < kRounds; ++round) {
    TestProblem test(Gpu("A100-40GB"));
    AddRandomModel(test, random, 3);
    test.problem.gpus = 2;
    const Outcome nearest = PlanParisNearest(test.problem);
    const auto* start = std::get_if<Planned>(&nearest);
    if (start == nullptr) continue;
    const Deployment found = SearchCut(test.problem, start->deployment);

    const Staircase stairs(test.problem.models[0], *test.problem.gpu);
    double best = 0;
    const auto layouts = LayoutColumns(*test.problem.gpu, stairs.sizes());
    for (const LayoutColumn& a : layouts) {
      for (const LayoutColumn& b : layouts) {
        std::vector<int> counts;
        for (const gpu::ProfileIndex size : stairs.sizes()) {
          const auto at = static_cast<std::size_t>(size);
          counts.push_back(a.counts[at] + b.counts[at]);
        }
        best = std::max(best, stairs.Rate(counts));
      }
    }
    const double rate = Carried(test.problem, found)[0] * test.problem.models[0].rate;
    EXPECT_GE(rate, 0.9 * best) << "round " << round;
    best_found += rate >= best * (1 - 1e-6) ? 1 : 0;
  }
  EXPECT_GE(best_found, kRounds * 3 / 4);
}

TEST(CutSearchTest, NeverMakesTheWorstOffWorseAndKeepsJobs) {
  Random random(21);
  for (int round = 0; round < 40; ++round) {
    TestProblem test(Gpu(round % 2 == 0 ? "A30" : "A100-40GB"));
    for (int m = Between(random, 1, 3); m > 0; --m) AddRandomModel(test, random, 2);
    test.problem.gpus = Between(random, 2, 4);
    if (round % 3 == 0) {
      const auto job = round % 2 == 0 ? "2g.12gb" : "3g.20gb";
      test.problem.jobs = {{.name = "train", .instance = ProfileOf(*test.problem.gpu, job)}};
    }
    const Outcome nearest = PlanParisNearest(test.problem);
    const auto* start = std::get_if<Planned>(&nearest);
    if (start == nullptr) continue;
    const Deployment found = SearchCut(test.problem, start->deployment);
    ExpectLegal(test.problem, found);
    int jobs = 0;
    for (const auto& gpu : found.gpus) {
      jobs += static_cast<int>(std::ranges::count(gpu, Replica::Kind::kJob, &Replica::kind));
    }
    EXPECT_EQ(jobs, static_cast<int>(test.problem.jobs.size()));
    const auto before = Carried(test.problem, start->deployment);
    const auto after = Carried(test.problem, found);
    EXPECT_GE(std::ranges::min(after), std::ranges::min(before) * (1 - 1e-5)) << "round " << round;
  }
}

}  // namespace
}  // namespace divvy::planner
