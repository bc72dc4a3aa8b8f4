#include "planner/exact.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "gpu/brute_force.h"
#include "planner/test_problems.h"

namespace divvy::planner {
namespace {

using gpu::MigInstance;
using testing::AddRandomModel;
using testing::Between;
using testing::Curve;
using testing::ExpectLegal;
using testing::Gpu;
using testing::ProfileOf;
using testing::TestProblem;

double HeadroomOf(const Problem& problem, const Deployment& deployment) {
  double highest = 0;
  for (const ModelFigures& figures : Assess(problem, deployment)) {
    highest = std::max(highest, figures.load);
  }
  return 1 / highest;
}

// The largest factor by exhaustion: every set of instances that the GPUs can be cut
// into, every way to hand them out. Shares nothing with the planner but the rule:
// capacities come straight from the curves, legality from gpu/brute_force.h.
class BruteForce {
 public:
  explicit BruteForce(const Problem& problem) : problem_(problem) {
    const auto base = problem.gpu->Select(gpu::ProfileSet::kBase);
    const gpu::brute_force::LayoutGraph graph(*problem.gpu, base);
    for (const auto& layout : graph.layouts()) {
      std::vector<int> counts(problem.gpu->profiles.size());
      for (const MigInstance& i : layout) ++counts[static_cast<std::size_t>(i.profile)];
      cuts_.insert(counts);
    }
  }

  double LargestFactor(int gpus) const {
    std::set<std::vector<int>> fleets = {std::vector<int>(problem_.gpu->profiles.size())};
    for (int i = 0; i < gpus; ++i) {
      std::set<std::vector<int>> grown;
      for (const auto& fleet : fleets) {
        for (const auto& cut : cuts_) {
          std::vector<int> sum = fleet;
          for (std::size_t p = 0; p < sum.size(); ++p) sum[p] += cut[p];
          grown.insert(sum);
        }
      }
      fleets = std::move(grown);
    }
    double best = 0;
    for (std::vector<int> fleet : fleets) {
      for (const JobDemand& job : problem_.jobs) {
        fleet[static_cast<std::size_t>(job.instance)] -= job.count;
      }
      if (std::ranges::any_of(fleet, [](int count) { return count < 0; })) continue;
      if (IsWorthALook(fleet, fleets)) best = std::max(best, FactorOf(fleet));
    }
    return best;
  }

 private:
  // A fleet with one more instance of something does at least as well.
  bool IsWorthALook(const std::vector<int>& fleet, const std::set<std::vector<int>>& all) const {
    if (!problem_.jobs.empty()) return true;
    for (std::size_t p = 0; p < fleet.size(); ++p) {
      std::vector<int> more = fleet;
      ++more[p];
      if (all.contains(more)) return false;
    }
    return true;
  }

  // Items a second on `profile` of the best way that takes requests of `batch`.
  double Capacity(const ModelDemand& model, std::size_t profile, int batch) const {
    double best = 0;
    for (const auto& curve : model.profile->curves) {
      if (curve.size.amount != problem_.gpu->profiles[profile].compute_slices) continue;
      for (int b = batch; b <= curve.largest_batch(); ++b) {
        if (*curve.LatencyMs(b) >= problem_.rule.LatencyLimitMs(model.slo)) break;
        best = std::max(best, *curve.Throughput(b));
      }
    }
    return best;
  }

  // What is carried of each model's requests of at least each size, for every way
  // to hand out the instances. Equal ones are merged by a rounded key.
  using Carried = std::vector<double>;
  static std::vector<long long> Key(const Carried& carried) {
    std::vector<long long> key;
    for (const double c : carried) key.push_back(std::llround(c * 1e6));
    return key;
  }

