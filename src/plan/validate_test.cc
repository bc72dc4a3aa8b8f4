#include "plan/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>
#include <vector>

#include "gpu/catalogue.h"
#include "gpu/mig_layout.h"

namespace divvy::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Plan PlanOf(std::vector<PlannedInstance> instances, std::string kind = "H200-141GB") {
  int line = 10;
  for (PlannedInstance& instance : instances) instance.line.number = line++;
  return {{{.gpu = 0, .kind = std::move(kind), .instances = std::move(instances), .line = {5}}}};
}

// The problems of a plan as "LINE: message".
std::vector<std::string> ProblemsOf(const Plan& plan) {
  std::vector<std::string> problems;
  for (const Problem& problem : Validate(plan)) {
    problems.push_back(std::to_string(problem.line.number) + ": " + problem.message);
  }
  return problems;
}

std::vector<std::string> ProblemsOfRuns(std::vector<Assignment> runs,
                                        const std::string& profile = "3g.71gb") {
  return ProblemsOf(PlanOf({{profile, 0, std::move(runs)}}));
}

Assignment Model(int processes, std::optional<int> batch, std::optional<int> share) {
  return {.kind = Assignment::Kind::kModel,
          .name = "m",
          .processes = processes,
          .batch = batch,
          .mps_share = share,
          .line = {20}};
}

TEST(ValidateTest, AGoodPlanHasNoProblems) {
  EXPECT_THAT(ProblemsOf(PlanOf({{"1g.18gb", 0}, {"2g.35gb", 2}, {"3g.71gb", 4}})), IsEmpty());
  EXPECT_THAT(ProblemsOf(PlanOf({{"3g.71gb", {}}, {"1g.18gb", 3}, {"2g.35gb", {}}})), IsEmpty());
  EXPECT_THAT(ProblemsOf(PlanOf({})), IsEmpty());
}

TEST(ValidateTest, UnknownKindNamesTheNearest) {
  EXPECT_THAT(ProblemsOf(PlanOf({}, "H200-114GB")),
              ElementsAre("5: no GPU is called 'H200-114GB'; did you mean 'H200-141GB'?"));
}

TEST(ValidateTest, UnknownProfileNamesTheNearest) {
  EXPECT_THAT(ProblemsOf(PlanOf({{"3g.70gb", 0}})),
              ElementsAre("10: H200-141GB has no profile '3g.70gb'; did you mean '3g.71gb'?"));
}

TEST(ValidateTest, ProfileOfAnotherGpuSaysWhose) {
  EXPECT_THAT(ProblemsOf(PlanOf({{"7g.40gb", 0}})),
              ElementsAre(HasSubstr("; that is a profile of A100-40GB")));
  EXPECT_THAT(ProblemsOf(PlanOf({{"nonsense", 0}})),
              ElementsAre(HasSubstr("; it has 1g.18gb, 1g.18gb+me")));
}

TEST(ValidateTest, IllegalStartNamesTheLegalOnes) {
  EXPECT_THAT(ProblemsOf(PlanOf({{"3g.71gb", 2}})),
              ElementsAre("10: 3g.71gb may not begin at slice 2 of H200-141GB, only at 0, 4"));
}

TEST(ValidateTest, OverlapNamesBoth) {
  EXPECT_THAT(ProblemsOf(PlanOf({{"3g.71gb", 0}, {"1g.18gb", 3}})),
              ElementsAre("11: 1g.18gb at 3 overlaps 3g.71gb at 0, which takes 4 slices"));
}

TEST(ValidateTest, NeighboursDoNotOverlap) {
  EXPECT_THAT(ProblemsOf(PlanOf({{"3g.71gb", 0}, {"1g.18gb", 4}})), IsEmpty());
}

TEST(ValidateTest, TooManyOfAProfileIsOneProblem) {
  EXPECT_THAT(
      ProblemsOf(PlanOf({{"2g.35gb", {}}, {"2g.35gb", {}}, {"2g.35gb", {}}, {"2g.35gb", {}}})),
      ElementsAre("13: 4 instances of 2g.35gb; H200-141GB can have 3"));
  EXPECT_THAT(ProblemsOf(PlanOf({{"1g.18gb+me", 0}, {"1g.18gb+me", 1}})),
              ::testing::Contains("11: 2 instances of 1g.18gb+me; H200-141GB can have 1"));
}

TEST(ValidateTest, EnginesAreShared) {
  // Of the media engines the RTX PRO 6000 has four; .all takes them all.
  EXPECT_THAT(ProblemsOf(PlanOf({{"1g.24gb+me.all", 0}, {"1g.24gb-me", 3}}, "rtx-pro")), IsEmpty());
  EXPECT_THAT(ProblemsOf(PlanOf({{"1g.24gb+me.all", 0}, {"1g.24gb", 3}}, "rtx-pro")),
              ::testing::Contains(HasSubstr("need over 4 video decoders")));
}

