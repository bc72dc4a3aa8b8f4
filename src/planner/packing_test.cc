#include "planner/packing.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "gpu/brute_force.h"
#include "planner/layout_columns.h"
#include "planner/test_problems.h"

namespace divvy::planner {
namespace {

using gpu::MigInstance;
using gpu::ProfileIndex;
using testing::Between;
using testing::Gpu;
using testing::ProfileOf;

std::vector<ProfileIndex> Named(const gpu::GpuModel& gpu, std::vector<std::string_view> names) {
  std::vector<ProfileIndex> profiles;
  for (const std::string_view name : names) profiles.push_back(ProfileOf(gpu, name));
  return profiles;
}

TEST(PackingTest, LargeAndSmallShareGpusWhateverTheirOrder) {
  const gpu::GpuModel& gpu = Gpu("A100-80GB");
  const auto wanted =
      Named(gpu, {"1g.10gb", "3g.40gb", "2g.20gb", "4g.40gb", "1g.10gb", "2g.20gb"});
  const auto packed = Pack(gpu, 2, wanted);  // 4 + 3 and 2 + 2 + 1 + 1.
  for (const auto& entry : packed) EXPECT_TRUE(entry);
  EXPECT_EQ(packed[3]->gpu, packed[1]->gpu);
}

TEST(PackingTest, WhatFindsNoRoomIsEmpty) {
  const gpu::GpuModel& gpu = Gpu("A100-80GB");
  const auto packed = Pack(gpu, 1, Named(gpu, {"1g.10gb", "7g.80gb"}));
  EXPECT_FALSE(packed[0]);
  EXPECT_TRUE(packed[1]);
  EXPECT_FALSE(Pack(gpu, 0, Named(gpu, {"1g.10gb"}))[0]);
  EXPECT_TRUE(Pack(gpu, 3, {}).empty());
}

TEST(PackingTest, ALoneSmallInstanceLeavesRoomForALargeOne) {
  const gpu::GpuModel& gpu = Gpu("A100-80GB");
  const auto packed = Pack(gpu, 1, Named(gpu, {"1g.10gb"}));
  EXPECT_EQ(packed[0]->instance.start, 6);  // At 0 no 4g would fit beside it.
}

// Layouts are legal, answers are of the profiles asked for, and a GPU is left out
// or opened only for a reason.
TEST(PackingTest, RandomWishesAreLegalAndOpenNoGpuInVain) {
  Random random(5);
  for (int i = 0; i < 60; ++i) {
    const gpu::GpuModel& gpu = Gpu(i % 2 == 0 ? "A100-80GB" : "H200");
    const auto base = gpu.Select(i % 3 == 0 ? gpu::ProfileSet::kDouble : gpu::ProfileSet::kBase);
    std::vector<ProfileIndex> wanted;
    for (int n = Between(random, 0, 25); n > 0; --n) {
      wanted.push_back(base[random.Below(base.size())]);
    }
    const int gpus = Between(random, 1, 8);
    const auto packed = Pack(gpu, gpus, wanted);
    ASSERT_EQ(packed.size(), wanted.size());
    std::map<int, std::vector<MigInstance>> layouts;
    for (std::size_t w = 0; w < wanted.size(); ++w) {
      if (!packed[w]) continue;
      EXPECT_EQ(packed[w]->instance.profile, wanted[w]);
      layouts[packed[w]->gpu].push_back(packed[w]->instance);
    }
    int opened = 0;
    for (const auto& [index, layout] : layouts) {
      EXPECT_EQ(index, opened++) << "GPUs are opened in order";
      EXPECT_LT(index, gpus);
      EXPECT_TRUE(gpu::brute_force::IsLegal(gpu, layout)) << "case " << i;
    }
    for (std::size_t w = 0; w < wanted.size(); ++w) {
      if (packed[w]) continue;
      EXPECT_EQ(opened, gpus) << "somebody stands while a GPU is empty";
      for (const auto& [index, layout] : layouts) {
        const auto legal = gpu::MigLayout::Of(gpu, layout);
        EXPECT_TRUE(legal->FreeStarts(wanted[w]).empty()) << "case " << i;
      }
    }
  }
}

TEST(LayoutColumnsTest, EveryLegalSetIsPartOfAColumnAndNoColumnOfAnother) {
  for (const std::string_view name : {"A30", "A100-80GB", "H200"}) {
    const gpu::GpuModel& gpu = Gpu(name);
    const auto base = gpu.Select(gpu::ProfileSet::kBase);
    const auto columns = LayoutColumns(gpu, base);
    const gpu::brute_force::LayoutGraph graph(gpu, base);
    const auto counts_of = [&](const std::vector<MigInstance>& layout) {
      std::vector<int> counts(gpu.profiles.size());
      for (const MigInstance& i : layout) ++counts[static_cast<std::size_t>(i.profile)];
      return counts;
    };
    const auto within = [](const std::vector<int>& a, const std::vector<int>& b) {
      return std::ranges::equal(a, b, std::ranges::less_equal());
    };
    for (const auto& layout : graph.layouts()) {
      EXPECT_TRUE(std::ranges::any_of(columns, [&](const LayoutColumn& column) {
        return within(counts_of(layout), column.counts);
      }));
    }
    for (const LayoutColumn& column : columns) {
      EXPECT_EQ(column.counts, counts_of(column.layout.instances()));
      EXPECT_EQ(std::ranges::count_if(
                    columns,
                    [&](const LayoutColumn& other) { return within(column.counts, other.counts); }),
                1);
    }
  }
}

}  // namespace
}  // namespace divvy::planner