  double FactorOf(const std::vector<int>& fleet) const {
    std::vector<double> needs;
    for (const ModelDemand& model : problem_.models) {
      for (int b = 1; b <= model.batches.largest(); ++b) {
        needs.push_back(ItemsInRequestsOf(model, b));
      }
    }
    std::map<std::vector<long long>, Carried> ways = {{{}, Carried(needs.size())}};
    for (std::size_t p = 0; p < fleet.size(); ++p) {
      const std::vector<Carried> gifts = Gifts(p, needs.size());
      for (int i = 0; i < fleet[p] && !gifts.empty(); ++i) {
        std::map<std::vector<long long>, Carried> next;
        for (const auto& [key, way] : ways) {
          for (const Carried& gift : gifts) {
            Carried sum = way;
            for (std::size_t n = 0; n < sum.size(); ++n) sum[n] += gift[n];
            next.emplace(Key(sum), sum);
          }
        }
        ways = std::move(next);
      }
    }
    double best = 0;
    for (const auto& [key, way] : ways) {
      double factor = std::numeric_limits<double>::infinity();
      for (std::size_t n = 0; n < needs.size(); ++n) factor = std::min(factor, way[n] / needs[n]);
      best = std::max(best, factor);
    }
    return best;
  }

  // Ways to use one instance: for a model, with batches at least as large as some size.
  std::vector<Carried> Gifts(std::size_t profile, std::size_t needs) const {
    std::vector<Carried> gifts;
    std::size_t first = 0;
    for (const ModelDemand& model : problem_.models) {
      const auto sizes = static_cast<std::size_t>(model.batches.largest());
      for (std::size_t b = 0; b < sizes; ++b) {
        const double capacity = Capacity(model, profile, static_cast<int>(b + 1));
        if (capacity <= 0) break;
        Carried gift(needs);
        for (std::size_t n = 0; n <= b; ++n) gift[first + n] = capacity;
        // Taking larger requests at the same pace is no worse.
        if (b > 0 && gifts.back()[first] == capacity) gifts.pop_back();
        gifts.push_back(std::move(gift));
      }
      first += sizes;
    }
    return gifts;
  }

