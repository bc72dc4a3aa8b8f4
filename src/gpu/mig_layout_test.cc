#include "gpu/mig_layout.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gpu/catalogue.h"

namespace divvy::gpu {
namespace {

const GpuModel& A30() { return **FindGpuModel("A30-24GB"); }
const GpuModel& A100() { return **FindGpuModel("A100-40GB"); }
const GpuModel& RtxPro() { return **FindGpuModel("RTX-PRO-6000-Blackwell-96GB"); }

MigInstance At(const GpuModel& model, const char* profile, int start) {
  return {start, *model.FindProfile(profile)};
}

// A layout with one instance after another placed; each must fit.
MigLayout With(const GpuModel& model, const std::vector<MigInstance>& instances) {
  auto layout = MigLayout::Of(model, instances);
  EXPECT_TRUE(layout) << layout.error().message;
  return layout ? *layout : MigLayout(model);
}

TEST(MigLayoutTest, TwoThreeSliceInstancesLeaveNoRoom) {
  const MigLayout gpu = With(A100(), {At(A100(), "3g.20gb", 0), At(A100(), "3g.20gb", 4)});
  EXPECT_TRUE(gpu.FreeStarts(*A100().FindProfile("1g.5gb")).empty());
  EXPECT_EQ(gpu.free_slices(), 0U);
}

TEST(MigLayoutTest, TheEighthMemorySliceTakesNoSingleOne) {
  MigLayout gpu(A100());
  for (int start = 0; start < 7; ++start) EXPECT_TRUE(gpu.Place(At(A100(), "1g.5gb", start)));
  EXPECT_EQ(gpu.free_slices(), 0x80U);
  EXPECT_FALSE(gpu.CanPlace(At(A100(), "1g.5gb", 7)));
}

TEST(MigLayoutTest, IllegalStartIsTheCallersMistake) {
  MigLayout gpu(A100());
  for (const int start : {-1, 1, 6, 8, 1000}) {
    const auto placed = gpu.Place(At(A100(), "3g.20gb", start));
    ASSERT_FALSE(placed) << "start " << start;
    EXPECT_EQ(placed.error().code, ErrorCode::kInvalidArgument);
    EXPECT_FALSE(gpu.CanPlace(At(A100(), "3g.20gb", start)));
  }
}

TEST(MigLayoutTest, FailedPlaceChangesNothing) {
  MigLayout gpu = With(A100(), {At(A100(), "2g.10gb", 4), At(A100(), "1g.5gb+me", 6)});
  const MigLayout before = gpu;

  const auto overlapping = gpu.Place(At(A100(), "3g.20gb", 4));
  const auto one_too_many = gpu.Place(At(A100(), "1g.5gb+me", 0));
  const auto misplaced = gpu.Place(At(A100(), "2g.10gb", 1));

  EXPECT_EQ(overlapping.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(overlapping.error().message, "3g.20gb at 4 overlaps 2g.10gb at 4");
  EXPECT_EQ(one_too_many.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(misplaced.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(gpu, before);
  EXPECT_EQ(gpu.free_slices(), before.free_slices());
  EXPECT_EQ(gpu.FreeStarts(*A100().FindProfile("3g.20gb")), std::vector<int>{0});
}

TEST(MigLayoutTest, RemoveFreesWhatPlaceTook) {
  MigLayout gpu = With(A100(), {At(A100(), "7g.40gb", 0)});
  EXPECT_EQ(gpu.Remove(0), At(A100(), "7g.40gb", 0));
  EXPECT_EQ(gpu, MigLayout(A100()));
  EXPECT_TRUE(gpu.CanPlace(At(A100(), "7g.40gb", 0)));
  EXPECT_EQ(gpu.Remove(0).error().code, ErrorCode::kNotFound);
}

TEST(MigLayoutTest, RemoveTakesTheInstanceThatBeginsThere) {
  MigLayout gpu = With(A100(), {At(A100(), "4g.20gb", 0), At(A100(), "2g.10gb", 4)});
  EXPECT_EQ(gpu.Remove(1).error().code, ErrorCode::kNotFound) << "inside the 4g";
  EXPECT_TRUE(gpu.Remove(4));
  EXPECT_EQ(gpu.instances(), std::vector{At(A100(), "4g.20gb", 0)});
  EXPECT_EQ(gpu.free_slices(), 0xF0U);
}

TEST(MigLayoutTest, InstancesAreInOrderOfStart) {
  const MigLayout gpu = With(A100(), {At(A100(), "1g.5gb", 6), At(A100(), "2g.10gb", 2),
                                      At(A100(), "1g.5gb", 4), At(A100(), "1g.5gb", 0)});
  std::vector<int> starts;
  for (const MigInstance& instance : gpu.instances()) starts.push_back(instance.start);
  EXPECT_EQ(starts, (std::vector{0, 2, 4, 6}));
}

TEST(MigLayoutTest, CountsLimitWhereSlicesWouldNot) {
  // Four double-memory slots exist, and 2g may use only the first three.
  const MigLayout gpu = With(A100(), {At(A100(), "2g.10gb", 0), At(A100(), "2g.10gb", 2)});
  EXPECT_TRUE(gpu.CanPlace(At(A100(), "2g.10gb", 4)));
  GpuModel strict = A100();
  strict.profiles[static_cast<std::size_t>(*strict.FindProfile("2g.10gb"))].max_instances = 2;
  MigLayout limited(strict);
  EXPECT_TRUE(limited.Place(At(strict, "2g.10gb", 0)));
  EXPECT_TRUE(limited.Place(At(strict, "2g.10gb", 4)));
  EXPECT_TRUE(limited.FreeStarts(*strict.FindProfile("2g.10gb")).empty());
  EXPECT_EQ(limited.Place(At(strict, "2g.10gb", 2)).error().message,
            "A100-40GB holds at most 2 2g.10gb");
}

TEST(MigLayoutTest, MediaExtensionsExistOnce) {
  for (const char* name : {"A30-24GB", "A100-80GB", "H200-141GB", "B300-269GB"}) {
    const GpuModel& model = **FindGpuModel(name);
    const MigProfile& media = model.profiles[1];
    ASSERT_TRUE(media.name.ends_with("+me"));
    const auto profile = static_cast<ProfileIndex>(1);
    MigLayout gpu(model);
    ASSERT_TRUE(gpu.Place({0, profile}));
    EXPECT_TRUE(gpu.FreeStarts(profile).empty()) << name;
    ASSERT_TRUE(gpu.Remove(0));
    EXPECT_EQ(gpu.FreeStarts(profile), media.starts) << name;
  }
}

TEST(MigLayoutTest, EnginesLimitAcrossProfiles) {
  // One JPEG engine and one optical flow engine: two profiles, one of which each
  // may exist, exclude each other.
  MigLayout gpu = With(A30(), {At(A30(), "1g.6gb+me", 0)});
  const auto placed = gpu.Place(At(A30(), "2g.12gb+me", 2));
  ASSERT_FALSE(placed);
  EXPECT_EQ(placed.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(placed.error().message, "A30-24GB has no JPEG engine left for 2g.12gb+me at 2");
  EXPECT_TRUE(gpu.CanPlace(At(A30(), "2g.12gb", 2)));
}

TEST(MigLayoutTest, AllMediaEnginesInOneInstanceLeaveTheOthersWithout) {
  const MigLayout gpu = With(RtxPro(), {At(RtxPro(), "1g.24gb+me.all", 0)});
  for (std::size_t i = 0; i < RtxPro().profiles.size(); ++i) {
    const auto profile = static_cast<ProfileIndex>(i);
    const bool without_media = RtxPro().profiles[i].name.ends_with("-me");
    EXPECT_EQ(!gpu.FreeStarts(profile).empty(), without_media) << RtxPro().profiles[i].name;
  }
}

TEST(MigLayoutTest, EveryKindOfEngineLimitsButCopyEngines) {
  for (int Engines::* kind :
       {&Engines::copy, &Engines::decoders, &Engines::encoders, &Engines::jpeg, &Engines::ofa}) {
    GpuModel model = A100();
    model.engines = Engines{1, 1, 1, 1, 1};
    model.profiles[0].engines = Engines{};
    (*model.profiles[0].engines).*kind = 1;
    const MigLayout gpu = With(model, {At(model, "1g.5gb", 0)});
    EXPECT_EQ(gpu.CanPlace(At(model, "1g.5gb", 1)), kind == &Engines::copy);
  }
}

TEST(MigLayoutTest, UnseenEnginesLimitNothing) {
  const GpuModel& b200 = **FindGpuModel("B200-180GB");
  const MigLayout gpu = With(b200, {At(b200, "1g.23gb+me", 0), At(b200, "3g.90gb", 4)});
  EXPECT_TRUE(gpu.CanPlace(At(b200, "2g.45gb", 2)));
}

TEST(MigLayoutTest, OfNamesTheFirstThingThatIsWrong) {
  const auto layout = MigLayout::Of(A100(), {At(A100(), "4g.20gb", 0), At(A100(), "1g.5gb", 3)});
  ASSERT_FALSE(layout);
  EXPECT_EQ(layout.error().message, "1g.5gb at 3 overlaps 4g.20gb at 0");
}

TEST(MigLayoutTest, LayoutsOfTwoModelsDiffer) {
  EXPECT_NE(MigLayout(A100()), MigLayout(A30()));
  EXPECT_EQ(MigLayout(A100()), MigLayout(A100()));
}

TEST(MigLayoutTest, MultisetsForgetPlacesAndReadWell) {
  const std::vector<MigInstance> a = {At(A100(), "3g.20gb", 0), At(A100(), "1g.5gb", 4),
                                      At(A100(), "1g.5gb", 6)};
  const std::vector<MigInstance> b = {At(A100(), "1g.5gb", 0), At(A100(), "1g.5gb", 1),
                                      At(A100(), "3g.20gb", 4)};
  EXPECT_EQ(ProfilesOf(a), ProfilesOf(b));
  EXPECT_EQ(Describe(A100(), ProfilesOf(a)), "2x 1g.5gb + 3g.20gb");
  EXPECT_EQ(Describe(A100(), std::vector<ProfileIndex>{}), "empty");
  EXPECT_EQ(Describe(A100(), b.back()), "3g.20gb at 4");
}

// Counts every layout that can be built by placing left to right, checking the
// invariant in each by a rule independent of the bitmask.
int CountLayouts(const MigLayout& gpu, int from) {
  int end = 0;
  for (const MigInstance& instance : gpu.instances()) {
    EXPECT_GE(instance.start, end) << "overlap at slice " << instance.start;
    end = instance.start + A100().profile(instance.profile).memory_slices;
  }
  EXPECT_LE(end, A100().memory_slices);

  int count = 1;
  for (const ProfileIndex profile : A100().Select(ProfileSet::kBase)) {
    for (const int start : gpu.FreeStarts(profile)) {
      if (start < from) continue;
      MigLayout next = gpu;
      EXPECT_TRUE(next.Place({start, profile}));
      count += CountLayouts(next, start + 1);
    }
  }
  return count;
}

TEST(MigLayoutTest, NoReachableLayoutOverlaps) {
  // Left half: two pairs, each empty/1g/1g/both/2g, or one 3g, or one 4g. Right
  // half: the same without 4g, and slice 7 is out of reach of 1g. Plus the one 7g.
  constexpr int kLeft = 5 * 5 + 2;
  constexpr int kRight = 5 * 2 + 1;
  EXPECT_EQ(CountLayouts(MigLayout(A100()), 0), kLeft * kRight + 1);
}

}  // namespace
}  // namespace divvy::gpu
