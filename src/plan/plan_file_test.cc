#include "plan/plan_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace divvy::plan {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::string_view kFull = R"(# Everything a plan can say.
version: 1
gpus:
  - gpu: 0
    kind: H200-141GB
    mig: true
    instances:
      - profile: 3g.71gb
        start: 4
        runs:
          - model: resnet50
            processes: 2
            batch: 8
            mps_share: 50%
          - job: train-bert
      - profile: 1g.18gb
        count: 3
      - {profile: 1g.18gb+me}
  - gpu: GPU-6f1c2c1e-0d5b-4f0e-9c55-2d1f4b8a7e10
    kind: A100-40GB
    mig: false
    runs:
      - job: "name: with \"quotes\" \\ and #signs"
        processes: 3
        mps_share: 33
  - gpu: 7
    kind: A30-24GB
    instances: []
)";

std::string ErrorOf(std::string_view text) {
  const auto plan = ParsePlan(text, "p.yaml");
  return plan ? "no error" : plan.error().message;
}

// The error of a plan of one GPU with one instance, whose lines are `lines`; the
// first is line 7.
std::string InstanceError(const std::string& lines) {
  std::string indented;
  for (const char c : lines) {
    indented += c;
    if (c == '\n') indented += "        ";
  }
  return ErrorOf("version: 1\ngpus:\n  - gpu: 0\n    kind: H200-141GB\n    instances:\n" +
                 std::string("      - profile: 3g.71gb\n        ") + indented + "\n");
}

// As above, for one entry of its runs; the first line is line 9.
std::string RunError(const std::string& lines) {
  std::string indented;
  for (const char c : lines) {
    indented += c;
    if (c == '\n') indented += "    ";
  }
  return InstanceError("runs:\n  - model: m\n    " + indented);
}

TEST(PlanFileTest, ReadsEverythingAPlanCanSay) {
  const auto plan = ParsePlan(kFull, "p.yaml");
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_EQ(plan->gpus.size(), 3U);

  const PlannedGpu& cut = plan->gpus[0];
  EXPECT_EQ(cut.gpu, GpuRef(0));
  EXPECT_EQ(cut.kind, "H200-141GB");
  EXPECT_TRUE(cut.mig);
  ASSERT_EQ(cut.instances.size(), 5U);
  const std::vector<Assignment> runs = {{.kind = Assignment::Kind::kModel,
                                         .name = "resnet50",
                                         .processes = 2,
                                         .batch = 8,
                                         .mps_share = 50},
                                        {.kind = Assignment::Kind::kJob, .name = "train-bert"}};
  EXPECT_EQ(cut.instances[0], (PlannedInstance{"3g.71gb", 4, runs}));
  for (int i : {1, 2, 3}) EXPECT_EQ(cut.instances[i], (PlannedInstance{"1g.18gb"}));
  EXPECT_EQ(cut.instances[4], (PlannedInstance{"1g.18gb+me"}));

  const PlannedGpu& whole = plan->gpus[1];
  EXPECT_EQ(whole.gpu, GpuRef("GPU-6f1c2c1e-0d5b-4f0e-9c55-2d1f4b8a7e10"));
  EXPECT_FALSE(whole.mig);
  ASSERT_EQ(whole.runs.size(), 1U);
  EXPECT_EQ(whole.runs[0].name, "name: with \"quotes\" \\ and #signs");

  EXPECT_TRUE(plan->gpus[2].mig);
  EXPECT_TRUE(plan->gpus[2].instances.empty());
}

TEST(PlanFileTest, PartsKnowTheirLines) {
  const auto plan = ParsePlan(kFull, "p.yaml");
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->gpus[0].line.number, 4);
  EXPECT_EQ(plan->gpus[0].instances[0].line.number, 8);
  EXPECT_EQ(plan->gpus[0].instances[0].runs[1].line.number, 15);
  EXPECT_EQ(plan->gpus[0].instances[3].line.number, 16);
  EXPECT_EQ(plan->gpus[1].line.number, 19);
}

TEST(PlanFileTest, WhatIsWrittenReadsEqual) {
  const auto plan = ParsePlan(kFull, "p.yaml");
  ASSERT_TRUE(plan) << plan.error().message;
  const std::string text = FormatPlan(*plan);
  const auto again = ParsePlan(text, "again.yaml");
  ASSERT_TRUE(again) << again.error().message << "\n" << text;
  EXPECT_EQ(*again, *plan);
  EXPECT_EQ(FormatPlan(*again), text);
}

