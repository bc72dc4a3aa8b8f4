#include "sim/plan_change.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "base/random.h"
#include "plan/plan_file.h"

namespace divvy::sim {
namespace {

using serving::ReplicaId;

TimePoint At(double seconds) { return TimePoint(FromSeconds(seconds)); }

// Two models, measured on 1g and 3g with one process and two.
class PlanChangeTest : public ::testing::Test {
 protected:
  PlanChangeTest() {
    for (const char* name : {"a", "b"}) {
      workload::ModelProfile& model = profiles_.emplace_back();
      model.model = name;
      for (const int slices : {1, 3}) {
        for (const int processes : {1, 2}) {
          const double ms = 12.0 * processes / slices;
          model.curves.push_back(
              {.size = {.amount = slices},
               .processes = processes,
               .points = {{.batch = 1, .latency_ms = ms}, {.batch = 8, .latency_ms = 3 * ms}}});
        }
      }
      served_.push_back({name, &model});
    }
  }

  // Plans as a file writes them, the first from the start, others from a time on.
  // Each is the `instances` of GPU 0.
  StagedSetup StageAll(const std::vector<std::pair<double, std::string>>& instances,
                       const ChangeCost& cost = {}) {
    std::vector<PlanStage> stages;
    for (const auto& [from, text] : instances) {
      auto plan = plan::ParsePlan(
          "version: 1\ngpus:\n  - {gpu: 0, kind: A100-80GB, instances: [" + text + "]}\n", "plan");
      EXPECT_TRUE(plan) << (plan ? "" : plan.error().message);
      stages.push_back(StageOf(std::move(*plan), from));
    }
    return Stage(stages, cost);
  }

  PlanStage StageOf(plan::Plan plan, double from) {
    plans_.push_back(std::move(plan));
    auto planned = serving::SetupFromPlan(plans_.back(), served_);
    EXPECT_TRUE(planned) << (planned ? "" : planned.error().message);
    planned_.push_back(std::move(*planned));
    return {&plans_.back(), &planned_.back(), At(from)};
  }

