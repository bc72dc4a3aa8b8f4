#include "device/change.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gpu/catalogue.h"

namespace divvy::device {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const gpu::GpuModel& H200() { return **gpu::FindGpuModel("H200-141GB"); }

const gpu::MigProfile& Profile(const std::string& name) {
  return H200().profile(*H200().FindProfile(name));
}

// A node's GPU as ReadGpu would give it: whole compute instances, nobody busy.
GpuState Gpu(const std::vector<std::pair<std::string, int>>& instances) {
  GpuState gpu{};
  gpu.uuid = "GPU-test";
  gpu.mig_capable = gpu.mig_enabled = gpu.mig_pending = true;
  gpu.model = H200();
  unsigned id = 10;
  for (const auto& [profile, start] : instances) {
    gpu.instances.push_back({.id = id,
                             .instance = {start, *H200().FindProfile(profile)},
                             .compute = {{0, {0, 0, 1}, "MIG-" + std::to_string(id)}},
                             .processes = {}});
    ++id;
  }
  return gpu;
}

GpuTarget Target(const std::vector<std::pair<std::string, int>>& instances) {
  GpuTarget target{"GPU-test", true, {}};
  for (const auto& [profile, start] : instances) {
    const gpu::MigProfile& p = Profile(profile);
    target.instances.push_back(
        {p.nvml_id, profile, start, p.memory_slices, p.compute_slices, std::nullopt});
  }
  return target;
}

std::vector<std::string> Words(const Result<std::vector<Step>>& steps) {
  std::vector<std::string> words;
  if (!steps) return {"error: " + steps.error().message};
  for (const Step& step : *steps) words.push_back(Describe(step));
  return words;
}

TEST(ChangeTest, AsItIsNeedsNoSteps) {
  const GpuState now = Gpu({{"1g.18gb", 0}, {"3g.71gb", 4}});
  EXPECT_TRUE(Matches(now, AsItIs(now)));
  EXPECT_THAT(Words(StepsTowards(now, AsItIs(now))), ElementsAre());
}

TEST(ChangeTest, CreatesInFreeSpaceBeforeItDestroys) {
  const GpuState now = Gpu({{"2g.35gb", 0}});
  EXPECT_THAT(Words(StepsTowards(now, Target({{"1g.18gb", 0}, {"3g.71gb", 4}}))),
              ElementsAre("create 3g.71gb at 4", "destroy 2g.35gb at 0", "create 1g.18gb at 0"));
}

TEST(ChangeTest, BusyInstanceThatMustGoIsAnErrorThatNamesIt) {
  GpuState now = Gpu({{"2g.35gb", 0}});
  now.instances[0].processes = {{1234, "python", std::nullopt}};
  const auto steps = StepsTowards(now, Target({{"1g.18gb", 0}}));
  ASSERT_FALSE(steps);
  EXPECT_EQ(steps.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(steps.error().message, HasSubstr("2g.35gb at 0"));
}

TEST(ChangeTest, AnInstanceNvmlWillNotLookIntoCountsAsBusy) {
  GpuState now = Gpu({{"2g.35gb", 0}});
  now.instances[0].processes_known = false;
  EXPECT_FALSE(StepsTowards(now, Target({{"1g.18gb", 0}})));
}

TEST(ChangeTest, GpuInstanceWithoutComputeInstanceIsCompletedInPlace) {
  GpuState now = Gpu({{"1g.18gb", 0}});
  now.instances[0].compute.clear();
  const GpuTarget target = Target({{"1g.18gb", 0}});
  EXPECT_FALSE(Matches(now, target));
  EXPECT_THAT(Words(StepsTowards(now, target)),
              ElementsAre("set up compute instances of 1g.18gb at 0"));
}

TEST(ChangeTest, SplitComputeInstancesAreRestoredAsTheyWere) {
  GpuState now = Gpu({{"2g.35gb", 0}});
  now.instances[0].compute = {{0, {0, 0, 1}, "MIG-a"}, {1, {0, 1, 1}, "MIG-b"}};
  const GpuTarget before = AsItIs(now);
  now.instances[0].compute.pop_back();
  EXPECT_FALSE(Matches(now, before));
  EXPECT_THAT(Words(StepsTowards(now, before)),
              ElementsAre("set up compute instances of 2g.35gb at 0"));
}

TEST(ChangeTest, BusyInstanceMayGainAComputeInstanceButNotLoseOne) {
  GpuState now = Gpu({{"2g.35gb", 0}});
  now.instances[0].compute = {{0, {0, 0, 1}, "MIG-a"}};
  now.instances[0].processes = {{1234, "python", std::nullopt}};
  GpuTarget target = Target({{"2g.35gb", 0}});
  target.instances[0].compute = {{{0, 0, 1}, {0, 1, 1}}};
  EXPECT_TRUE(StepsTowards(now, target));
  target.instances[0].compute = {{{1, 0, 2}}};
  EXPECT_FALSE(StepsTowards(now, target));
}

TEST(ChangeTest, EnablingMigComesFirstDisablingLast) {
  GpuState off = Gpu({});
  off.mig_enabled = off.mig_pending = false;
  EXPECT_THAT(Words(StepsTowards(off, Target({{"7g.141gb", 0}}))),
              ElementsAre("enable MIG mode", "create 7g.141gb at 0"));
  const GpuState on = Gpu({{"7g.141gb", 0}});
  EXPECT_THAT(Words(StepsTowards(on, {"GPU-test", false, {}})),
              ElementsAre("destroy 7g.141gb at 0", "disable MIG mode"));
}

TEST(ChangeTest, ModeDoesNotChangeUnderAProcess) {
  GpuState off = Gpu({});
  off.mig_enabled = off.mig_pending = false;
  off.processes = {{77, "train", std::nullopt}};
  const auto steps = StepsTowards(off, Target({}));
  ASSERT_FALSE(steps);
  EXPECT_THAT(steps.error().message, HasSubstr("process 77 (train)"));

  GpuState on = Gpu({{"7g.141gb", 0}});
  on.instances[0].processes = {{78, "", std::nullopt}};
  EXPECT_FALSE(StepsTowards(on, {"GPU-test", false, {}}));
}

TEST(ChangeTest, APendingModeIsTakenBack) {
  GpuState now = Gpu({{"1g.18gb", 0}});
  now.mig_pending = false;
  EXPECT_FALSE(Matches(now, AsItIs(now)));
  EXPECT_THAT(Words(StepsTowards(now, AsItIs(now))), ElementsAre("enable MIG mode"));
}

TEST(ChangeTest, ALayoutThatCannotBeIsTheDriversFaultNotOurs) {
  const GpuState now = Gpu({{"3g.71gb", 4}, {"1g.18gb", 5}});
  const auto steps = StepsTowards(now, Target({}));
  ASSERT_FALSE(steps);
  EXPECT_EQ(steps.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(steps.error().message, HasSubstr("1g.18gb at 5 overlaps 3g.71gb at 4"));
}

TEST(ChangeTest, AGpuWithoutKnownProfilesIsRefusedNotCrashedOn) {
  GpuState now = Gpu({});
  now.model.profiles.clear();
  now.model.memory_slices = 0;
  const auto steps = StepsTowards(now, Target({}));
  ASSERT_FALSE(steps);
  EXPECT_EQ(steps.error().code, ErrorCode::kUnsupported);
}

TEST(ChangeTest, ProfileOfAnotherGpuIsTheCallersMistake) {
  GpuTarget target = Target({{"1g.18gb", 0}});
  target.instances[0].profile_id = 12345;
  const auto steps = StepsTowards(Gpu({}), target);
  ASSERT_FALSE(steps);
  EXPECT_EQ(steps.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace divvy::device