TEST(PlanFileTest, NamesThatYamlWouldReadAsSomethingElseSurvive) {
  for (const char* name :
       {"null", "~",  "true", "No", "1",  "1.5",  "-", "- x", "a: b", "a #b", "#",
        "*a",   "&a", "!t",   "%",  "@x", "`",    "'", "\"",  "\\n",  "[x]",  "{}",
        "?",    "é",  "模型", "x:", "1g", "0x10", "=", "<<",  "|",    ">",    "a,b"}) {
    Plan plan;
    plan.gpus = {{.gpu = 0,
                  .kind = "A30-24GB",
                  .mig = false,
                  .runs = {{.kind = Assignment::Kind::kModel, .name = name}}}};
    const std::string text = FormatPlan(plan);
    const auto again = ParsePlan(text, "p.yaml");
    ASSERT_TRUE(again) << again.error().message << "\n" << text;
    EXPECT_EQ(*again, plan) << text;
  }
}

TEST(PlanFileTest, AnImpossiblePlanSurvivesWritingToo) {
  // Two instances in one place: of the right form, so it is Validate that objects.
  Plan plan;
  plan.gpus = {{.gpu = 0, .kind = "H200-141GB", .instances = {{"1g.18gb", 5}, {"1g.18gb", 5}}}};
  const auto again = ParsePlan(FormatPlan(plan), "p.yaml");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(*again, plan);
}

TEST(PlanFileTest, WritesEqualNeighboursOnce) {
  Plan plan;
  plan.gpus = {{.gpu = 0, .kind = "H200-141GB"}};
  plan.gpus[0].instances = {{"1g.18gb", {}}, {"1g.18gb", {}}, {"1g.18gb", 4}, {"1g.18gb", 5}};
  EXPECT_EQ(FormatPlan(plan),
            "version: 1\ngpus:\n  - gpu: 0\n    kind: H200-141GB\n    instances:\n"
            "      - profile: 1g.18gb\n        count: 2\n"
            "      - profile: 1g.18gb\n        start: 4\n"
            "      - profile: 1g.18gb\n        start: 5\n");
}

TEST(PlanFileTest, EmptyFileIsNamed) {
  for (const char* text : {"", "\n", "# nothing yet\n"}) {
    EXPECT_EQ(ErrorOf(text), "p.yaml: the file is empty; a plan begins with 'version: 1'");
  }
}

TEST(PlanFileTest, VersionIsCheckedFirst) {
  EXPECT_EQ(ErrorOf("version: 2\ngpus: 3\n"),
            "p.yaml:1: version: '2' is unknown; this program reads version 1");
  EXPECT_EQ(ErrorOf("gpus: []\n"), "p.yaml:1: a plan needs the key 'version'");
  EXPECT_EQ(ErrorOf("version:\ngpus: []\n"),
            "p.yaml:1: version: '' is unknown; this program reads version 1");
}

TEST(PlanFileTest, WrongKindsOfValueAreNamed) {
  EXPECT_EQ(
      ErrorOf("hello\n"),
      "p.yaml:1: a plan is a mapping with the keys version or gpus, but here is a single value");
  EXPECT_EQ(ErrorOf("version: 1\ngpus: 3\n"),
            "p.yaml:2: gpus: is a list ('- ...' lines), but here is a single value");
  EXPECT_EQ(ErrorOf("version: 1\ngpus:\n"),
            "p.yaml:2: gpus: is a list ('- ...' lines), but here is nothing");
  EXPECT_THAT(ErrorOf("version: 1\ngpus:\n  - 3\n"), StartsWith("p.yaml:3: a GPU is a mapping"));
  EXPECT_THAT(InstanceError("runs: {model: m}"), StartsWith("p.yaml:7: runs: is a list"));
  EXPECT_THAT(RunError("batch: [8]"), StartsWith("p.yaml:9: batch: is a whole number"));
}

TEST(PlanFileTest, UnknownKeysSuggestTheNearest) {
  EXPECT_EQ(InstanceError("strat: 4"),
            "p.yaml:7: an instance has no key 'strat'; did you mean 'start'?");
  EXPECT_EQ(RunError("proceses: 4"),
            "p.yaml:9: an entry of runs has no key 'proceses'; did you mean 'processes'?");
  EXPECT_EQ(ErrorOf("version: 1\ngpus: []\nx-extension: 1\n"),
            "p.yaml:3: a plan has no key 'x-extension'; it may have version or gpus");
}

