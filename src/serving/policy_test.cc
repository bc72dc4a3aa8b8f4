#include "serving/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "serving/test_harness.h"

namespace divvy::serving {
namespace {

using testing::HasSubstr;

TEST(ElsaTest, TakesTheSmallestThatIsInTimeThenTheSoonest) {
  Harness harness(SmallAndLarge(), "elsa");
  harness.Submit(1, 0, 25, 1);  // Small: 10 < 25.
  EXPECT_EQ(harness.starts[0].lane, LaneId{0});
  harness.Submit(2, 0, 25, 1);  // Small again: waits 10, takes 10; 20 < 25.
  EXPECT_EQ(harness.starts.size(), 1U);
  harness.Submit(3, 0, 25, 1);  // 30 there; large: 6.
  ASSERT_EQ(harness.starts.size(), 2U);
  EXPECT_EQ(harness.starts[1].lane, LaneId{1});
  harness.Submit(4, 0, 2, 8);  // In time nowhere: 20 + 66 against 6 + 13.
  EXPECT_EQ(harness.dispatcher().board().pending(ReplicaId{1}), 2);
}

TEST(ElsaTest, SlackMustBePositive) {
  Harness harness(SmallAndLarge(), "elsa");
  harness.Submit(1, 0, 10, 1);  // Exactly as long as the small one takes.
  EXPECT_EQ(harness.starts[0].lane, LaneId{1});
}

TEST(ElsaTest, CountsWhatARunningBatchHasLeftAndNoLess) {
  Harness harness(SmallAndLarge(), "elsa");
  harness.Submit(1, 0, 1000, 1);
  harness.Submit(2, 8, 13, 1);  // 2 left, then 10: 12 < 13.
  EXPECT_EQ(harness.dispatcher().board().pending(ReplicaId{0}), 2);
  // The first runs over: at 15 its rest counts as 0, but the queue of 10 counts.
  harness.Submit(3, 15, 19, 1);
  EXPECT_EQ(harness.starts.back().lane, LaneId{1});
}

TEST(ElsaTest, TwinsShareTheLoad) {
  Harness harness(Equal(4), "elsa");
  for (std::uint64_t tag = 0; tag < 4; ++tag) harness.Submit(tag, 0, 1000);
  EXPECT_EQ(harness.starts.size(), 4U);
}

TEST(FifsTest, ServesInOrderOfArrivalOnWhoeverWasIdleLongest) {
  Harness harness(SmallAndLarge(), "fifs");
  harness.Submit(1, 0, 100);
  harness.Submit(2, 0, 100);
  harness.Submit(3, 0, 10);
  harness.Submit(4, 0, 5);
  harness.Finish(1, 6);
  EXPECT_EQ(harness.starts[2].tags, std::vector<std::uint64_t>{3});
  harness.Finish(1, 12);
  EXPECT_EQ(harness.starts[3].tags, std::vector<std::uint64_t>{4});
  harness.Finish(1, 18);  // Idle since 18; lane 0 since 19.
  harness.Finish(0, 19);
  harness.Submit(5, 20, 100);
  EXPECT_EQ(harness.starts[4].lane, LaneId{1});
}

TEST(ShortestQueueTest, CountsRunningOnesAndSkipsTheDown) {
  Harness harness(Equal(3), "shortest-queue");
  harness.dispatcher().SetDown(ReplicaId{1}, At(0));
  for (std::uint64_t tag = 0; tag < 4; ++tag) harness.Submit(tag, 0, 1000);
  EXPECT_EQ(harness.dispatcher().board().pending(ReplicaId{0}), 2);
  EXPECT_EQ(harness.dispatcher().board().pending(ReplicaId{1}), 0);
  EXPECT_EQ(harness.dispatcher().board().pending(ReplicaId{2}), 2);
}

TEST(WeightedTest, TurnsFollowThroughput) {
  // 8 items take 24 ms or 8 ms: one turn in four is the small one's.
  serving::Setup setup{.models = {"model"},
                       .tables = {Linear(24, 0, 8), Linear(8, 0, 8)},
                       .replicas = {{.size = 1, .table = 0}, {.size = 7, .table = 1}}};
  Harness harness(setup, "weighted");
  for (std::uint64_t tag = 0; tag < 400; ++tag) harness.Submit(tag, 0, 100000);
  EXPECT_EQ(harness.dispatcher().board().pending(ReplicaId{0}), 100);
  EXPECT_EQ(harness.dispatcher().board().pending(ReplicaId{1}), 300);
}

TEST(DivvyTest, KeepsTheLargeLaneForWhoNeedsIt) {
  Harness harness(SmallAndLarge(), "divvy");
  harness.Submit(1, 0, 10, 1);
  EXPECT_EQ(harness.starts[0].lane, LaneId{0});
  harness.Submit(2, 0, 20, 8);
  EXPECT_EQ(harness.starts[1].lane, LaneId{1});
}

TEST(ParseRouteTest, NamesAndExtras) {
  for (const char* text : {"divvy", "divvy-merge", "divvy-merge-learn", "elsa", "elsa+merge+shed",
                           "shortest-queue", "shortest-queue+shed", "weighted+merge+shed+learn"}) {
    const auto options = ParseRoute(text);
    ASSERT_TRUE(options) << text << ": " << options.error().message;
    EXPECT_EQ(Describe(*options), text);
  }
  EXPECT_FALSE(ParseRoute("elsa")->merge);
  EXPECT_TRUE(ParseRoute("elsa+merge")->merge);
  EXPECT_FALSE(ParseRoute("divvy-merge")->merge);
}

TEST(ParseRouteTest, ErrorsSayWhatWouldBeRight) {
  const std::array<std::array<const char*, 2>, 6> cases = {{
      {"elssa", "did you mean 'elsa'"},
      {"", "There are divvy, elsa"},
      {"elsa+batch", "+merge, +shed and +learn"},
      {"elsa+", "no extra ''"},
      {"divvy-shed", "needs shedding"},
      {"divvyx", "no such policy"},
  }};
  for (const auto& [text, message] : cases) {
    const auto options = ParseRoute(text);
    ASSERT_FALSE(options) << text;
    EXPECT_EQ(options.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(options.error().message, HasSubstr(message));
  }
}

}  // namespace
}  // namespace divvy::serving