  const Problem& problem_;
  std::set<std::vector<int>> cuts_;
};

void AddSmallModels(TestProblem& test, Random& random, int models, double instances) {
  for (int m = 0; m < models; ++m) {
    AddRandomModel(test, random, instances);
    ModelDemand& model = test.problem.models.back();
    // Few sizes, or exhaustion would take too long.
    model.batches = *workload::BatchDistribution::Empirical(
        std::vector<double>{1, random.Below(2) == 0 ? random.Uniform() : 0});
  }
}

// Fewest GPUs and largest factor, against exhaustion on up to `most` GPUs.
void ExpectAsGoodAsBruteForce(const Problem& problem, int most, const std::string& what) {
  const BruteForce brute(problem);
  const Outcome outcome = PlanExact(problem);
  for (int gpus = 1; gpus <= most; ++gpus) {
    const double factor = brute.LargestFactor(gpus);
    Problem fixed = problem;
    fixed.gpus = gpus;
    EXPECT_NEAR(LargestLoadFactor(fixed), factor, 3e-5 * factor) << what << ", " << gpus << " GPUs";
    if (factor < 1) continue;
    ASSERT_TRUE(std::holds_alternative<Planned>(outcome)) << what;
    const Deployment& deployment = std::get<Planned>(outcome).deployment;
    EXPECT_EQ(deployment.gpus.size(), static_cast<std::size_t>(gpus)) << what;
    EXPECT_NEAR(HeadroomOf(problem, deployment), factor, 3e-5 * factor) << what;
    EXPECT_EQ(std::get<Planned>(outcome).proof, "fewest GPUs: proven; headroom: proven") << what;
    return;
  }
  // Nothing that exhaustion looked at is enough, so neither is it for the planner.
  if (const auto* planned = std::get_if<Planned>(&outcome)) {
    EXPECT_GT(planned->deployment.gpus.size(), static_cast<std::size_t>(most)) << what;
  }
}

void BruteForceOnFourSlices(std::uint64_t seed, int cases) {
  Random random(seed);
  for (int i = 0; i < cases; ++i) {
    TestProblem test(Gpu("A30"));
    AddSmallModels(test, random, Between(random, 1, 2), 2.5);
    if (i % 5 == 0) test.problem.jobs = {{"job", ProfileOf(Gpu("A30"), "2g.12gb"), 1}};
    ExpectAsGoodAsBruteForce(test.problem, 2, "case " + std::to_string(i));
  }
}

void BruteForceWithThreeModels(std::uint64_t seed, int cases) {
  Random random(seed);
  for (int i = 0; i < cases; ++i) {
    TestProblem test(Gpu("A30"));
    AddSmallModels(test, random, 3, 1);
    ExpectAsGoodAsBruteForce(test.problem, 1, "case " + std::to_string(i));
  }
}

void BruteForceOnSevenSlices(std::uint64_t seed, int cases) {
  Random random(seed);
  for (int i = 0; i < cases; ++i) {
    TestProblem test(Gpu("A100-80GB"));
    AddSmallModels(test, random, Between(random, 1, 2), 3);
    ExpectAsGoodAsBruteForce(test.problem, 1, "case " + std::to_string(i));
  }
}

TEST(ExactTest, BruteForceFindsNothingBetterOnFourSlices) { BruteForceOnFourSlices(1, 5); }
TEST(ExactTest, BruteForceFindsNothingBetterWithThreeModels) { BruteForceWithThreeModels(2, 6); }
TEST(ExactTest, BruteForceFindsNothingBetterOnSevenSlices) { BruteForceOnSevenSlices(3, 2); }

// Whatever it answers can be cut and carries; what it says of infeasible ones is true.
void CheckRandomProblem(std::uint64_t seed) {
  Random random(seed);
  TestProblem test(Gpu(std::vector{"A30", "A100-80GB", "H100-80GB", "H200"}[seed % 4]));
  const gpu::GpuModel& gpu = *test.problem.gpu;
  for (int m = Between(random, 0, 5); m > 0; --m) {
    AddRandomModel(test, random, std::pow(10, random.Uniform()));
  }
  for (int j = Between(random, -2, 2); j > 0; --j) {
    const auto all = gpu.Select(gpu::ProfileSet::kDouble);
    test.problem.jobs.push_back(
        {"job" + std::to_string(j), all[random.Below(all.size())], Between(random, 1, 3)});
  }
  if (random.Below(3) == 0) test.problem.gpus = Between(random, 1, 6);
  const Outcome outcome = PlanExact(test.problem);
  if (const auto* planned = std::get_if<Planned>(&outcome)) {
    ExpectLegal(test.problem, planned->deployment);
    EXPECT_TRUE(Carries(test.problem, planned->deployment)) << "seed " << seed;
    if (test.problem.gpus) {
      EXPECT_EQ(planned->deployment.gpus.size(), static_cast<std::size_t>(*test.problem.gpus));
    }
    return;
  }
  const Infeasible& infeasible = std::get<Infeasible>(outcome);
  EXPECT_FALSE(infeasible.why.empty());
  Problem helped = test.problem;
  if (infeasible.gpus_needed) {
    ASSERT_TRUE(helped.gpus);
    EXPECT_GT(*infeasible.gpus_needed, *helped.gpus) << "seed " << seed;
    helped.gpus = infeasible.gpus_needed;
    EXPECT_TRUE(std::holds_alternative<Planned>(PlanExact(helped))) << "seed " << seed;
  } else if (infeasible.slo_needed) {
    helped.models = {test.problem.models[*infeasible.model]};
    helped.jobs.clear();
    helped.gpus.reset();
    helped.models[0].slo = *infeasible.slo_needed;
    EXPECT_TRUE(std::holds_alternative<Planned>(PlanExact(helped))) << "seed " << seed;
    helped.models[0].slo -= std::chrono::microseconds(2);
    EXPECT_TRUE(std::holds_alternative<Infeasible>(PlanExact(helped))) << "seed " << seed;
  }
}

TEST(ExactTest, RandomProblemsGetPlansThatHold) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) CheckRandomProblem(seed);
}