  std::deque<workload::ModelProfile> profiles_;
  std::vector<serving::ServedModel> served_;
  std::deque<plan::Plan> plans_;
  std::deque<serving::PlannedSetup> planned_;
};

constexpr const char* kOnA0 = "{profile: 1g.10gb, start: 0, runs: [{model: a}]}";
constexpr const char* kOnA1 = "{profile: 1g.10gb, start: 1, runs: [{model: a}]}";
constexpr const char* kOnB0 = "{profile: 1g.10gb, start: 0, runs: [{model: b}]}";
constexpr const char* kOnA0Twice = "{profile: 1g.10gb, start: 0, runs: [{model: a, processes: 2}]}";
constexpr const char* kOnA0Small = "{profile: 1g.10gb, start: 0, runs: [{model: a, batch: 4}]}";
constexpr const char* kOnA4Large = "{profile: 3g.40gb, start: 4, runs: [{model: a}]}";
constexpr const char* kOnAAnywhere = "{profile: 1g.10gb, runs: [{model: a}]}";

TEST_F(PlanChangeTest, OnePlanIsItsOwnSetup) {
  const StagedSetup staged = StageAll({{0, std::string(kOnA0) + "," + kOnA4Large}});
  ASSERT_EQ(staged.setup.replicas.size(), 2U);
  EXPECT_TRUE(staged.setup.replicas[0].up && staged.setup.replicas[1].up);
  EXPECT_TRUE(staged.origins[0].in_last && staged.origins[1].in_last);
  EXPECT_TRUE(staged.switches.empty());
  EXPECT_EQ(staged.setup.models, (std::vector<std::string>{"a", "b"}));
}

TEST_F(PlanChangeTest, WhatStaysGoesOnAndWhatIsNewWaitsForTheCost) {
  const ChangeCost cost{FromSeconds(1), FromSeconds(2), FromSeconds(4)};
  const StagedSetup staged = StageAll(
      {{0, std::string(kOnA0) + "," + kOnA1}, {10, std::string(kOnA0) + "," + kOnA4Large}}, cost);
  ASSERT_EQ(staged.setup.replicas.size(), 3U);
  ASSERT_EQ(staged.switches.size(), 2U) << "replica 0 is left alone";
  EXPECT_EQ(staged.switches[0].at, At(10));
  EXPECT_EQ(staged.switches[0].replica, static_cast<ReplicaId>(1));
  EXPECT_FALSE(staged.switches[0].up);
  EXPECT_EQ(staged.switches[1].at, At(17));
  EXPECT_EQ(staged.switches[1].replica, static_cast<ReplicaId>(2));
  EXPECT_TRUE(staged.switches[1].up);
  EXPECT_FALSE(staged.setup.replicas[2].up) << "until then it takes nothing";
  EXPECT_EQ(staged.origins[2].stage, 1U);
  EXPECT_EQ(staged.origins[2].replica, 1U);
  EXPECT_FALSE(staged.origins[1].in_last);
}

TEST_F(PlanChangeTest, AnotherModelProcessCountOrBatchIsAnotherReplica) {
  for (const char* other : {kOnB0, kOnA0Twice, kOnA0Small, kOnA1}) {
    const StagedSetup staged = StageAll({{0, kOnA0}, {1, other}});
    EXPECT_EQ(staged.setup.replicas.size(), 2U) << other;
    EXPECT_EQ(staged.switches.size(), 2U) << other;
  }
  EXPECT_TRUE(StageAll({{0, kOnA0}, {1, kOnA0}}).switches.empty());
}

TEST_F(PlanChangeTest, AnInstanceWithoutStartStaysWhereItIs) {
  const std::string both = std::string(kOnA0) + "," + kOnA1;
  // The one with a start takes its own place, though it comes second.
  const StagedSetup staged = StageAll({{0, both}, {1, std::string(kOnAAnywhere) + "," + kOnA0}});
  EXPECT_TRUE(staged.switches.empty());
  EXPECT_EQ(StageAll({{0, kOnA0}, {1, std::string(kOnAAnywhere) + "," + kOnA0}}).switches.size(),
            1U)
      << "one instance cannot be two";
}

TEST_F(PlanChangeTest, EqualTablesAreOneSoThatReplicasOfTwoPlansAreAlike) {
  const StagedSetup staged = StageAll({{0, kOnA0}, {1, kOnA1}});
  EXPECT_EQ(staged.setup.tables.size(), 1U);
  EXPECT_EQ(staged.spread.size(), 1U);
}

TEST_F(PlanChangeTest, WhatIsReplacedBeforeItCameNeverComes) {
  const ChangeCost cost{FromSeconds(1), FromSeconds(1), FromSeconds(1)};
  for (const double second : {11.0, 13.0}) {  // While it starts, and as it would be ready.
    const StagedSetup staged = StageAll({{0, kOnA0}, {10, kOnA1}, {second, kOnB0}}, cost);
    ASSERT_EQ(staged.switches.size(), 2U) << second;
    EXPECT_EQ(staged.switches[0].replica, static_cast<ReplicaId>(0));
    EXPECT_EQ(staged.switches[1].replica, static_cast<ReplicaId>(2));
    EXPECT_EQ(staged.switches[1].at, At(second + 3));
  }
}

TEST_F(PlanChangeTest, WhatIsStillStartingIsNotStartedAgain) {
  const ChangeCost cost{FromSeconds(1), FromSeconds(1), FromSeconds(1)};
  const StagedSetup staged =
      StageAll({{0, kOnA0}, {10, kOnA1}, {11, std::string(kOnA1) + "," + kOnA4Large}}, cost);
  ASSERT_EQ(staged.switches.size(), 3U);
  EXPECT_EQ(staged.switches[1].at, At(13)) << "not 14";
}

// What a place of GPU 0 or 1 holds.
using Slot = std::tuple<int, int>;             // GPU, start.
using Content = std::tuple<std::string, int>;  // Model, batch.
using Cut = std::map<Slot, Content>;

Cut DrawCut(Random& random) {
  Cut cut;
  for (int gpu = 0; gpu < 2; ++gpu) {
    for (int start = 0; start < 7; ++start) {
      if (random.Below(3) == 0) continue;
      cut[{gpu, start}] = {random.Below(2) == 0 ? "a" : "b", random.Below(2) == 0 ? 4 : 8};
    }
  }
  return cut;
}

plan::Plan ToPlan(const Cut& cut) {
  plan::Plan plan;
  for (int gpu = 0; gpu < 2; ++gpu) {
    plan::PlannedGpu planned{.gpu = gpu, .kind = "A100-80GB"};
    for (const auto& [slot, content] : cut) {
      if (std::get<0>(slot) != gpu) continue;
      planned.instances.push_back({.profile = "1g.10gb",
                                   .start = std::get<1>(slot),
                                   .runs = {{.kind = plan::Assignment::Kind::kModel,
                                             .name = std::get<0>(content),
                                             .batch = std::get<1>(content)}}});
    }
    plan.gpus.push_back(std::move(planned));
  }
  return plan;
}

// Second opinion, slot by slot: what is up at `when`. A slot serves with what the
// stages agree on since it was last changed, if that is at least `cost` ago.
Cut UpAt(const std::vector<Cut>& cuts, const std::vector<double>& from, double cost, double when) {
  Cut up;
  for (int gpu = 0; gpu < 2; ++gpu) {
    for (int start = 0; start < 7; ++start) {
      const auto content = [&](std::size_t stage) -> std::optional<Content> {
        const auto found = cuts[stage].find({gpu, start});
        if (found == cuts[stage].end()) return std::nullopt;
        return found->second;
      };
      std::size_t now = 0;
      while (now + 1 < cuts.size() && from[now + 1] <= when) ++now;
      std::size_t since = now;
      while (since > 0 && content(since - 1) == content(now)) --since;
      const bool ready = since == 0 || from[since] + cost <= when;
      if (content(now) && ready) up[{gpu, start}] = *content(now);
    }
  }
  return up;
}

TEST_F(PlanChangeTest, AtEveryTimeThoseAreUpThatShouldBe) {
  const ChangeCost cost{FromSeconds(0.5), FromSeconds(0.5), FromSeconds(2)};
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    std::vector<Cut> cuts;
    std::vector<double> from;
    std::vector<PlanStage> stages;
    double time = 0;
    for (std::uint64_t i = 0, count = 1 + random.Below(5); i < count; ++i) {
      cuts.push_back(DrawCut(random));
      from.push_back(time);
      stages.push_back(StageOf(ToPlan(cuts.back()), time));
      time += static_cast<double>(1 + random.Below(5));
    }
    const StagedSetup staged = Stage(stages, cost);
    EXPECT_TRUE(std::ranges::is_sorted(staged.switches, {}, &Switch::at));

    std::vector<bool> up;
    for (const serving::ReplicaSpec& spec : staged.setup.replicas) up.push_back(spec.up);
    std::size_t taken = 0;
    for (double when = 0.25; when < time + 5; when += 0.5) {
      for (; taken < staged.switches.size() && staged.switches[taken].at <= At(when); ++taken) {
        const Switch& change = staged.switches[taken];
        const auto replica = static_cast<std::size_t>(change.replica);
        EXPECT_NE(up[replica], change.up) << "seed " << seed << ": a switch that changes nothing";
        up[replica] = change.up;
      }
      Cut found;
      for (std::size_t i = 0; i < up.size(); ++i) {
        if (!up[i]) continue;
        const StagedSetup::Origin& origin = staged.origins[i];
        const serving::PlannedSetup& planned = *stages[origin.stage].planned;
        const serving::ReplicaPlace& place = planned.places[origin.replica];
        const plan::Plan& plan = *stages[origin.stage].plan;
        const plan::PlannedInstance& instance = plan.gpus[place.gpu].instances[place.instance];
        const serving::ReplicaSpec& spec = staged.setup.replicas[i];
        const Content content{staged.setup.models[static_cast<std::size_t>(spec.model)],
                              staged.setup.tables[spec.table].max_batch()};
        EXPECT_TRUE(
            found.try_emplace({static_cast<int>(place.gpu), *instance.start}, content).second)
            << "seed " << seed << ": two replicas in one place";
      }
      EXPECT_EQ(found, UpAt(cuts, from, 3, when)) << "seed " << seed << " at " << when;
    }
    EXPECT_EQ(taken, staged.switches.size());
  }
}

TEST_F(PlanChangeTest, EveryRequestOfARunThroughChangesHasOneFate) {
  const StagedSetup staged = StageAll({{0, std::string(kOnA0) + "," + kOnA1},
                                       {2, kOnA4Large},
                                       {4, std::string(kOnA0) + "," + kOnA4Large}},
                                      {FromSeconds(0.1), FromSeconds(0.1), FromSeconds(0.8)});
  const Source source{.slo = FromSeconds(0.1), .arrivals = workload::Load{.rate = 50}};
  const auto route = serving::ParseRoute("divvy").value();
  const SimResult result = Simulate(staged.setup, route, std::span(&source, 1), staged.switches,
                                    {.duration = FromSeconds(8)});
  const ModelResult& model = result.models[0];
  EXPECT_EQ(model.offered, model.answered + model.shed());
  // Nothing is up from 2 s to 3 s.
  EXPECT_GT(model.refused[static_cast<std::size_t>(serving::Refusal::kNoReplica)], 25U);
  for (const ReplicaResult& replica : result.replicas) EXPECT_GT(replica.requests, 0U);
}

}  // namespace
}  // namespace divvy::sim