TEST(ValidateTest, EveryKindOfEngineIsCounted) {
  for (int gpu::Engines::* engine : {&gpu::Engines::decoders, &gpu::Engines::encoders,
                                     &gpu::Engines::jpeg, &gpu::Engines::ofa}) {
    gpu::GpuModel model = **gpu::FindGpuModel("A30-24GB");
    for (gpu::MigProfile& profile : model.profiles) profile.engines = gpu::Engines{};
    gpu::Engines one;
    one.*engine = 1;
    gpu::Engines two_of_it;
    two_of_it.*engine = 2;
    model.profiles[0].engines = one;
    const PlannedGpu two{.gpu = 0, .instances = {{"1g.6gb", 0}, {"1g.6gb", 1}}};
    model.engines = one;
    EXPECT_EQ(ValidateGpu(two, model).size(), 1U);
    model.engines = two_of_it;
    EXPECT_THAT(ValidateGpu(two, model), IsEmpty());
  }
}

TEST(ValidateTest, InstancesWithoutAStartNeedSomePlace) {
  // 1g at 3 and at 4 leave neither half for a 3g.
  EXPECT_THAT(ProblemsOf(PlanOf({{"1g.18gb", 3}, {"1g.18gb", 4}, {"3g.71gb", {}}})),
              ElementsAre("12: H200-141GB has no room for 3g.71gb without a start, beside the "
                          "instances that have one"));
  // First-fit would put the 1g where the 4g must go.
  EXPECT_THAT(ProblemsOf(PlanOf({{"1g.18gb", {}}, {"4g.71gb", {}}})), IsEmpty());
  EXPECT_THAT(ProblemsOf(PlanOf({{"7g.141gb", {}}, {"1g.18gb", {}}})),
              ElementsAre("10: H200-141GB has no room for 7g.141gb, 1g.18gb without a start"));
}

TEST(ValidateTest, ProcessesStayWithinTheClientsOfMps) {
  // 48 clients a GPU, in proportion to compute slices: 3 of 7 have 20, 1 has 6.
  EXPECT_THAT(ProblemsOfRuns({Model(20, {}, {})}), IsEmpty());
  EXPECT_THAT(ProblemsOfRuns({Model(21, {}, {})}),
              ElementsAre("20: with m 3g.71gb has 21 processes; MPS serves at most 20 there"));
  EXPECT_THAT(ProblemsOfRuns({Model(4, {}, {}), Model(3, {}, {})}, "1g.18gb"),
              ElementsAre(HasSubstr("has 7 processes; MPS serves at most 6")));
  Plan whole{{{.gpu = 0, .kind = "A30-24GB", .mig = false, .runs = {Model(48, {}, {})}}}};
  EXPECT_THAT(ProblemsOf(whole), IsEmpty());
  whole.gpus[0].runs[0].processes = 49;
  EXPECT_THAT(ProblemsOf(whole), ElementsAre(HasSubstr("a whole GPU has 49 processes")));
}

TEST(ValidateTest, SharesAddUpToAHundredAtMost) {
  EXPECT_THAT(ProblemsOfRuns({Model(2, {}, 30), Model(1, {}, 40), Model(1, {}, {})}), IsEmpty());
  EXPECT_THAT(ProblemsOfRuns({Model(2, {}, 30), Model(1, {}, 41)}),
              ElementsAre(HasSubstr("adds up to 101%")));
  EXPECT_THAT(ProblemsOfRuns({Model(3, {}, 34)}), ElementsAre(HasSubstr("adds up to 102%")));
}

TEST(ValidateTest, NumbersThatAProgramGotWrongAreFound) {
  EXPECT_THAT(ProblemsOfRuns({Model(0, {}, {})}), ElementsAre("20: m has 0 processes; at least 1"));
  EXPECT_THAT(ProblemsOfRuns({Model(1, 0, {})}), ElementsAre("20: m has batch 0; at least 1"));
  EXPECT_THAT(ProblemsOfRuns({Model(1, {}, 0)}), ElementsAre("20: m has mps_share 0; 1 to 100"));
  EXPECT_THAT(ProblemsOfRuns({Model(1, {}, 101)}),
              ::testing::Contains("20: m has mps_share 101; 1 to 100"));
  Assignment job = Model(1, 3, {});
  job.kind = Assignment::Kind::kJob;
  EXPECT_THAT(ProblemsOfRuns({job}), ElementsAre("20: m is a job; only models have a batch"));
  Assignment nameless = Model(1, {}, {});
  nameless.name = "";
  EXPECT_THAT(ProblemsOfRuns({nameless}), ElementsAre("20: '' is not a name"));
}

