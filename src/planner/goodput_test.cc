#include "planner/goodput.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "planner/test_goodput_problems.h"
#include "planner/test_problems.h"

namespace divvy::planner {
namespace {

using gpu::MigInstance;
using testing::Gpu;
using ::testing::HasSubstr;
using testing::ProfileOf;

const gpu::GpuModel& A30() { return Gpu("A30"); }

MigInstance Small(int start) { return {start, ProfileOf(A30(), "1g.6gb")}; }
MigInstance Half(int start) { return {start, ProfileOf(A30(), "2g.12gb")}; }
MigInstance Whole() { return {0, ProfileOf(A30(), "4g.24gb")}; }

Work Serves(std::size_t tenant) { return {Work::Kind::kServe, tenant, 0}; }
Work Retrains(std::size_t tenant, std::size_t way = 0) {
  return {Work::Kind::kRetrain, tenant, way};
}

// By profile of the A30, the media ones left out.
template <typename Number>
std::vector<Number> BySize(Number small, Number half, Number whole) {
  return {small, 0, half, 0, whole};
}

// 100 requests arrive in each slot; a slice answers 10 of them, which are worth 0.5.
Tenant PlainTenant(std::string name, int slots) {
  const auto n = static_cast<std::size_t>(slots);
  return {.name = std::move(name),
          .load = std::vector<double>(n, 100),
          .worth = std::vector<double>(n, 0.5),
          .capacity = BySize<double>(10, 20, 40),
          .retrainings = {}};
}

// Two slots on a slice, one on more, to be worth 0.75.
Retraining PlainRetraining(int slots) {
  return {.name = "full",
          .slots = BySize<int>(2, 1, 1),
          .worth = std::vector<double>(static_cast<std::size_t>(slots), 0.75)};
}

// One A30, two tenants of which the first can be retrained.
GoodputProblem PlainProblem(int slots) {
  GoodputProblem problem{
      &A30(), slots, {PlainTenant("lark", slots), PlainTenant("wren", slots)}, {{}}};
  problem.tenants[0].retrainings = {PlainRetraining(slots)};
  return problem;
}

double ValueOf(const GoodputProblem& problem, std::vector<Stretch> stretches) {
  const GoodputSchedule schedule{{std::move(stretches)}};
  EXPECT_EQ(FindFault(problem, schedule), std::nullopt);
  return Value(problem, schedule);
}

TEST(GoodputValueTest, AnswersAreCountedBySlotAndWeighedByWorth) {
  GoodputProblem problem = PlainProblem(3);
  problem.tenants[0].worth = {0.5, 0.25, 1};
  EXPECT_DOUBLE_EQ(ValueOf(problem, {{Half(0), 0, 3, Serves(0)}}), 20 * (0.5 + 0.25 + 1));
  EXPECT_DOUBLE_EQ(ValueOf(problem, {{Half(0), 1, 2, Serves(0)}}), 20 * 0.25);
  EXPECT_DOUBLE_EQ(ValueOf(problem, {}), 0);
}

TEST(GoodputValueTest, RestartTakesAPartOfASlotToo) {
  GoodputProblem problem = PlainProblem(5);
  problem.tenants[0].restart = 1.25;
  // Nothing in slot 1, three quarters of slot 2, all of slot 3.
  EXPECT_DOUBLE_EQ(ValueOf(problem, {{Half(0), 1, 4, Serves(0)}}), 0.5 * (15 + 20));
  EXPECT_DOUBLE_EQ(ValueOf(problem, {{Half(0), 1, 2, Serves(0)}}), 0);
}

TEST(GoodputValueTest, TwoStretchesOnOnePlaceRestartTwice) {
  GoodputProblem problem = PlainProblem(4);
  problem.tenants[0].restart = 0.5;
  EXPECT_DOUBLE_EQ(ValueOf(problem, {{Half(0), 0, 2, Serves(0)}, {Half(0), 2, 4, Serves(0)}}),
                   0.5 * (10 + 20 + 10 + 20));
}

TEST(GoodputValueTest, WhatRunsGoesOnWithoutRestart) {
  GoodputProblem problem = PlainProblem(3);
  problem.tenants[0].restart = problem.tenants[1].restart = 1;
  problem.present[0] = {{Half(0), Serves(0)}};
  EXPECT_DOUBLE_EQ(ValueOf(problem, {{Half(0), 0, 3, Serves(0)}}), 0.5 * 60);
  // Another place, another tenant and a later begin are new.
  EXPECT_DOUBLE_EQ(ValueOf(problem, {{Half(2), 0, 3, Serves(0)}}), 0.5 * 40);
  EXPECT_DOUBLE_EQ(ValueOf(problem, {{Half(0), 0, 3, Serves(1)}}), 0.5 * 40);
  EXPECT_DOUBLE_EQ(ValueOf(problem, {{Half(0), 1, 3, Serves(0)}}), 0.5 * 20);
}

TEST(GoodputValueTest, WhatStartsYetTakesOnlyWhatIsLeft) {
  GoodputProblem problem = PlainProblem(4);
  problem.tenants[0].restart = 3;
  problem.present[0] = {{Half(0), Serves(0), 1.5}};
  EXPECT_DOUBLE_EQ(ValueOf(problem, {{Half(0), 0, 4, Serves(0)}}), 0.5 * (10 + 20 + 20));
}

TEST(GoodputValueTest, NoMoreIsAnsweredThanArrives) {
  GoodputProblem problem = PlainProblem(2);
  problem.tenants[0].load = {50, 15};
  EXPECT_DOUBLE_EQ(ValueOf(problem, {{Half(0), 0, 2, Serves(0)}, {Half(2), 0, 2, Serves(0)}}),
                   0.5 * (40 + 15));
}

TEST(GoodputValueTest, InstancesOfAllGpusAnswer) {
  GoodputProblem problem = PlainProblem(1);
  problem.present.emplace_back();
  problem.tenants[0].load = {70};
  const Stretch whole{Whole(), 0, 1, Serves(0)};
  EXPECT_DOUBLE_EQ(Value(problem, {{{whole}, {whole}}}), 0.5 * 70);
}

TEST(GoodputValueTest, RetrainingCountsFromItsEnd) {
  const GoodputProblem problem = PlainProblem(4);
  EXPECT_DOUBLE_EQ(ValueOf(problem, {{Half(0), 0, 4, Serves(0)}, {Small(2), 1, 3, Retrains(0)}}),
                   20 * (0.5 * 3 + 0.75));
}

TEST(GoodputValueTest, RunningRetrainingCountsFromItsEndToo) {
  GoodputProblem problem = PlainProblem(4);
  problem.present[0] = {{Small(2), Retrains(0), 3}};
  EXPECT_DOUBLE_EQ(ValueOf(problem, {{Half(0), 0, 4, Serves(0)}, {Small(2), 0, 3, Retrains(0)}}),
                   20 * (0.5 * 3 + 0.75));
}

TEST(GoodputValueTest, AModelThatIsWorseIsNotPutInForce) {
  GoodputProblem problem = PlainProblem(4);
  problem.tenants[0].retrainings[0].worth = {1, 0.25, 0.75, 0.25};
  problem.tenants[0].tail = 100;
  EXPECT_DOUBLE_EQ(ValueOf(problem, {{Half(0), 0, 4, Serves(0)}, {Half(2), 0, 1, Retrains(0)}}),
                   20 * (0.5 + 0.5 + 0.75 + 0.5) + 100 * 0.5);
}

TEST(GoodputValueTest, TailIsWorthWhatTheLastModelIs) {
  GoodputProblem problem = PlainProblem(2);
  problem.tenants[0].tail = 100;
  problem.tenants[0].worth = {0.5, 0.25};
  problem.tenants[1].tail = 10;
  EXPECT_DOUBLE_EQ(ValueOf(problem, {}), 100 * 0.25 + 10 * 0.5);
  // It is in force by then, though not in any slot.
  EXPECT_DOUBLE_EQ(ValueOf(problem, {{Small(0), 0, 2, Retrains(0)}}), 100 * 0.75 + 10 * 0.5);
}

// What FindFault says of one GPU's stretches.
std::string FaultOf(const GoodputProblem& problem, std::vector<Stretch> stretches) {
  return FindFault(problem, {{std::move(stretches)}}).value_or("none");
}

TEST(GoodputFaultTest, EveryGpuHasItsStretches) {
  const GoodputProblem problem = PlainProblem(4);
  EXPECT_EQ(FindFault(problem, {{{}, {}}}), "not as many GPUs as there are");
  EXPECT_EQ(FindFault(problem, {}), "not as many GPUs as there are");
}

TEST(GoodputFaultTest, StretchesLieInTheWindow) {
  const GoodputProblem problem = PlainProblem(4);
  EXPECT_EQ(FaultOf(problem, {{Half(0), -1, 2, Serves(0)}}),
            "GPU 0, 2g.12gb at 0, slots -1 to 2: outside the window");
  EXPECT_THAT(FaultOf(problem, {{Half(0), 2, 5, Serves(0)}}), HasSubstr("outside the window"));
  EXPECT_THAT(FaultOf(problem, {{Half(0), 2, 2, Serves(0)}}), HasSubstr("outside the window"));
  EXPECT_EQ(FaultOf(problem, {{Half(0), 0, 4, Serves(0)}}), "none");
}

TEST(GoodputFaultTest, PlacesExistOnTheGpu) {
  const GoodputProblem problem = PlainProblem(4);
  EXPECT_EQ(FaultOf(problem, {{{0, gpu::ProfileIndex{99}}, 0, 1, Serves(0)}}),
            "GPU 0, slots 0 to 1: no such profile");
  EXPECT_THAT(FaultOf(problem, {{Half(1), 0, 1, Serves(0)}}),
              HasSubstr("2g.12gb may not begin at slice 1"));
}

TEST(GoodputFaultTest, TenantsExistAndCanServeThere) {
  GoodputProblem problem = PlainProblem(4);
  problem.tenants[1].capacity = BySize<double>(0, 20, 40);
  EXPECT_THAT(FaultOf(problem, {{Half(0), 0, 1, Serves(2)}}), HasSubstr("no such tenant"));
  EXPECT_THAT(FaultOf(problem, {{Half(0), 0, 1, Retrains(2)}}), HasSubstr("no such tenant"));
  EXPECT_THAT(FaultOf(problem, {{Small(0), 0, 1, Serves(1)}}), HasSubstr("wren cannot serve here"));
  EXPECT_EQ(FaultOf(problem, {{Half(0), 0, 1, Serves(1)}}), "none");
}

TEST(GoodputFaultTest, RetrainingsExistAndTakeTheirTime) {
  GoodputProblem problem = PlainProblem(4);
  problem.tenants[0].retrainings[0].slots = BySize<int>(0, 2, 1);
  EXPECT_THAT(FaultOf(problem, {{Half(0), 0, 2, Retrains(0, 1)}}), HasSubstr("no such retraining"));
  EXPECT_THAT(FaultOf(problem, {{Half(0), 0, 2, Retrains(1)}}), HasSubstr("no such retraining"));
  EXPECT_THAT(FaultOf(problem, {{Small(0), 0, 2, Retrains(0)}}),
              HasSubstr("lark cannot be retrained here"));
  for (const int end : {1, 3}) {
    EXPECT_THAT(FaultOf(problem, {{Half(0), 0, end, Retrains(0)}}),
                HasSubstr("this retraining takes 2 slots"));
  }
  EXPECT_EQ(FaultOf(problem, {{Half(0), 0, 2, Retrains(0)}}), "none");
}

TEST(GoodputFaultTest, RetrainingsEndInGoodTime) {
  GoodputProblem problem = PlainProblem(6);
  problem.retrain_by = 4;
  EXPECT_EQ(FaultOf(problem, {{Small(0), 2, 4, Retrains(0)}}), "none");
  EXPECT_THAT(FaultOf(problem, {{Small(0), 3, 5, Retrains(0)}}),
              HasSubstr("a retraining must end by slot 4"));
  // One that runs already ends when it does.
  problem.present[0] = {{Small(0), Retrains(0), 5}};
  EXPECT_EQ(FaultOf(problem, {{Small(0), 0, 5, Retrains(0)}}), "none");
}

TEST(GoodputFaultTest, OneRetrainingATenantOnWhicheverGpu) {
  GoodputProblem problem = PlainProblem(4);
  problem.tenants[1].retrainings = problem.tenants[0].retrainings;
  EXPECT_EQ(FaultOf(problem, {{Half(0), 0, 1, Retrains(0)}, {Half(0), 1, 2, Retrains(0)}}),
            "lark is retrained twice");
  EXPECT_EQ(FaultOf(problem, {{Half(0), 0, 1, Retrains(0)}, {Half(0), 1, 2, Retrains(1)}}), "none");
  problem.present.emplace_back();
  const Stretch stretch{Half(0), 0, 1, Retrains(1)};
  EXPECT_EQ(FindFault(problem, {{{stretch}, {stretch}}}), "wren is retrained twice");
}

TEST(GoodputFaultTest, NoTwoInstancesShareASlice) {
  const GoodputProblem problem = PlainProblem(4);
  EXPECT_THAT(FaultOf(problem, {{Half(0), 0, 3, Serves(0)}, {Small(1), 2, 4, Serves(1)}}),
              HasSubstr("1g.6gb at 1 overlaps 2g.12gb at 0"));
  EXPECT_THAT(FaultOf(problem, {{Half(0), 0, 2, Serves(0)}, {Half(0), 1, 2, Serves(0)}}),
              HasSubstr("overlaps"));
  EXPECT_THAT(FaultOf(problem, {{Small(0), 1, 3, Retrains(0)}, {Whole(), 2, 4, Serves(1)}}),
              HasSubstr("overlaps"));
  EXPECT_EQ(FaultOf(problem, {{Half(0), 0, 2, Serves(0)}, {Small(1), 2, 4, Serves(1)}}), "none");
}

TEST(GoodputFaultTest, NoProfileHasMoreInstancesThanTheDriverGrants) {
  GoodputProblem problem = PlainProblem(4);
  problem.tenants[0].capacity = {10, 10, 20, 20, 40};
  const auto media = ProfileOf(A30(), "1g.6gb+me");
  EXPECT_THAT(FaultOf(problem, {{{0, media}, 0, 2, Serves(0)}, {{1, media}, 1, 2, Serves(0)}}),
              HasSubstr("holds at most 1 1g.6gb+me"));
}

TEST(GoodputFaultTest, RunningRetrainingIsLeftToEnd) {
  GoodputProblem problem = PlainProblem(6);
  problem.present[0] = {{Small(1), Retrains(0), 5}};
  // It may take longer than a new one would.
  EXPECT_EQ(FaultOf(problem, {{Small(1), 0, 5, Retrains(0)}}), "none");
  const std::string fault =
      "GPU 0, 1g.6gb at 1: the retraining that runs there does not go on to slot 5";
  EXPECT_EQ(FaultOf(problem, {}), fault);
  EXPECT_EQ(FaultOf(problem, {{Small(1), 0, 4, Retrains(0)}}), fault);
  EXPECT_EQ(FaultOf(problem, {{Small(1), 0, 6, Retrains(0)}}), fault);
  EXPECT_EQ(FaultOf(problem, {{Small(0), 0, 2, Retrains(0)}}), fault);
  EXPECT_EQ(FaultOf(problem, {{Small(1), 0, 5, Serves(0)}}), fault);
  EXPECT_EQ(FaultOf(problem, {{Small(1), 0, 5, Retrains(0)}, {Half(2), 0, 1, Retrains(0)}}),
            "lark is retrained twice");
}

TEST(GoodputStayTest, ServingGoesOnAndRetrainingEnds) {
  GoodputProblem problem = PlainProblem(6);
  problem.present[0] = {{Half(2), Serves(1), 0.5}, {Small(1), Retrains(0), 4}};
  const GoodputSchedule stay = StayPut(problem);
  EXPECT_EQ(FindFault(problem, stay), std::nullopt);
  ASSERT_EQ(stay.gpus.size(), 1U);
  EXPECT_EQ(stay.gpus[0],
            (std::vector<Stretch>{{Small(1), 0, 4, Retrains(0)}, {Half(2), 0, 6, Serves(1)}}));
}

// What must hold of any answer.
void ExpectSound(const GoodputProblem& problem, const GoodputAnswer& answer,
                 const std::string& what) {
  EXPECT_EQ(FindFault(problem, answer.schedule), std::nullopt) << what;
  EXPECT_DOUBLE_EQ(answer.value, Value(problem, answer.schedule)) << what;
  EXPECT_DOUBLE_EQ(answer.stay, Value(problem, StayPut(problem))) << what;
  const double rounding = 1e-9 * std::max(1.0, answer.value);
  EXPECT_GE(answer.value, answer.stay - rounding) << what;
  EXPECT_GE(answer.bound, answer.value - rounding) << what;
  for (const auto& stretches : answer.schedule.gpus) {
    EXPECT_TRUE(std::ranges::is_sorted(stretches, {}, [](const Stretch& stretch) {
      return std::pair(stretch.begin, stretch.place);
    })) << what;
  }
}

TEST(PlanGoodputTest, SoundOnWindowsOfAllSizes) {
  constexpr const char* kGpus[] = {"A30", "A100-40GB", "A30", "H200"};
  constexpr std::uint64_t kCases = 200;
  int better = 0;
  for (std::uint64_t seed = 0; seed < kCases; ++seed) {
    Random random(seed + 1000);
    const char* name = kGpus[seed % 4];
    RandomWindow window;
    window.gpus = random.Uniform() < 0.7 ? 1 : 2 + static_cast<int>(random.Below(2));
    window.tenants = 1 + static_cast<int>(random.Below(4));
    window.slots = 2 + static_cast<int>(random.Below(seed % 40 == 0 ? 60 : 8));
    window.retraining = random.Uniform() < 0.8;
    GoodputProblem problem = RandomProblem(Gpu(name), window, seed);
    if (random.Uniform() < 0.3) problem.retrain_by = window.slots * 2 / 3;
    const GoodputAnswer answer = PlanGoodput(problem);
    ExpectSound(problem, answer,
                fmt::format("seed {}: {} x {}, {} tenants, {} slots", seed, window.gpus, name,
                            window.tenants, window.slots));
    if (answer.value > answer.stay * 1.001) ++better;
  }
  // Staying put is what it must not be content with.
  EXPECT_GT(better, static_cast<int>(kCases) / 2);
}

TEST(PlanGoodputTest, TheSameTwice) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const GoodputProblem problem =
        RandomProblem(Gpu("A100-80GB"), {.gpus = 2, .tenants = 2, .slots = 8}, seed);
    const GoodputAnswer one = PlanGoodput(problem);
    const GoodputAnswer two = PlanGoodput(problem);
    EXPECT_EQ(one.schedule.gpus, two.schedule.gpus) << seed;
    EXPECT_EQ(one.value, two.value) << seed;
    EXPECT_EQ(one.bound, two.bound) << seed;
  }
}

