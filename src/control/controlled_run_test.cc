#include "control/controlled_run.h"
#include "control/arrivals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numbers>
#include <numeric>

#include "control/loop.h"
#include "control/migrator.h"
#include "control/policies.h"
#include "control/test_estate.h"

namespace divvy::control {
namespace {

using testing::MakeTestEstate;

constexpr int kSlots = 200;

// Three tenants whose loads swing against each other on one GPU; two of them learn.
Estate Swinging(double restart) {
  testing::TenantRecipe a{.capacity = 160, .load = 60, .training = 8};
  testing::TenantRecipe b{.capacity = 120, .load = 45, .training = 6};
  testing::TenantRecipe c{.capacity = 100, .load = 12};
  return MakeTestEstate(1, {a, b, c}, restart);
}

std::vector<std::vector<workload::Arrival>> SwingingArrivals(const Estate& estate,
                                                             std::uint64_t seed) {
  std::vector<std::vector<workload::Arrival>> arrivals;
  Random random(seed);
  for (std::size_t m = 0; m < estate.tenants.size(); ++m) {
    std::vector<workload::Arrival>& mine = arrivals.emplace_back();
    double at = 0;
    while (true) {
      const double angle = 2 * std::numbers::pi * (at / 120 + 0.5 * static_cast<double>(m));
      const double rate = estate.tenants[m].mean_load * (1 + 0.8 * std::sin(angle));
      at += random.Exponential() / std::max(rate, 0.5);
      if (at >= kSlots) break;
      mine.push_back({FromSeconds(at), 1});
    }
  }
  return arrivals;
}

std::optional<planner::GoodputAnswer> Plan(const planner::GoodputProblem& problem) {
  return planner::PlanGoodput(problem, {.rounds = 1, .bound_steps = 0});
}

std::unique_ptr<Outlook> Forecasts(const Estate& estate, double exaggerate = 1) {
  // As many times too high as wanted.
  class Exaggerated final : public Forecaster {
   public:
    explicit Exaggerated(double factor) : factor_(factor), truth_(*MakeForecaster("best", {})) {}
    void Observe(double arrivals) override { truth_->Observe(arrivals); }
    std::vector<double> Mean(int slots) const override { return Times(truth_->Mean(slots)); }
    std::vector<double> Quantile(int slots, double q) const override {
      return Times(truth_->Quantile(slots, q));
    }

   private:
    std::vector<double> Times(std::vector<double> values) const {
      for (double& value : values) value *= factor_;
      return values;
    }
    double factor_;
    std::unique_ptr<Forecaster> truth_;
  };
  std::vector<std::unique_ptr<Forecaster>> forecasters;
  for (std::size_t m = 0; m < estate.tenants.size(); ++m) {
    forecasters.push_back(std::make_unique<Exaggerated>(exaggerate));
  }
  return std::make_unique<ForecastOutlook>(estate, std::move(forecasters), 0.8);
}

std::unique_ptr<Policy> MakeMigrator(const Estate& estate, Solver solver = Plan,
                                     double exaggerate = 1,
                                     std::unique_ptr<Policy> start = nullptr) {
  return std::make_unique<Migrator>(estate, Forecasts(estate, exaggerate), std::move(solver),
                                    std::move(start), MigratorOptions{});
}

// What another policy decides first, for ever.
class StaysPut final : public Policy {
 public:
  explicit StaysPut(std::unique_ptr<Policy> first) : first_(std::move(first)) {}
  std::string_view name() const override { return "stays put"; }
  Sharing sharing() const override { return first_->sharing(); }
  Decision Decide(const View& view) override {
    if (view.slot > 0) return {};
    Decision decision = first_->Decide(view);
    return decision;
  }

