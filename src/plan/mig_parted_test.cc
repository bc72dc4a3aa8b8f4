#include "plan/mig_parted.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plan/plan_file.h"

namespace divvy::plan {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Plan Parsed(std::string_view gpus) {
  const auto plan = ParsePlan("version: 1\ngpus:\n" + std::string(gpus), "p.yaml");
  EXPECT_TRUE(plan) << plan.error().message;
  return plan.value_or(Plan{});
}

constexpr std::string_view kSix = R"(
  - {gpu: 5, kind: A100-40GB, instances: [{profile: 1g.5gb, start: 6}, {profile: 3g.20gb}]}
  - {gpu: 0, kind: A100-40GB, instances: [{profile: 3g.20gb, runs: [{job: j}]}, {profile: 1g.5gb}]}
  - {gpu: 1, kind: A100-40GB, instances: []}
  - {gpu: 2, kind: A100-40GB, mig: false}
  - {gpu: 3, kind: A100-40GB, mig: false, runs: [{model: m}]}
  - {gpu: 4, kind: A100-40GB, instances: [{profile: 1g.5gb+me}]}
)";

std::string WithoutComments(const std::string& text) {
  std::string kept;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at) + 1;
    const std::string line = text.substr(at, end - at);
    if (line.find_first_not_of(' ') != line.find('#')) kept += line;
    at = end;
  }
  return kept;
}

TEST(MigPartedExportTest, GpusWithEqualContentShareAnEntry) {
  const auto text = ExportMigParted(Parsed(kSix), "mixed+me");
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(WithoutComments(*text), R"(version: v1
mig-configs:
  "mixed.me":
    - devices: [0, 5]
      mig-enabled: true
      mig-devices:
        "1g.5gb": 1
        "3g.20gb": 1
    - devices: [1]
      mig-enabled: true
      mig-devices: {}
    - devices: [2, 3]
      mig-enabled: false
    - devices: [4]
      mig-enabled: true
      mig-devices:
        "1g.5gb+me": 1
)");
  EXPECT_THAT(*text, HasSubstr("#   - places"));
  EXPECT_THAT(*text, HasSubstr("#   - workloads"));
}

TEST(MigPartedExportTest, UuidIsRefusedByName) {
  const auto text =
      ExportMigParted(Parsed("  - {gpu: GPU-ab12, kind: A30-24GB, mig: false}\n"), "x");
  ASSERT_FALSE(text);
  EXPECT_THAT(text.error().message, StartsWith("GPU-ab12: mig-parted knows GPUs by index only"));
}

TEST(MigPartedExportTest, NameMustBeALabelValue) {
  const Plan plan = Parsed("  - {gpu: 0, kind: A30-24GB, mig: false}\n");
  for (const std::string& bad :
       {std::string(), std::string("a b"), std::string("-a"), std::string("a."), std::string("ü"),
        std::string("a\"b"), std::string(64, 'a')}) {
    EXPECT_FALSE(ExportMigParted(plan, bad)) << bad;
  }
  for (const std::string& good :
       {std::string("1"), std::string("all-1g.5gb+me"), std::string("A_b"), std::string(63, 'a')}) {
    EXPECT_TRUE(ExportMigParted(plan, good)) << good;
  }
}

TEST(MigPartedExportTest, APlanWithoutGpusCannotBeAConfig) {
  EXPECT_FALSE(ExportMigParted(Plan{}, "x"));
}

TEST(MigPartedImportTest, ReadsBackWhatWasWritten) {
  const auto text = ExportMigParted(Parsed(kSix), "123");
  ASSERT_TRUE(text) << text.error().message;
  const auto plan = ImportMigParted(*text, "m.yaml", {.config = "123", .kind = "A100-40GB"});
  ASSERT_TRUE(plan) << plan.error().message << *text;
  // By index, without places and workloads; profiles in mig-parted's order.
  EXPECT_EQ(*plan, Parsed(R"(
  - {gpu: 0, kind: A100-40GB, instances: [{profile: 1g.5gb}, {profile: 3g.20gb}]}
  - {gpu: 1, kind: A100-40GB, instances: []}
  - {gpu: 2, kind: A100-40GB, mig: false}
  - {gpu: 3, kind: A100-40GB, mig: false}
  - {gpu: 4, kind: A100-40GB, instances: [{profile: 1g.5gb+me}]}
  - {gpu: 5, kind: A100-40GB, instances: [{profile: 1g.5gb}, {profile: 3g.20gb}]}
)"));
}

// The form of NVIDIA's own files: one config for several kinds of GPU.
constexpr std::string_view kBalanced = R"(version: v1
mig-configs:
  all-disabled:
    - devices: all
      mig-enabled: false
  all-balanced:
    - device-filter: ["0x20B010DE", "0x20B110DE"]
      devices: all
      mig-enabled: true
      mig-devices:
        "1g.5gb": 2
        "2g.10gb": 1
        "3g.20gb": 1
    - device-filter: "0x20B710DE"
      devices: all
      mig-enabled: true
      mig-devices:
        "1g.6gb": 2
        "2g.12gb": 1
  only-a30:
    - device-filter: "0x20b710de"
      devices: [1]
      mig-enabled: true
      mig-devices: {"1g.6gb": 0, "2g.12gb": 2}
)";

