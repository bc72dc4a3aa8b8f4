#include "gpu/enumerate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "gpu/brute_force.h"
#include "gpu/catalogue.h"

namespace divvy::gpu {
namespace {

struct Counts {
  std::size_t layouts;
  std::size_t multisets;
  std::size_t maximal;
  std::size_t maximal_multisets;

  friend bool operator==(const Counts&, const Counts&) = default;
};

void PrintTo(const Counts& c, std::ostream* out) {
  *out << c.layouts << " layouts, " << c.multisets << " multisets, " << c.maximal << " maximal, "
       << c.maximal_multisets << " maximal multisets";
}

Counts CountsOf(const GpuModel& model, ProfileSet set) {
  const auto profiles = model.Select(set);
  const auto all = EnumerateLayouts(model, profiles);
  const auto maximal = EnumerateMaximalLayouts(model, profiles);
  return {all.size(), DistinctMultisets(all).size(), maximal.size(),
          DistinctMultisets(maximal).size()};
}

TEST(EnumerateTest, SevenSliceGpusHaveNvidiasNineteenLayouts) {
  int seen = 0;
  for (const GpuModel& model : Catalogue()) {
    if (model.compute_slices != 7) continue;
    ++seen;
    EXPECT_EQ(CountsOf(model, ProfileSet::kBase), (Counts{298, 37, 19, 14})) << model.name;
  }
  EXPECT_EQ(seen, 12);
}

TEST(EnumerateTest, TheDoubleMemoryProfileQuadruplesThem) {
  for (const GpuModel& model : Catalogue()) {
    if (model.compute_slices != 7) continue;
    const Counts counts = CountsOf(model, ProfileSet::kDouble);
    EXPECT_EQ(counts.maximal, 78U) << model.name;
    EXPECT_EQ(counts.maximal_multisets, 38U) << model.name;
    EXPECT_EQ(counts.multisets, 77U) << model.name;
  }
}

TEST(EnumerateTest, FourSliceGpusHaveFiveLayouts) {
  int seen = 0;
  for (const GpuModel& model : Catalogue()) {
    if (model.compute_slices != 4) continue;
    ++seen;
    // Each half: empty, left, right, both or whole; and the one that takes all.
    EXPECT_EQ(CountsOf(model, ProfileSet::kBase), (Counts{5 * 5 + 1, 9, 5, 4})) << model.name;
  }
  EXPECT_EQ(seen, 2);
}

// Every subset of all places, judged by rules of its own.
std::vector<std::vector<MigInstance>> LegalSubsets(const GpuModel& model, ProfileSet set) {
  const auto places = brute_force::PlacesOf(model, model.Select(set));
  std::vector<std::vector<MigInstance>> legal;
  for (std::uint32_t subset = 0; subset >> places.size() == 0; ++subset) {
    std::vector<MigInstance> instances;
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (subset >> i & 1) instances.push_back(places[i]);
    }
    if (brute_force::IsLegal(model, instances)) legal.push_back(std::move(instances));
  }
  std::ranges::sort(legal);
  return legal;
}

void ExpectSameAsBruteForce(const GpuModel& model, ProfileSet set) {
  const auto legal = LegalSubsets(model, set);
  std::vector<std::vector<MigInstance>> maximal;
  for (const auto& layout : legal) {
    const bool grows = std::ranges::any_of(legal, [&](const auto& other) {
      return other.size() > layout.size() && std::ranges::includes(other, layout);
    });
    if (!grows) maximal.push_back(layout);
  }

  const auto instances_of = [](const std::vector<MigLayout>& layouts) {
    std::vector<std::vector<MigInstance>> all;
    for (const MigLayout& layout : layouts) all.push_back(layout.instances());
    return all;
  };
  // Equal with order: both are lexicographic.
  EXPECT_EQ(instances_of(EnumerateLayouts(model, model.Select(set))), legal) << model.name;
  EXPECT_EQ(instances_of(EnumerateMaximalLayouts(model, model.Select(set))), maximal) << model.name;
}

TEST(EnumerateTest, FindsWhatTryingEverySubsetFinds) {
  ExpectSameAsBruteForce(**FindGpuModel("A30-24GB"), ProfileSet::kAll);
  ExpectSameAsBruteForce(**FindGpuModel("A100-40GB"), ProfileSet::kBase);
  ExpectSameAsBruteForce(**FindGpuModel("RTX-PRO-6000-Blackwell-96GB"), ProfileSet::kBase);
}

TEST(EnumerateTest, AgreesWithGrowthOnTheLargestProfileSets) {
  for (const char* name : {"A100-80GB", "H200-141GB", "RTX-PRO-6000-Blackwell-96GB"}) {
    const GpuModel& model = **FindGpuModel(name);
    const auto profiles = model.Select(ProfileSet::kAll);
    auto expected = brute_force::LayoutGraph(model, profiles).layouts();
    std::ranges::sort(expected);
    const auto layouts = EnumerateLayouts(model, profiles);
    ASSERT_EQ(layouts.size(), expected.size()) << name;
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      EXPECT_EQ(layouts[i].instances(), expected[i]) << name;
    }
  }
}

TEST(EnumerateTest, OrderAndRepetitionOfTheProfilesDoNotMatter) {
  const GpuModel& model = **FindGpuModel("A30-24GB");
  auto profiles = model.Select(ProfileSet::kBase);
  const auto expected = EnumerateLayouts(model, profiles);
  std::ranges::reverse(profiles);
  profiles.push_back(profiles.front());
  EXPECT_EQ(EnumerateLayouts(model, profiles), expected);
}

TEST(EnumerateTest, NoProfilesLeaveTheEmptyLayout) {
  const GpuModel& model = **FindGpuModel("A30-24GB");
  const auto layouts = EnumerateLayouts(model, {});
  ASSERT_EQ(layouts.size(), 1U);
  EXPECT_TRUE(layouts.front().instances().empty());
  EXPECT_TRUE(DistinctMultisets(layouts).empty());
}

}  // namespace
}  // namespace divvy::gpu