TEST(ValidateTest, AGpuIsWholeOrCut) {
  Plan plan = PlanOf({{"1g.18gb", 0}});
  plan.gpus[0].mig = false;
  EXPECT_THAT(ProblemsOf(plan), ElementsAre("5: GPU 0 is to stay whole, yet has instances"));
  plan.gpus[0].mig = true;
  plan.gpus[0].runs = {Model(1, {}, {})};
  EXPECT_THAT(ProblemsOf(plan),
              ElementsAre("5: GPU 0 is cut into instances, yet runs something outside of them"));
}

TEST(ValidateTest, AGpuAppearsOnce) {
  Plan plan = PlanOf({});
  plan.gpus.push_back(plan.gpus[0]);
  EXPECT_THAT(ProblemsOf(plan), ElementsAre("5: GPU 0 appears twice"));
  plan.gpus[1].gpu = -1;
  EXPECT_THAT(ProblemsOf(plan), ElementsAre("5: GPU -1: an index is 0 or more"));
}

TEST(ValidateTest, AllProblemsAreListedByLine) {
  Plan plan = PlanOf({{"3g.71gb", 1}, {"9g.18gb", 0}});
  plan.gpus[0].instances[0].line.number = 30;
  const auto problems = Validate(plan);
  ASSERT_EQ(problems.size(), 2U);
  EXPECT_EQ(problems[0].line.number, 11);
  EXPECT_EQ(problems[1].line.number, 30);
}

TEST(ValidateTest, ProblemsPrintLikeACompilersErrors) {
  EXPECT_EQ(Describe({{7}, "what"}, "p.yaml"), "p.yaml:7: what");
  EXPECT_EQ(Describe({{0}, "what"}, "p.yaml"), "p.yaml: what");
}

// Whether MigLayout finds a legal layout with these instances.
bool LayoutExists(const gpu::MigLayout& layout, const std::vector<PlannedInstance>& instances,
                  std::size_t next = 0) {
  if (next == instances.size()) return true;
  const PlannedInstance& instance = instances[next];
  const auto profile = layout.model().FindProfile(instance.profile);
  if (!profile) return false;
  std::vector<int> starts = layout.model().profile(*profile).starts;
  if (instance.start) starts = {*instance.start};
  for (const int start : starts) {
    gpu::MigLayout more = layout;
    if (more.Place({start, *profile}) && LayoutExists(more, instances, next + 1)) return true;
  }
  return false;
}

// Instances for `model`, mostly legal ones, so that both answers are common.
std::vector<PlannedInstance> RandomInstances(const gpu::GpuModel& model, std::mt19937& random) {
  const auto below = [&](std::size_t end) { return static_cast<std::size_t>(random() % end); };
  gpu::MigLayout layout(model);
  std::vector<PlannedInstance> instances;
  const bool orderly = below(3) != 0;
  for (std::size_t tries = below(10); tries > 0; --tries) {
    const auto profile = static_cast<gpu::ProfileIndex>(below(model.profiles.size()));
    std::vector<int> starts = model.profile(profile).starts;
    if (orderly) starts = layout.FreeStarts(profile);
    if (starts.empty()) continue;
    int start = starts[below(starts.size())];
    if (orderly) (void)layout.Place({start, profile});
    if (below(40) == 0) start += 1;
    instances.push_back({model.profile(profile).name, start});
  }
  const std::size_t unplaced = below(3);
  for (PlannedInstance& instance : instances) {
    if (below(2) < unplaced) instance.start.reset();
  }
  return instances;
}

// Validate and MigLayout state the same rules independently, so each checks the
// other.
TEST(ValidateTest, AgreesWithMigLayoutOnEveryGpu) {
  std::mt19937 random(20240607);
  for (const gpu::GpuModel& model : gpu::Catalogue()) {
    int legal = 0;
    constexpr int kCases = 600;
    for (int i = 0; i < kCases; ++i) {
      const PlannedGpu planned{.gpu = 0, .instances = RandomInstances(model, random)};
      const bool expected = LayoutExists(gpu::MigLayout(model), planned.instances);
      const auto problems = ValidateGpu(planned, model);
      legal += expected;
      std::string text;
      for (const PlannedInstance& instance : planned.instances) {
        text += instance.profile + " at " + std::to_string(instance.start.value_or(-1)) + ", ";
      }
      EXPECT_EQ(problems.empty(), expected)
          << model.name << ": " << text << (problems.empty() ? "" : problems.front().message);
    }
    EXPECT_GT(legal, kCases / 4) << model.name;
    EXPECT_LT(legal, kCases * 9 / 10) << model.name;
  }
}

}  // namespace
}  // namespace divvy::plan