std::string ImportError(std::string_view text, const MigPartedSelection& selection) {
  const auto plan = ImportMigParted(text, "m.yaml", selection);
  return plan ? "no error" : plan.error().message;
}

TEST(MigPartedImportTest, EntriesForOtherGpusAreSkipped) {
  const auto plan =
      ImportMigParted(kBalanced, "m.yaml", {.config = "all-balanced", .kind = "a30", .gpus = 2});
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_EQ(plan->gpus.size(), 2U);
  EXPECT_EQ(plan->gpus[1], Parsed("  - {gpu: 1, kind: A30-24GB, instances: [{profile: 1g.6gb, "
                                  "count: 2}, {profile: 2g.12gb}]}\n")
                               .gpus[0]);
  EXPECT_EQ(plan->gpus[1].instances[2].line.number, 19);
  EXPECT_EQ(ImportError(kBalanced, {.config = "all-balanced", .kind = "H200", .gpus = 2}),
            "m.yaml: config 'all-balanced' sets no H200-141GB");
}

TEST(MigPartedImportTest, FiltersThatLeaveOneKindNameIt) {
  const auto plan = ImportMigParted(kBalanced, "m.yaml", {.config = "only-a30"});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(*plan,
            Parsed("  - {gpu: 1, kind: A30-24GB, instances: [{profile: 2g.12gb, count: 2}]}"));
  EXPECT_EQ(ImportError(kBalanced, {.config = "all-balanced", .gpus = 1}),
            "config 'all-balanced' does not say for which GPU it is: its filters allow A30-24GB or "
            "A100-40GB; name the kind (--kind)");
  EXPECT_EQ(ImportError(kBalanced, {.config = "all-disabled", .gpus = 1}),
            "config 'all-disabled' does not say for which GPU it is; name the kind (--kind)");
}

TEST(MigPartedImportTest, AllNeedsTheNumberOfGpus) {
  EXPECT_EQ(ImportError(kBalanced, {.config = "all-disabled", .kind = "A30"}),
            "m.yaml:4: devices: 'all' needs the number of GPUs in the node (--gpus)");
  EXPECT_EQ(ImportError(kBalanced, {.config = "only-a30", .gpus = 1}),
            "m.yaml:22: devices: there is no GPU 1 in a node of 1");
  EXPECT_EQ(ImportError(kBalanced, {.config = "only-a30", .gpus = 2}), "no error");
}

TEST(MigPartedImportTest, UnknownConfigNamesTheNearest) {
  EXPECT_EQ(ImportError(kBalanced, {.config = "all-balance", .kind = "A30"}),
            "m.yaml has no config 'all-balance'; did you mean 'all-balanced'?");
  EXPECT_EQ(ImportError(kBalanced, {.config = "zzzzzzzzzzzzzzzz", .kind = "A30"}),
            "m.yaml has no config 'zzzzzzzzzzzzzzzz'; it has all-disabled, all-balanced or "
            "only-a30");
}

// The error of a file with one config "c" of these entries, the first on line 4,
// for a node of four A30.
std::string EntryError(const std::string& entries) {
  return ImportError("version: v1\nmig-configs:\n  c:\n" + entries,
                     {.config = "c", .kind = "A30-24GB", .gpus = 4});
}