TEST(PlanFileTest, MissingKeysAreNamed) {
  EXPECT_EQ(ErrorOf("version: 1\n"), "p.yaml:1: a plan needs the key 'gpus'");
  EXPECT_EQ(ErrorOf("version: 1\ngpus:\n  - kind: A30-24GB\n    instances: []\n"),
            "p.yaml:3: a GPU needs the key 'gpu'");
  EXPECT_EQ(ErrorOf("version: 1\ngpus:\n  - gpu: 0\n    instances: []\n"),
            "p.yaml:3: a GPU needs the key 'kind'");
  EXPECT_EQ(ErrorOf("version: 1\ngpus:\n  - gpu: 0\n    kind: A30-24GB\n"),
            "p.yaml:3: a GPU needs the key 'instances', or 'mig: false' to stay whole");
  EXPECT_EQ(InstanceError("runs:\n  - batch: 3"),
            "p.yaml:8: an entry of runs needs the key 'model' or the key 'job'");
}

TEST(PlanFileTest, NumbersOutOfRangeNameTheRange) {
  EXPECT_EQ(RunError("processes: 0"),
            "p.yaml:9: processes: '0' is not a whole number from 1 to 10000");
  for (const char* bad : {"-1", "2.5", "8GB", "eight", "99999999999999999999", "010", "+8", "0x8",
                          "1e3", "1_000", "true", ".inf"}) {
    EXPECT_THAT(RunError(std::string("batch: ") + bad),
                StartsWith("p.yaml:9: batch: '" + std::string(bad) + "' is not a whole number"));
  }
  EXPECT_THAT(RunError("batch: '8'"), HasSubstr("without quotes"));
  EXPECT_THAT(InstanceError("start: -1"), HasSubstr("start: '-1' is not a whole number from 0"));
  EXPECT_THAT(InstanceError("start: 32"), HasSubstr("from 0 to 31"));
  EXPECT_THAT(InstanceError("count: 0"), HasSubstr("count: '0' is not a whole number from 1"));
}

TEST(PlanFileTest, SharesArePercentages) {
  for (const char* good : {"1", "100", "50%", "'50%'", "\"50\""}) {
    EXPECT_EQ(RunError(std::string("mps_share: ") + good), "no error") << good;
  }
  for (const char* bad : {"50ms", "0", "101", "0.5", "-5", "'%'", "'50 %'", "50%%"}) {
    EXPECT_THAT(RunError(std::string("mps_share: ") + bad),
                HasSubstr("is not a percentage, a whole number from 1 to 100 such as 50 or 50%"))
        << bad;
  }
}

TEST(PlanFileTest, ContradictionsAreRefused) {
  const std::string whole = "version: 1\ngpus:\n  - gpu: 0\n    kind: A30-24GB\n    mig: false\n";
  EXPECT_THAT(ErrorOf(whole + "    instances: []\n"),
              StartsWith("p.yaml:6: instances: contradicts 'mig: false'"));
  EXPECT_THAT(ErrorOf("version: 1\ngpus:\n  - gpu: 0\n    kind: A30-24GB\n    instances: []\n"
                      "    runs: []\n"),
              StartsWith("p.yaml:6: runs: stands under an instance"));
  EXPECT_THAT(InstanceError("start: 0\ncount: 2"),
              StartsWith("p.yaml:8: count: is for instances without a start"));
  EXPECT_EQ(RunError("job: j"), "p.yaml:8: an entry of runs is a model or a job, not both");
  EXPECT_EQ(InstanceError("runs:\n  - job: j\n    batch: 4"),
            "p.yaml:9: batch: is for models; 'j' is a job");
}

TEST(PlanFileTest, GpusAreNamedOnceByIndexOrUuid) {
  const auto two = [](const std::string& a, const std::string& b) {
    return ErrorOf("version: 1\ngpus:\n  - {gpu: " + a +
                   ", kind: A30, mig: false}\n  - {gpu: " + b + ", kind: A30, mig: false}\n");
  };
  EXPECT_EQ(two("0", "1"), "no error");
  EXPECT_EQ(two("3", "3"), "p.yaml:4: GPU 3 appears twice; it stands on line 3 already");
  EXPECT_THAT(two("GPU-ab", "GPU-ab"), HasSubstr("GPU-ab appears twice"));
  EXPECT_THAT(two("-1", "1"), HasSubstr("gpu: '-1' is not a whole number from 0 to 255"));
  EXPECT_THAT(two("H200", "1"), HasSubstr("gpu: 'H200' is neither an index such as 0 nor a UUID"));
  EXPECT_THAT(two("MIG-ab", "1"), HasSubstr("is a MIG device; name the GPU it is cut from"));
  EXPECT_THAT(two("[0]", "1"), HasSubstr("gpu: is an index such as 0 or a UUID"));
}

