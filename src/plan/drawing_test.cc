#include "plan/drawing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "plan/plan_file.h"
#include "plan/validate.h"

namespace divvy::plan {
namespace {

using ::testing::HasSubstr;

Plan Parsed(std::string_view gpus) {
  const auto plan = ParsePlan("version: 1\ngpus:\n" + std::string(gpus), "p.yaml");
  EXPECT_TRUE(plan) << plan.error().message;
  if (!plan) return {};
  EXPECT_TRUE(Validate(*plan).empty());
  return *plan;
}

constexpr std::string_view kMixed = R"(
  - gpu: 0
    kind: h200
    instances:
      - {profile: 3g.71gb, start: 4, runs: [{job: train}]}
      - profile: 2g.35gb
        start: 2
        runs: [{model: resnet50, processes: 2, batch: 8, mps_share: 50}]
      - {profile: 1g.18gb, start: 0, runs: [{model: bert}]}
      - {profile: 1g.18gb}
)";

TEST(DrawingTest, ShowsPlacesNamesDetailsAndTotals) {
  EXPECT_EQ(DrawPlan(Parsed(kMixed), gpu::Ink::kPlain),
            "GPU 0  H200-141GB  7 of 7 compute slices, 8 of 8 memory slices\n"
            "  |1g.18gb |........|2g.35gb          |3g.71gb                            |\n"
            "   bert              resnet50          train\n"
            "  2g.35gb at 2  resnet50: 2 processes, at most 50% each, batch 8\n"
            "  anywhere: 1g.18gb\n"
            "\n"
            "1 GPU: 7 of 7 compute slices, 8 of 8 memory slices given out\n");
}

TEST(DrawingTest, WholeGpuListsWhatSharesIt) {
  const Plan plan = Parsed(
      "  - {gpu: 0, kind: A30-24GB, mig: false, runs: [{model: a, processes: 3}, "
      "{job: b, mps_share: 40}]}\n");
  EXPECT_EQ(DrawPlan(plan, gpu::Ink::kPlain),
            "GPU 0  A30-24GB  whole\n"
            "  |whole GPU                      |\n"
            "   a: 3 processes\n"
            "   b: at most 40%\n"
            "\n"
            "1 GPU, all whole\n");
}

TEST(DrawingTest, EqualUnplacedInstancesAreCountedWhereverTheyStand) {
  const Plan plan = Parsed(
      "  - gpu: 0\n    kind: A100-40GB\n    instances:\n"
      "      - {profile: 1g.5gb, count: 2}\n"
      "      - {profile: 2g.10gb, runs: [{model: m, batch: 4}]}\n"
      "      - {profile: 1g.5gb}\n");
  const std::string text = DrawPlan(plan, gpu::Ink::kPlain);
  EXPECT_THAT(text, HasSubstr("  anywhere: 3x 1g.5gb\n  anywhere: 2g.10gb  m: batch 4\n"));
}

TEST(DrawingTest, NamesThatDoNotFitStandBelow) {
  const std::string name(60, 'n');
  const Plan plan = Parsed(
      "  - gpu: 0\n    kind: A100-40GB\n    instances:\n      - {profile: 1g.5gb, start: 3, "
      "runs: [{model: " +
      name + "}]}\n");
  const std::string text = DrawPlan(plan, gpu::Ink::kPlain);
  EXPECT_THAT(text, HasSubstr("  1g.5gb at 3  " + name + "\n"));
}

TEST(DrawingTest, SeveralRunsOfAnInstanceAreTellable) {
  const Plan plan = Parsed(
      "  - gpu: 0\n    kind: A100-40GB\n    instances:\n      - {profile: 7g.40gb, start: 0, "
      "runs: [{model: a, batch: 2}, {model: b, processes: 2, batch: 4}]}\n");
  EXPECT_THAT(DrawPlan(plan, gpu::Ink::kPlain),
              HasSubstr("7g.40gb at 0  a: batch 2; b: 2 processes, batch 4\n"));
}

TEST(DrawingTest, EqualGpusLineUpAndLinesFitAHundredColumns) {
  const Plan plan = Parsed(
      "  - gpu: 0\n    kind: H200-141GB\n    instances:\n      - {profile: 1g.18gb+me, start: 0, "
      "runs: [{model: a-rather-long-name-for-one-slice}]}\n"
      "  - gpu: 1\n    kind: H200-141GB\n    instances: []\n"
      "  - {gpu: 2, kind: H200-141GB, mig: false}\n"
      "  - gpu: 3\n    kind: RTX-PRO-6000-Blackwell-96GB\n    instances:\n"
      "      - {profile: 1g.24gb+me.all, start: 9, runs: [{job: a-rather-long-name-again}]}\n");
  const std::string text = DrawPlan(plan, gpu::Ink::kPlain);
  EXPECT_THAT(text, HasSubstr("|1g.18gb+me |"));
  std::istringstream lines(text);
  std::size_t strip = 0;
  int strips = 0;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 100U) << line;
    if (!line.starts_with("  |") || ++strips > 3) continue;
    if (strip == 0) strip = line.size();
    EXPECT_EQ(line.size(), strip) << line;
  }
  EXPECT_EQ(strips, 4);
}

TEST(DrawingTest, ColourIsOnlyForTerminals) {
  EXPECT_EQ(DrawPlan(Parsed(kMixed), gpu::Ink::kPlain).find('\x1b'), std::string::npos);
  EXPECT_NE(DrawPlan(Parsed(kMixed), gpu::Ink::kColour).find('\x1b'), std::string::npos);
}

TEST(DrawingTest, APlanWithoutGpusSaysSo) {
  EXPECT_EQ(DrawPlan({}, gpu::Ink::kPlain), "no GPUs\n");
}

}  // namespace
}  // namespace divvy::plan