TEST(MigPartedImportTest, FormIsAsStrictAsMigParted) {
  EXPECT_EQ(EntryError("    - {devices: all, mig-enabled: true, mig-devices: {}}\n"), "no error");
  EXPECT_EQ(EntryError("    - {devices: all, mig-enabled: false, mig-devices: {}}\n"), "no error");
  EXPECT_EQ(EntryError("    - {devices: all, mig-enabled: true}\n"),
            "m.yaml:4: an entry with 'mig-enabled: true' needs the key 'mig-devices'");
  EXPECT_EQ(EntryError("    - {devices: all, mig-enabled: false, mig-devices: {1g.6gb: 1}}\n"),
            "m.yaml:4: mig-devices: contradicts 'mig-enabled: false'");
  EXPECT_EQ(EntryError("    - {devices: all, mig-enabled: true, mig-devices: {1g.6gb: 0}}\n"),
            "m.yaml:4: mig-devices: all counts are 0; write {} for no instances");
  EXPECT_THAT(EntryError("    - {devices: all, mig-enabled: true, mig-devices: {1g.6gb: -1}}\n"),
              StartsWith("m.yaml:4: 1g.6gb: '-1' is not a whole number"));
  EXPECT_EQ(EntryError("    - {devices: all}\n"),
            "m.yaml:4: an entry of a config needs the key 'mig-enabled'");
  EXPECT_EQ(EntryError("    - {mig-enabled: false}\n"),
            "m.yaml:4: an entry of a config needs the key 'devices'");
  EXPECT_EQ(EntryError("    - {devices: all, mig_enabled: false}\n"),
            "m.yaml:4: an entry of a config has no key 'mig_enabled'; did you mean 'mig-enabled'?");
  EXPECT_THAT(EntryError("    - {devices: some, mig-enabled: false}\n"),
              HasSubstr("devices: is 'all' or a list"));
  EXPECT_THAT(EntryError("    - {devices: all, mig-enabled: false, device-filter: 20B710DE}\n"),
              HasSubstr("device-filter: '20B710DE' is not a PCI id"));
  EXPECT_EQ(EntryError("    []\n"), "m.yaml:3: config 'c' has no entries");
}

TEST(MigPartedImportTest, TheWholeFileIsChecked) {
  const MigPartedSelection a30{.config = "c", .kind = "A30-24GB", .gpus = 4};
  EXPECT_EQ(ImportError("version: v2\nmig-configs: {c: []}\n", a30),
            "m.yaml:1: version: 'v2' is unknown; it is v1");
  EXPECT_EQ(ImportError("mig-configs: {c: []}\n", a30),
            "m.yaml:1: a mig-parted file needs the key 'version'");
  EXPECT_EQ(ImportError("version: v1\nmig-configs: {}\n", a30),
            "m.yaml:2: mig-configs: is a mapping with at least one config");
  EXPECT_EQ(
      EntryError("    - {devices: all, mig-enabled: false}\n  other:\n    - {devices: all}\n"),
      "m.yaml:6: an entry of a config needs the key 'mig-enabled'");
  EXPECT_EQ(ImportError("", a30),
            "m.yaml: the file is empty; a mig-parted file begins with 'version: v1'");
}

TEST(MigPartedImportTest, ProfilesAreThoseOfTheKind) {
  EXPECT_EQ(EntryError("    - {devices: all, mig-enabled: true, mig-devices: {1g.5gb: 1}}\n"),
            "m.yaml:4: A30-24GB has no profile '1g.5gb'; did you mean '1g.6gb'?");
  EXPECT_THAT(EntryError("    - {devices: all, mig-enabled: true, mig-devices: {1c.2g.12gb: 1}}\n"),
              HasSubstr("one compute instance of its full size"));
}

TEST(MigPartedImportTest, ProfilesWithACountOfZeroDoNotMatter) {
  EXPECT_EQ(EntryError("    - {devices: all, mig-enabled: true, "
                       "mig-devices: {1g.5gb: 0, 1g.6gb: 1}}\n"),
            "no error");
}

TEST(MigPartedImportTest, TwoEntriesForOneGpuAreRefused) {
  EXPECT_EQ(EntryError("    - {devices: [0, 2], mig-enabled: false}\n"
                       "    - {devices: [1, 2], mig-enabled: true, mig-devices: {}}\n"),
            "m.yaml:5: devices: the entry on line 5 sets GPU 2, which the entry on line 4 sets "
            "already");
  EXPECT_THAT(EntryError("    - {devices: [1, 1], mig-enabled: false}\n"), HasSubstr("sets GPU 1"));
}

}  // namespace
}  // namespace divvy::plan
