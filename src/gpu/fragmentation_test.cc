#include "gpu/fragmentation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "gpu/brute_force.h"
#include "gpu/catalogue.h"
#include "gpu/enumerate.h"
#include "gpu/open_space.h"

namespace divvy::gpu {
namespace {

const GpuModel& A100() { return **FindGpuModel("A100-40GB"); }

MigLayout Layout(const GpuModel& model, const std::vector<std::pair<const char*, int>>& instances) {
  MigLayout layout(model);
  for (const auto& [name, start] : instances) {
    EXPECT_TRUE(layout.Place({start, *model.FindProfile(name)}));
  }
  return layout;
}

const ProfileRoom& RoomFor(const FreeSpace& space, const GpuModel& model, const char* profile) {
  return space.rooms[static_cast<std::size_t>(*model.FindProfile(profile))];
}

TEST(FragmentationTest, AnEmptyGpuHasRoomForEverythingWhole) {
  const FreeSpace space = MeasureFreeSpace(MigLayout(A100()));
  EXPECT_EQ(space.compute_now, 7);
  EXPECT_EQ(space.compute_after_moves, 7);
  EXPECT_EQ(space.fragmentation(), 0);
  for (const ProfileRoom& room : space.rooms) {
    EXPECT_EQ(room.now, A100().profile(room.profile).max_instances);
    EXPECT_EQ(room.starts, A100().profile(room.profile).starts);
  }
}

TEST(FragmentationTest, AFullGpuIsNotFragmented) {
  const FreeSpace space = MeasureFreeSpace(Layout(A100(), {{"7g.40gb", 0}}));
  EXPECT_EQ(space.slices, 0U);
  EXPECT_EQ(space.compute_after_moves, 0);
  EXPECT_EQ(space.fragmentation(), 0);
}

TEST(FragmentationTest, ScatteredSmallInstancesLockLargeOnesOut) {
  // One 1g in each half: no 3g or 4g fits, yet both would fit beside each other.
  const MigLayout scattered = Layout(A100(), {{"1g.5gb", 1}, {"1g.5gb", 5}});
  const FreeSpace space = MeasureFreeSpace(scattered);
  const ProfileRoom& four = RoomFor(space, A100(), "4g.20gb");
  EXPECT_EQ(four.now, 0);
  EXPECT_TRUE(four.starts.empty());
  EXPECT_EQ(four.after_moves, 1);
  EXPECT_EQ(RoomFor(space, A100(), "1g.5gb").now, 5);
}

TEST(FragmentationTest, AThreeSliceInstanceOnTheWrongSideCostsASlice) {
  // 3g at 0 leaves slices 4 to 7 and three compute slices; at 4 it leaves room
  // for a 4g.
  const FreeSpace space = MeasureFreeSpace(Layout(A100(), {{"3g.20gb", 0}}));
  EXPECT_EQ(space.compute_now, 3);
  EXPECT_EQ(space.compute_after_moves, 4);
  EXPECT_DOUBLE_EQ(space.fragmentation(), 0.25);
}

TEST(FragmentationTest, EnginesCountAsRoom) {
  const GpuModel& rtx = **FindGpuModel("RTX-PRO-6000-Blackwell-96GB");
  const FreeSpace space = MeasureFreeSpace(Layout(rtx, {{"1g.24gb+me.all", 0}}));
  EXPECT_EQ(RoomFor(space, rtx, "1g.24gb").after_moves, 0);
  EXPECT_EQ(RoomFor(space, rtx, "1g.24gb-me").now, 3);
  // Base profiles bring media engines, of which none is left.
  EXPECT_EQ(space.compute_now, 0);
  EXPECT_EQ(space.compute_after_moves, 0);
}

// What `after` has beyond `before`, by profile; empty if `before` has more of any.
std::vector<int> Surplus(const GpuModel& model, const std::vector<MigInstance>& before,
                         const std::vector<MigInstance>& after) {
  std::vector<int> surplus(model.profiles.size());
  for (const MigInstance& instance : after) ++surplus[static_cast<std::size_t>(instance.profile)];
  for (const MigInstance& instance : before) --surplus[static_cast<std::size_t>(instance.profile)];
  if (std::ranges::any_of(surplus, [](int n) { return n < 0; })) return {};
  return surplus;
}

struct Expected {
  std::vector<int> rooms;
  int compute = 0;
};

// The most that any layout adds to `before`, with its instances in place or not.
Expected Best(const brute_force::LayoutGraph& graph, const std::vector<MigInstance>& before,
              bool in_place) {
  const GpuModel& model = graph.model();
  Expected best{std::vector<int>(model.profiles.size()), 0};
  for (const auto& after : graph.layouts()) {
    if (in_place && !std::ranges::includes(after, before)) continue;
    const std::vector<int> surplus = Surplus(model, before, after);
    int compute = 0;
    int kinds = 0;
    bool base = true;
    for (std::size_t i = 0; i < surplus.size(); ++i) {
      compute += surplus[i] * model.profiles[i].compute_slices;
      kinds += surplus[i] > 0 ? 1 : 0;
      base = base && (surplus[i] == 0 || Belongs(model.profiles[i], ProfileSet::kBase));
    }
    if (base) best.compute = std::max(best.compute, compute);
    if (kinds != 1) continue;
    for (std::size_t i = 0; i < surplus.size(); ++i) {
      best.rooms[i] = std::max(best.rooms[i], surplus[i]);
    }
  }
  return best;
}

void ExpectMeasured(const brute_force::LayoutGraph& graph, const std::vector<MigInstance>& layout) {
  const FreeSpace space = MeasureFreeSpace(*MigLayout::Of(graph.model(), layout));
  const Expected now = Best(graph, layout, true);
  const Expected after_moves = Best(graph, layout, false);
  EXPECT_EQ(space.compute_now, now.compute);
  EXPECT_EQ(space.compute_after_moves, after_moves.compute);
  for (std::size_t i = 0; i < space.rooms.size(); ++i) {
    EXPECT_EQ(space.rooms[i].now, now.rooms[i]);
    EXPECT_EQ(space.rooms[i].after_moves, after_moves.rooms[i]);
    EXPECT_EQ(space.rooms[i].starts.empty(), now.rooms[i] == 0);
  }
}

TEST(FragmentationTest, MeasuresWhatTryingEveryLayoutMeasures) {
  std::mt19937 random(7);
  for (const char* name : {"A30-24GB", "A100-40GB", "RTX-PRO-6000-Blackwell-96GB"}) {
    const GpuModel& model = **FindGpuModel(name);
    const brute_force::LayoutGraph graph(model, model.Select(ProfileSet::kAll));
    for (int i = 0; i < 60; ++i) {
      ExpectMeasured(graph, graph.layouts()[random() % graph.layouts().size()]);
      if (testing::Test::HasFailure()) FAIL() << name << " " << i;
    }
  }
}

TEST(OpenSpaceTest, AgreesWithTheFullMeasureWhereEnginesDoNotMatter) {
  const OpenSpace open(A100());
  for (const MigLayout& layout : EnumerateLayouts(A100(), A100().Select(ProfileSet::kBase))) {
    EXPECT_EQ(open.MostCompute(layout.free_slices()), MeasureFreeSpace(layout).compute_now);
  }
}

TEST(OpenSpaceTest, PrefersFreeSlicesThatLargerInstancesCanUse) {
  const OpenSpace open(A100());
  // Six compute slices are left either way; only slice 6 leaves a 4g possible.
  EXPECT_EQ(open.MostCompute(0b1011'1111), open.MostCompute(0b1111'1110));
  EXPECT_GT(open.Score(0b1011'1111), open.Score(0b1111'1110));
  EXPECT_EQ(open.Score(0), 0);
}

}  // namespace
}  // namespace divvy::gpu