 private:
  std::unique_ptr<Policy> first_;
};

ControlledRun Play(const Estate& estate, Policy& policy, std::uint64_t seed,
                   RunOptions options = {}) {
  options.seed = seed;
  options.slots = kSlots;
  return RunControlled(estate, policy, SwingingArrivals(estate, seed), options);
}

// Every request has one outcome, and the goodput is what the series say.
void ExpectSound(const Estate& estate, const ControlledRun& run, std::uint64_t seed) {
  const auto arrivals = SwingingArrivals(estate, seed);
  double goodput = 0;
  for (std::size_t m = 0; m < arrivals.size(); ++m) {
    const sim::ModelResult& model = run.sim.models[m];
    EXPECT_EQ(model.offered, arrivals[m].size());
    EXPECT_EQ(model.answered + model.shed(), model.offered);
    const TenantSeries& series = run.tenants[m];
    ASSERT_EQ(series.offered.size(), static_cast<std::size_t>(kSlots));
    EXPECT_EQ(std::accumulate(series.offered.begin(), series.offered.end(), 0.0),
              static_cast<double>(model.offered));
    EXPECT_EQ(std::accumulate(series.in_time.begin(), series.in_time.end(), 0.0),
              static_cast<double>(model.in_time));
    for (std::size_t t = 0; t < series.in_time.size(); ++t) {
      goodput += series.in_time[t] * estate.Worth(m, series.accuracy[t]);
    }
  }
  EXPECT_NEAR(goodput, run.goodput, 1e-6 * goodput);
}

TEST(ControlledRun, AccountsForEveryRequestAndSlot) {
  const Estate estate = Swinging(1.3);
  const auto policy = MakeMigrator(estate);
  const ControlledRun run = Play(estate, *policy, 1);
  ExpectSound(estate, run, 1);
  EXPECT_TRUE(run.log.empty()) << run.log.front();
  EXPECT_GT(run.reconfigurations, 0);
  EXPECT_GT(run.retrained, 0);
}

TEST(ControlledRun, OneSeedGivesOneRun) {
  const Estate estate = Swinging(1.3);
  const auto first = MakeMigrator(estate);
  const auto second = MakeMigrator(estate);
  const ControlledRun a = Play(estate, *first, 5);
  const ControlledRun b = Play(estate, *second, 5);
  EXPECT_EQ(a.goodput, b.goodput);
  EXPECT_EQ(a.changes.size(), b.changes.size());
}

TEST(ControlledRun, MovesWithTheLoadAndGainsByIt) {
  const Estate estate = Swinging(1.3);
  const auto policy = MakeMigrator(estate);
  StaysPut stays(MakeMigrator(estate));
  EXPECT_GT(Play(estate, *policy, 1).goodput, 1.1 * Play(estate, stays, 1).goodput);
}

TEST(ControlledRun, ReconfiguresLessAsItGetsDearerAndNeverLosesByIt) {
  int last = std::numeric_limits<int>::max();
  for (const double restart : {0.3, 6.0, 25.0, 113.0}) {
    const Estate estate = Swinging(restart);
    const auto policy = MakeMigrator(estate);
    StaysPut stays(MakeMigrator(estate));
    const ControlledRun run = Play(estate, *policy, 1);
    EXPECT_LE(run.starts, last) << restart;
    EXPECT_GE(run.goodput, Play(estate, stays, 1).goodput) << restart;
    last = run.starts;
  }
}

TEST(ControlledRun, ASolverThatIsLateLeavesWhatIsThere) {
  const Estate estate = Swinging(1.3);
  int asked = 0;
  const auto policy = MakeMigrator(estate, [&](const planner::GoodputProblem& problem) {
    return ++asked == 1 ? Plan(problem) : std::nullopt;
  });
  StaysPut stays(MakeMigrator(estate));
  const ControlledRun run = Play(estate, *policy, 1);
  ExpectSound(estate, run, 1);
  EXPECT_EQ(run.starts, 0);
  EXPECT_GE(run.goodput, Play(estate, stays, 1).goodput);
  ASSERT_FALSE(run.log.empty());
  EXPECT_EQ(run.log.front(),
            "slot 5: the layout stays as it is: the solver did not come to an answer in time");
}

TEST(ControlledRun, ASolverThatNeverAnswersLeavesTheStartToAnother) {
  const Estate estate = Swinging(1.3);
  const auto late = [](const planner::GoodputProblem&) { return std::nullopt; };
  const auto policy = MakeMigrator(estate, late, 1, MakeMigrator(estate));
  StaysPut stays(MakeMigrator(estate));
  EXPECT_EQ(Play(estate, *policy, 1).goodput, Play(estate, stays, 1).goodput);
}

TEST(ControlledRun, ANodeThatRefusesCostsNobodyAnything) {
  const Estate estate = Swinging(1.3);
  RunOptions options;
  options.refuse_changes = {1, 120};
  const auto policy = MakeMigrator(estate);
  StaysPut stays(MakeMigrator(estate));
  const ControlledRun run = Play(estate, *policy, 1, options);
  ExpectSound(estate, run, 1);
  ASSERT_FALSE(run.log.empty());
  EXPECT_NE(run.log.front().find("the change was refused"), std::string::npos) << run.log.front();
  EXPECT_TRUE(std::ranges::none_of(run.changes, [](const LayoutChange& change) {
    return change.slot > 0 && change.slot < 120 && change.why.find(" start") != std::string::npos;
  }));
  EXPECT_GE(run.goodput, Play(estate, stays, 1).goodput);
}

TEST(ControlledRun, AForecastTenTimesTooHighIsNotBelieved) {
  const Estate estate = Swinging(1.3);
  const auto policy = MakeMigrator(estate, Plan, 10);
  StaysPut stays(MakeMigrator(estate));
  const ControlledRun run = Play(estate, *policy, 1);
  ExpectSound(estate, run, 1);
  ASSERT_FALSE(run.log.empty());
  EXPECT_NE(run.log.front().find("is absurd"), std::string::npos) << run.log.front();
  EXPECT_GE(run.goodput, Play(estate, stays, 1).goodput);
}

// A loop that was taken up again has seen nothing of what came before.
TEST(Migrator, JudgesOnlyByWhatItHasSeen) {
  const Estate estate = Swinging(6);
  const auto policy = MakeMigrator(estate);
  testing::TestPlant plant(estate, 0, 1);
  Loop loop(estate, *policy, plant, {});
  View view = testing::FirstView(estate);
  view.slot = 1000;
  loop.Resume(view);
  const auto counts = CountBySlot(SwingingArrivals(estate, 1), estate.slot, kSlots);
  for (int slot = 1; slot < 120; ++slot) {
    std::vector<double> arrivals;
    for (const auto& mine : counts) arrivals.push_back(mine[static_cast<std::size_t>(slot)]);
    loop.Begin(1000 + slot, arrivals);
  }
  // With nothing there, it did not wait for evidence to serve at all.
  EXPECT_FALSE(loop.view().cells.empty());
  EXPECT_GT(loop.reconfigurations(), 0);
}

// Retrains the first tenant on one instance, and never serves.
class RetrainsOn final : public Policy {
 public:
  explicit RetrainsOn(gpu::MigInstance place) : place_(place) {}
  std::string_view name() const override { return "retrains"; }
  Sharing sharing() const override { return Sharing::kMig; }
  Decision Decide(const View& view) override {
    if (view.slot > 0) return {};
    return {.cells = {{{0, place_, {planner::Work::Kind::kRetrain, 0, 0}}}}, .why = "a test"};
  }

 private:
  gpu::MigInstance place_;
};

TEST(ControlledRun, LuckInRetrainingIsOfTheSeedNotOfThePolicy) {
  Estate estate = Swinging(1.3);
  estate.tenants[0].learning->uncertainty = 0.1;
  const auto accuracy = [&](std::string_view profile, std::uint64_t seed) {
    RetrainsOn policy({0, *estate.gpu->FindProfile(profile)});
    const ControlledRun run = Play(estate, policy, seed);
    EXPECT_EQ(run.retrained, 1);
    return run.tenants[0].accuracy[99];
  };
  EXPECT_EQ(accuracy("7g.80gb", 1), accuracy("3g.40gb", 1));
  EXPECT_NE(accuracy("7g.80gb", 1), accuracy("7g.80gb", 2));
}

}  // namespace
}  // namespace divvy::control