TEST(PlanFileTest, NamesAreText) {
  EXPECT_THAT(ErrorOf("version: 1\ngpus:\n  - {gpu: 0, kind: \"A\\e[31m\", mig: false}\n"),
              StartsWith("p.yaml:3: kind: 'A\\x1b[31m' is not a name"));
  EXPECT_THAT(ErrorOf("version: 1\ngpus:\n  - {gpu: 0, kind: \"\", mig: false}\n"),
              StartsWith("p.yaml:3: kind: '' is not a name"));
  EXPECT_THAT(ErrorOf("version: 1\ngpus:\n  - {gpu: 0, kind: ~, mig: false}\n"),
              StartsWith("p.yaml:3: kind: is a name, but here is nothing"));
}

TEST(PlanFileTest, InstancesOfAGpuAreLimited) {
  std::string text = "version: 1\ngpus:\n  - gpu: 0\n    kind: H200-141GB\n    instances:\n";
  const std::string full = "      - {profile: 1g.18gb, count: 32}\n";
  EXPECT_EQ(ErrorOf(text + full + full), "no error");
  EXPECT_EQ(ErrorOf(text + full + full + full), "p.yaml:8: over 64 instances on one GPU");
}

// A seeded source of small changes to a text, of the kinds that people and broken
// tools make.
class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  std::string Mutate(std::string text) {
    for (std::size_t edits = 1 + Below(2); edits > 0; --edits) Edit(text);
    return text;
  }

 private:
  std::size_t Below(std::size_t end) { return random_() % end; }

  void Edit(std::string& text) {
    constexpr std::array<std::string_view, 34> kTokens = {
        "\n",          "  ",          "\t",    ": ",
        "- ",          "[",           "]",     "{",
        "}",           "#",           "&a ",   "*a",
        "!!int ",      "---\n",       "...\n", "\"",
        "'",           "|\n",         ">\n",   "? ",
        "%",           "50%",         "-1",    "0",
        "99999999999", "null",        "~",     "start: 0",
        "count: 2",    "mig: false",  "runs:", "instances: []",
        "\xff",        "\xef\xbb\xbf"};
    const std::size_t at = Below(text.size() + 1);
    const std::size_t length = std::min(text.size() - at, 1 + Below(12));
    switch (Below(5)) {
      case 0:
        text.insert(at, kTokens[Below(kTokens.size())]);
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(Below(text.size() + 1), text.substr(at, length));
        break;
      case 3:
        if (at < text.size()) text[at] = static_cast<char>(Below(256));
        break;
      default:
        MoveLine(text, at);
    }
  }

  void MoveLine(std::string& text, std::size_t at) {
    const std::size_t begin = text.rfind('\n', at) == std::string::npos ? 0 : text.rfind('\n', at);
    const std::size_t end = std::min(text.find('\n', begin + 1), text.size());
    const std::string line = text.substr(begin, end - begin);
    if (Below(2) == 0) text.erase(begin, line.size());
    text.insert(Below(text.size() + 1), line);
  }

  std::mt19937 random_;
};

// "p.yaml:12: ..." or the message about an empty file.
bool IsPlacedError(const std::string& message) {
  constexpr std::string_view kFile = "p.yaml:";
  if (!message.starts_with(kFile)) return false;
  if (message.find("the file is empty") != std::string::npos) return true;
  const std::size_t colon = message.find(':', kFile.size());
  return colon != std::string::npos && colon > kFile.size() &&
         std::all_of(message.begin() + kFile.size(), message.begin() + static_cast<long>(colon),
                     [](unsigned char c) { return std::isdigit(c); });
}

TEST(PlanFileTest, MutatedPlansGiveAPlacedErrorOrAPlanThatSurvivesWriting) {
  int parsed = 0;
  int refused = 0;
  for (unsigned seed = 0; seed < 8000; ++seed) {
    const std::string text = Mutator(seed).Mutate(std::string(kFull));
    const auto plan = ParsePlan(text, "p.yaml");
    if (!plan) {
      ++refused;
      EXPECT_TRUE(IsPlacedError(plan.error().message)) << plan.error().message << "\n" << text;
      continue;
    }
    ++parsed;
    const auto again = ParsePlan(FormatPlan(*plan), "again.yaml");
    ASSERT_TRUE(again) << again.error().message << "\nseed " << seed << "\n" << text;
    EXPECT_EQ(*again, *plan) << "seed " << seed << "\n" << text;
  }
  // The test means something only while both happen often.
  EXPECT_GT(parsed, 500);
  EXPECT_GT(refused, 2000);
}

}  // namespace
}  // namespace divvy::plan