TEST(PlanGoodputTest, OddWindows) {
  const auto expect_sound = [](const GoodputProblem& problem, const char* what) {
    ExpectSound(problem, PlanGoodput(problem), what);
  };
  expect_sound(PlainProblem(1), "one slot");
  GoodputProblem problem = PlainProblem(5);
  problem.tenants.clear();
  expect_sound(problem, "nobody");
  problem = PlainProblem(5);
  for (Tenant& tenant : problem.tenants) std::ranges::fill(tenant.load, 0.0);
  expect_sound(problem, "no load");
  problem = PlainProblem(5);
  problem.tenants[0].capacity = BySize<double>(0, 0, 0);
  expect_sound(problem, "a tenant that fits nowhere");
  problem = PlainProblem(5);
  problem.tenants[0].restart = problem.tenants[1].restart = 100;
  expect_sound(problem, "restarts longer than the window");
  problem = PlainProblem(5);
  problem.present[0] = {{Half(0), Serves(0), 7.5}, {Half(2), Retrains(0), 5}};
  expect_sound(problem, "nothing answers within the window");
  problem = PlainProblem(5);
  problem.tenants[0].retrainings[0].slots = BySize<int>(6, 7, 8);
  expect_sound(problem, "retraining longer than the window");
}

TEST(PlanGoodputTest, FindsWhatIsPlainlyBest) {
  // One whole GPU for whom it is worth more; both tenants would take all of it.
  GoodputProblem problem = PlainProblem(3);
  problem.tenants[0].retrainings.clear();
  problem.tenants[1].worth = {0.6, 0.6, 0.6};
  const GoodputAnswer answer = PlanGoodput(problem);
  EXPECT_NEAR(answer.value, 3 * 40 * 0.6, 1e-9);
  EXPECT_NEAR(answer.bound, answer.value, 1e-6 * answer.value);
}

TEST(PlanGoodputTest, RetrainsForTheTailAlone) {
  // Nothing arrives in the window, much after it.
  GoodputProblem problem = PlainProblem(3);
  for (Tenant& tenant : problem.tenants) std::ranges::fill(tenant.load, 0.0);
  problem.tenants[0].tail = 1000;
  const GoodputAnswer answer = PlanGoodput(problem);
  EXPECT_NEAR(answer.value, 750, 1e-9);
}

}  // namespace
}  // namespace divvy::planner
