#include "planner/goodput_milp.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "planner/test_goodput_brute_force.h"
#include "planner/test_goodput_problems.h"
#include "planner/test_problems.h"

namespace divvy::planner {
namespace {

using testing::GoodputByExhaustion;
using testing::Gpu;

// What the solver's tolerances leave.
double Rounding(double value) { return 1e-6 * std::max(1.0, std::abs(value)); }

void ExpectSound(const GoodputProblem& problem, const GoodputReference& reference,
                 const std::string& what) {
  ASSERT_TRUE(reference.schedule) << what;
  EXPECT_EQ(FindFault(problem, *reference.schedule), std::nullopt) << what;
  EXPECT_NEAR(reference.value, Value(problem, *reference.schedule), Rounding(reference.value))
      << what;
  EXPECT_GE(reference.bound, reference.value - Rounding(reference.value)) << what;
}

// How far below the best PlanGoodput may be, as a share of it. Loose on purpose: these
// windows are coarse, and one slot more or less of an instance is a large part of them.
constexpr double kMeanShortfall = 0.025;
constexpr double kWorstShortfall = 0.13;

// Windows that can be searched exhaustively: one A30, two tenants that each run on
// some of its profiles only, retrainings with few places to go.
GoodputProblem TinyProblem(std::uint64_t seed) {
  Random random(seed);
  const RandomWindow window{
      .gpus = 1, .tenants = 2, .slots = 3 + static_cast<int>(seed % 2), .retraining = seed % 3 > 0};
  GoodputProblem problem = RandomProblem(Gpu("A30"), window, seed);
  // With small slices there is too much to try.
  const std::size_t small = 0;
  for (Tenant& tenant : problem.tenants) {
    tenant.capacity[small] = 0;
    tenant.restart = 0.25 * static_cast<double>(random.Below(8));
    for (Retraining& way : tenant.retrainings) {
      for (int& takes : way.slots) takes = takes > 0 ? 1 + static_cast<int>(random.Below(3)) : 0;
      way.slots[random.Below(2) == 0 ? small : way.slots.size() - 1] = 0;
    }
  }
  for (Running& run : problem.present[0]) {
    if (run.work.kind == Work::Kind::kServe && random.Uniform() < 0.3) {
      run.left = 2.5 * random.Uniform();
    }
    if (run.work.kind == Work::Kind::kRetrain) run.left = std::min(run.left, 2.0);
  }
  if (seed % 2 == 0) problem.retrain_by = 1;
  std::erase_if(problem.present[0], [&](const Running& run) {
    return run.work.kind == Work::Kind::kServe &&
           static_cast<std::size_t>(run.place.profile) == small;
  });
  return problem;
}

TEST(GoodputMilpTest, FindsWhatExhaustionFinds) {
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    const GoodputProblem problem = TinyProblem(seed);
    const std::string what = fmt::format("seed {}", seed);
    const GoodputReference reference = SolveGoodputByMilp(problem);
    ExpectSound(problem, reference, what);
    EXPECT_TRUE(reference.optimal) << what;
    const double best = GoodputByExhaustion(problem).Best();
    EXPECT_NEAR(reference.value, best, Rounding(best)) << what;
    const GoodputAnswer answer = PlanGoodput(problem);
    EXPECT_LE(answer.value, best + Rounding(best)) << what;
    EXPECT_GE(answer.bound, best - Rounding(best)) << what;
  }
}

// A GPU with profiles whose number or engines slices do not limit: on the A100, 1g with
// twice the memory at four places beside two 3g, or media engines for only one.
TEST(GoodputMilpTest, KeepsWhatSlicesDoNotImply) {
  GoodputProblem problem{&Gpu("A100-40GB"), 1, {}, {{}}};
  Tenant& tenant = problem.tenants.emplace_back();
  tenant = {.name = "lark",
            .load = {100},
            .worth = {1},
            .capacity = std::vector<double>(problem.gpu->profiles.size()),
            .retrainings = {}};
  const auto media = static_cast<std::size_t>(*problem.gpu->FindProfile("1g.5gb+me"));
  const auto small = static_cast<std::size_t>(*problem.gpu->FindProfile("1g.5gb"));
  tenant.capacity[media] = 10;
  tenant.capacity[small] = 1;
  const GoodputReference reference = SolveGoodputByMilp(problem);
  ExpectSound(problem, reference, "media engines");
  EXPECT_NEAR(reference.value, 10 + 6, 1e-6);
}

TEST(GoodputMilpTest, ALimitLeavesABound) {
  const GoodputProblem problem =
      RandomProblem(Gpu("A30"), {.gpus = 1, .tenants = 2, .slots = 6, .retraining = true}, 0);
  const GoodputReference reference = SolveGoodputByMilp(problem, {.nodes = 0, .relative_gap = 0});
  EXPECT_FALSE(reference.optimal);
  if (reference.schedule) ExpectSound(problem, reference, "stopped");
  EXPECT_GE(reference.bound, PlanGoodput(problem).value);
}

struct Family {
  const char* gpu;
  RandomWindow window;
  std::uint64_t cases;
};

// The most important test of the planner: its bound is one, its answer is near the best.
TEST(PlanGoodputAgainstMilpTest, NearTheBestAndNeverBeyond) {
  const Family families[] = {
      {"A30", {.gpus = 1, .tenants = 2, .slots = 6, .retraining = true}, 8},
      {"A30", {.gpus = 2, .tenants = 2, .slots = 5, .retraining = true}, 4},
      {"A30", {.gpus = 1, .tenants = 3, .slots = 8, .retraining = false}, 4},
      {"A100-80GB", {.gpus = 1, .tenants = 2, .slots = 5, .retraining = true}, 4},
      {"A100-80GB", {.gpus = 1, .tenants = 3, .slots = 6, .retraining = false}, 4},
  };
  double sum = 0;
  double worst = 0;
  double cases = 0;
  for (const auto& [gpu, window, seeds] : families) {
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
      const std::string what = fmt::format("{} x {}, {} tenants, {} slots, seed {}", window.gpus,
                                           gpu, window.tenants, window.slots, seed);
      GoodputProblem problem = RandomProblem(Gpu(gpu), window, seed);
      if (seed % 4 == 3) problem.retrain_by = window.slots * 2 / 3;
      const GoodputReference reference =
          SolveGoodputByMilp(problem, {.time_limit_s = 60, .nodes = 500, .relative_gap = 0.002});
      ExpectSound(problem, reference, what);
      const GoodputAnswer answer = PlanGoodput(problem);
      const double rounding = Rounding(reference.value);
      EXPECT_LE(answer.value, reference.bound + rounding) << what;
      EXPECT_GE(answer.bound, reference.value - rounding) << what;
      const double shortfall = (reference.value - answer.value) / reference.value;
      EXPECT_LE(shortfall, kWorstShortfall) << what;
      sum += std::max(0.0, shortfall);
      worst = std::max(worst, shortfall);
      ++cases;
    }
  }
  fmt::print("below the best by {:.2f} % on average, by {:.2f} % at worst\n", 100 * sum / cases,
             100 * worst);
  EXPECT_LE(sum / cases, kMeanShortfall);
}

}  // namespace
}  // namespace divvy::planner