// The same in earnest, in a Release build: minutes, so not on every commit.
//   planner_test --gtest_also_run_disabled_tests --gtest_filter=*DISABLED_Many*
TEST(ExactTest, DISABLED_ManyRandomProblemsGetPlansThatHold) {
  for (std::uint64_t seed = 1000; seed < 5000; ++seed) CheckRandomProblem(seed);
}
TEST(ExactTest, DISABLED_ManyBruteForces) {
  BruteForceOnFourSlices(11, 300);
  BruteForceWithThreeModels(12, 300);
  BruteForceOnSevenSlices(13, 100);
}

TEST(ExactTest, OneInputGivesOnePlan) {
  const auto plan = [] {
    Random random(99);
    TestProblem test(Gpu("A100-80GB"));
    for (int m = 0; m < 4; ++m) {
      AddRandomModel(test, random, 5);
      test.problem.models.back().slo = std::chrono::seconds(1);
      test.problem.models.back().batches = workload::BatchDistribution::Constant(2);
    }
    return ToPlan(test.problem, std::get<Planned>(PlanExact(test.problem)).deployment);
  };
  EXPECT_EQ(plan(), plan());
}

class ExactExampleTest : public ::testing::Test {
 protected:
  // On each slice 100 items a second, one at a time.
  ExactExampleTest() : test_(Gpu("A30")) {
    test_.AddModel("m", {Curve(1, {{1, 10}}), Curve(2, {{1, 5}}), Curve(4, {{1, 2.5}})}, 100, 400);
  }

  TestProblem test_;
};

TEST_F(ExactExampleTest, ARateThatExactlyFitsNeedsNoMoreGpus) {
  for (const double rate : {400.0, 800.0, 400.0 / 3}) {
    test_.problem.models[0].rate = rate;
    const Outcome outcome = PlanExact(test_.problem);
    const Deployment& deployment = std::get<Planned>(outcome).deployment;
    EXPECT_EQ(deployment.gpus.size(), rate > 400 ? 2U : 1U) << rate;
    EXPECT_TRUE(Carries(test_.problem, deployment));
  }
}

TEST_F(ExactExampleTest, LeftoversAreGivenToWhoeverGains) {
  test_.problem.models[0].rate = 1;
  test_.problem.jobs = {{"job", ProfileOf(Gpu("A30"), "2g.12gb"), 1}};
  const Outcome outcome = PlanExact(test_.problem);
  EXPECT_NEAR(Assess(test_.problem, std::get<Planned>(outcome).deployment)[0].capacity, 200, 1e-6);
}

TEST(ExactTest, LargeRequestsNeedWhatTakesThem) {
  TestProblem test(Gpu("A30"));
  // Single items are fastest on 1g, pairs run in time on 2g only.
  ModelDemand& model =
      test.AddModel("m", {Curve(1, {{1, 5}, {2, 50}}), Curve(2, {{1, 15}, {2, 20}})}, 100, 100);
  model.batches = *workload::BatchDistribution::Empirical(std::vector<double>{1, 1});
  // 50 items/s alone, 100 items/s in pairs, which one 2g carries to the last.
  const Outcome outcome = PlanExact(test.problem);
  const Deployment& deployment = std::get<Planned>(outcome).deployment;
  EXPECT_EQ(deployment.gpus.size(), 1U);
  EXPECT_TRUE(Carries(test.problem, deployment));
  EXPECT_NEAR(HeadroomOf(test.problem, deployment), 400.0 / 300, 1e-4);
}

