#include "control/share_packing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "control/test_estate.h"

namespace divvy::control {
namespace {

using planner::Work;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

Cell Serves(int gpu, int tenths, std::size_t tenant) {
  return {gpu, Share{tenths}, {Work::Kind::kServe, tenant, 0}};
}

Cell Retrains(int gpu, int tenths, std::size_t tenant, std::size_t option = 0) {
  return {gpu, Share{tenths}, {Work::Kind::kRetrain, tenant, option}};
}

TEST(SharePackingTest, FillsGpusWithoutSplittingWhatFits) {
  const Estate estate = testing::MakeTestEstate(2, {{}, {}, {}, {}});
  const auto cells = PackShares(estate, testing::FirstView(estate), {{8, 6, 4, 2}});
  EXPECT_THAT(cells, UnorderedElementsAre(Serves(0, 8, 0), Serves(1, 6, 1), Serves(1, 4, 2),
                                          Serves(0, 2, 3)));
}

TEST(SharePackingTest, SplitsWhatIsLargerThanAGpu) {
  const Estate estate = testing::MakeTestEstate(2, {{}, {}});
  const auto cells = PackShares(estate, testing::FirstView(estate), {{14, 6}});
  EXPECT_THAT(cells, UnorderedElementsAre(Serves(0, 10, 0), Serves(1, 4, 0), Serves(1, 6, 1)));
}

TEST(SharePackingTest, GrowsBesideWhatRunsInsteadOfRestartingIt) {
  const Estate estate = testing::MakeTestEstate(2, {{}, {}});
  View view = testing::FirstView(estate);
  view.slot = 50;
  view.cells = testing::Running({Serves(0, 5, 0), Serves(1, 4, 1)});
  EXPECT_THAT(PackShares(estate, view, {{7, 4}}),
              UnorderedElementsAre(Serves(0, 5, 0), Serves(1, 2, 0), Serves(1, 4, 1)));
}

TEST(SharePackingTest, DropsAPieceBeforeItShrinksOne) {
  const Estate estate = testing::MakeTestEstate(2, {{}});
  View view = testing::FirstView(estate);
  view.slot = 50;
  view.cells = testing::Running({Serves(0, 5, 0), Serves(1, 2, 0)});
  EXPECT_THAT(PackShares(estate, view, {{5}}), UnorderedElementsAre(Serves(0, 5, 0)));
}

TEST(SharePackingTest, RetrainingStaysOnItsGpuWhenItGrows) {
  const Estate estate = testing::MakeTestEstate(2, {{.training = 10}, {}});
  View view = testing::FirstView(estate);
  view.slot = 50;
  view.cells = testing::Running({Retrains(1, 3, 0), Serves(1, 7, 1), Serves(0, 2, 0)});
  EXPECT_THAT(PackShares(estate, view, {{2, 4}, {{0, 0, 6}}}),
              UnorderedElementsAre(Retrains(1, 6, 0), Serves(1, 4, 1), Serves(0, 2, 0)));
}

TEST(SharePackingTest, ServicesMakeRoomForARetrainingOnlyIfTheyShall) {
  const Estate estate = testing::MakeTestEstate(2, {{.training = 10}, {}});
  View view = testing::FirstView(estate);
  view.slot = 50;
  view.cells = testing::Running({Serves(0, 6, 0), Serves(1, 6, 1)});
  ShareWish wish{{6, 6}, {{0, 0, 8}}};
  EXPECT_THAT(PackShares(estate, view, wish), ::testing::Contains(Retrains(0, 8, 0)));
  wish.make_room = false;
  EXPECT_THAT(PackShares(estate, view, wish),
              UnorderedElementsAre(Serves(0, 6, 0), Serves(1, 6, 1), Retrains(0, 4, 0)));
}

TEST(SharePackingTest, NobodyServesOnLessThanItCan) {
  const Estate estate = testing::MakeTestEstate(1, {{.smallest = 0.3}});
  EXPECT_THAT(PackShares(estate, testing::FirstView(estate), {{2}}), IsEmpty());
}

// Any cells, any wish that can be: what comes out is legal, gives nobody more than was
// wished, and leaves all as it is when that is the wish.
TEST(SharePackingTest, IsLegalFromAnywhere) {
  Random random(1);
  for (int i = 0; i < 2000; ++i) {
    const int gpus = 1 + static_cast<int>(random.Below(3));
    const Estate estate =
        testing::RandomEstate(gpus, 1 + static_cast<int>(random.Below(4)), random);
    View view = testing::FirstView(estate);
    const auto draw = [&](int left) {
      ShareWish wish{std::vector<int>(estate.tenants.size())};
      for (std::size_t m = 0; m < estate.tenants.size(); ++m) {
        if (estate.tenants[m].learning && left > 0 && random.Uniform() < 0.5) {
          const int most = std::min(left, 10);
          const int tenths = 1 + static_cast<int>(random.Below(static_cast<std::uint64_t>(most)));
          wish.retraining.push_back({m, random.Below(2), tenths});
          left -= tenths;
        }
        wish.serving[m] = static_cast<int>(random.Below(static_cast<std::uint64_t>(left) + 1));
        left -= wish.serving[m];
      }
      wish.make_room = random.Uniform() < 0.5;
      return wish;
    };
    for (int step = 0; step < 3; ++step) {
      const ShareWish wish = draw(10 * gpus);
      const std::vector<Cell> cells = PackShares(estate, view, wish);
      ASSERT_EQ(FindFault(estate, view, cells), std::nullopt) << i;
      std::vector<int> given(estate.tenants.size());
      for (const Cell& cell : cells) {
        if (cell.work.kind == Work::Kind::kServe) {
          given[cell.work.tenant] += std::get<Share>(cell.where).tenths;
        }
      }
      for (std::size_t m = 0; m < given.size(); ++m) ASSERT_LE(given[m], wish.serving[m]) << i;
      view.slot += 5;
      view.cells = testing::Running(cells, 0.3);
      ShareWish same{given};
      for (const Cell& cell : cells) {
        if (cell.work.kind == Work::Kind::kServe) continue;
        same.retraining.push_back(
            {cell.work.tenant, cell.work.retraining, std::get<Share>(cell.where).tenths});
      }
      ASSERT_THAT(PackShares(estate, view, same), ::testing::UnorderedElementsAreArray(cells)) << i;
    }
  }
}

}  // namespace
}  // namespace divvy::control