TEST(ExactTest, ALeftoverThatHelpsNobodyStaysIdle) {
  const gpu::GpuModel& gpu = Gpu("A100-80GB");
  TestProblem test(gpu);
  // Pairs need the 3g; beside it and the job there is room for two 1g. One of them
  // takes the few single items off the 3g, the other would change nothing.
  ModelDemand& model = test.AddModel("m", {Curve(1, {{1, 5}}), Curve(3, {{2, 20}})}, 100, 50);
  model.batches = *workload::BatchDistribution::Empirical(std::vector<double>{0.01, 1});
  test.problem.jobs = {{"job", ProfileOf(gpu, "2g.20gb"), 1}};
  const Outcome outcome = PlanExact(test.problem);
  const Deployment& deployment = std::get<Planned>(outcome).deployment;
  ASSERT_EQ(deployment.gpus.size(), 1U);
  EXPECT_EQ(std::ranges::count(deployment.gpus[0], Replica::Kind::kIdle, &Replica::kind), 1);
  EXPECT_EQ(Assess(test.problem, deployment)[0].instances, 2);
}

TEST_F(ExactExampleTest, WithoutLoadNothingIsNeeded) {
  test_.problem.models[0].rate = 0;
  const Outcome outcome = PlanExact(test_.problem);
  EXPECT_TRUE(std::get<Planned>(outcome).deployment.gpus.empty());
  test_.problem.gpus = 2;
  EXPECT_EQ(std::get<Planned>(PlanExact(test_.problem)).deployment.gpus.size(), 2U);
}

TEST_F(ExactExampleTest, TooFewGpusSaysHowManyWouldDo) {
  test_.problem.models[0].rate = 1000;
  test_.problem.gpus = 2;
  const auto infeasible = std::get<Infeasible>(PlanExact(test_.problem));
  EXPECT_EQ(infeasible.gpus_needed, 3);
  EXPECT_EQ(infeasible.why,
            "2 GPUs are too few: at most 0.8 of every rate can be had there; 3 would do");
  EXPECT_NEAR(LargestLoadFactor(test_.problem), 0.8, 1e-5);
}

TEST_F(ExactExampleTest, JobsThatDoNotFitSayHowManyGpusWouldDo) {
  test_.problem.jobs = {{"job", ProfileOf(Gpu("A30"), "4g.24gb"), 3}};
  test_.problem.gpus = 3;
  const auto infeasible = std::get<Infeasible>(PlanExact(test_.problem));
  EXPECT_EQ(infeasible.gpus_needed, 4);
  EXPECT_EQ(LargestLoadFactor(test_.problem), 0);
}

TEST_F(ExactExampleTest, AnSloThatCannotBeKeptSaysWhichWouldDo) {
  test_.problem.models[0].slo = FromMilliseconds(5);
  const auto infeasible = std::get<Infeasible>(PlanExact(test_.problem));
  EXPECT_EQ(infeasible.model, 0U);
  EXPECT_EQ(infeasible.slo_needed, FromMilliseconds(5.556));
  EXPECT_EQ(infeasible.why,
            "m: a request of 1 item takes 2.5 ms at best (on 4g.24gb), and only 2.25 ms are left "
            "of its SLO of 5 ms; an SLO of 5.556 ms would do");
  test_.problem.gpus = 2;
  EXPECT_EQ(LargestLoadFactor(test_.problem), 0);
}

TEST_F(ExactExampleTest, ARequestLargerThanAnyBatchMeasuredHasNoSlo) {
  test_.problem.models[0].batches = workload::BatchDistribution::Constant(2);
  const auto infeasible = std::get<Infeasible>(PlanExact(test_.problem));
  EXPECT_FALSE(infeasible.slo_needed);
  EXPECT_NE(infeasible.why.find("requests have up to 2 items"), std::string::npos);
}

TEST_F(ExactExampleTest, EveryReplicaSaysWhyItIsThere) {
  const Outcome outcome = PlanExact(test_.problem);
  const Replica& replica = std::get<Planned>(outcome).deployment.gpus[0][0];
  const std::string name = Gpu("A30").profile(replica.instance.profile).name;
  EXPECT_EQ(replica.why.find(name + ": 1 process of m, batch 1: "), 0U) << replica.why;
  EXPECT_NE(replica.why.find("(limit 45 ms)"), std::string::npos) << replica.why;
}

}  // namespace
}  // namespace divvy::planner
