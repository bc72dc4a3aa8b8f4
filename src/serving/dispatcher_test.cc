#include "serving/dispatcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serving/test_harness.h"

namespace divvy::serving {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(DispatcherTest, MergesWhatWaitsWhenALaneIsFree) {
  Harness harness(Equal(1), "divvy");
  harness.Submit(1, 0, 100);
  for (std::uint64_t tag = 2; tag <= 5; ++tag) harness.Submit(tag, 1, 100, 2);
  ASSERT_EQ(harness.starts.size(), 1U);
  harness.Finish(0, 10);
  ASSERT_EQ(harness.starts.size(), 2U);
  EXPECT_THAT(harness.starts[1].tags, ElementsAre(2, 3, 4, 5));
  EXPECT_EQ(harness.starts[1].items, 8);
  EXPECT_EQ(harness.starts[1].expected, Ms(17));
}

TEST(DispatcherTest, NeverMergesAMemberPastItsDeadline) {
  Harness harness(Equal(1), "divvy");
  harness.Submit(1, 0, 100);
  harness.Submit(2, 1, 21);      // Alone from 10 to 20; with two more items until 22.
  harness.Submit(3, 1, 100, 1);  // With 2: until 21.
  harness.Submit(4, 1, 101, 1);  // With both: until 22, and 2 must be done at 22: still fits.
  harness.Submit(5, 1, 102, 1);  // With all: until 23, too late for 2.
  harness.Finish(0, 10);
  ASSERT_EQ(harness.starts.size(), 2U);
  EXPECT_THAT(harness.starts[1].tags, ElementsAre(2, 3, 4));
}

TEST(DispatcherTest, AnAlmostLateRequestDoesNotMakeALaneRunSmallBatches) {
  Harness harness(Equal(1), "divvy");  // 10 ms and 1 ms an item, up to 8 items.
  harness.Submit(1, 0, 100);
  harness.Submit(2, 0, 21);  // At 10 there is time for it and one more item only.
  for (std::uint64_t tag = 3; tag <= 10; ++tag) harness.Submit(tag, 1, 100);
  harness.Finish(0, 10);
  // 8 items in 17 ms yield 0.47 an ms; 2 in 11 ms only 0.18.
  EXPECT_THAT(harness.starts[1].tags, ElementsAre(3, 4, 5, 6, 7, 8, 9, 10));
  harness.Finish(0, 27);
  EXPECT_EQ(harness.RefusalOf(2), Refusal::kHopeless);

  // Nobody else waits: then it is served, however small its batch.
  Harness alone(Equal(1), "divvy");
  alone.Submit(1, 0, 100);
  alone.Submit(2, 0, 21);
  alone.Finish(0, 10);
  EXPECT_THAT(alone.starts[1].tags, ElementsAre(2));
}

TEST(DispatcherTest, WithoutMergingEachRequestRunsAlone) {
  Harness harness(Equal(1), "divvy-merge");
  for (std::uint64_t tag = 1; tag <= 3; ++tag) harness.Submit(tag, 0, 100);
  harness.Finish(0, 10);
  EXPECT_THAT(harness.starts[1].tags, ElementsAre(2));
}

TEST(DispatcherTest, ASmallLanePassesOverWhatOnlyALargeOneAnswersInTime) {
  Harness harness(SmallAndLarge(), "divvy");
  harness.Submit(1, 0, 50, 1);  // Small lane, until 10.
  harness.Submit(2, 0, 20, 8);  // Large lane (13 ms); 66 ms on the small one.
  harness.Submit(3, 0, 30, 8);  // Waits for the large one.
  harness.Submit(4, 1, 40, 1);
  harness.Finish(0, 10);
  ASSERT_EQ(harness.starts.size(), 3U);
  EXPECT_EQ(harness.starts[2].lane, LaneId{0});
  EXPECT_THAT(harness.starts[2].tags, ElementsAre(4));
  harness.Finish(1, 13);
  EXPECT_EQ(harness.starts[3].lane, LaneId{1});
  EXPECT_THAT(harness.starts[3].tags, ElementsAre(3));
}

TEST(DispatcherTest, TheHopelessAreRefusedAtOnceAndNeverFirst) {
  Harness harness(SmallAndLarge(), "divvy");
  harness.Submit(1, 0, 5);  // Nobody answers within 5 ms.
  EXPECT_EQ(harness.RefusalOf(1), Refusal::kHopeless);
  harness.Submit(2, 0, 100);
  harness.Submit(3, 0, 100);
  harness.Submit(4, 1, 8);  // Only the large lane, which is busy until 6, does it in 6.
  harness.Submit(5, 1, 90);
  harness.Finish(1, 6);  // 6 + 6 > 9: lost its chance; 5 goes.
  EXPECT_EQ(harness.RefusalOf(4), Refusal::kHopeless);
  EXPECT_THAT(harness.starts.back().tags, ElementsAre(5));
}

TEST(DispatcherTest, WhatComesIntoSightOfAnIdleLaneIsServed) {
  // 70 large requests wait for the large lane; behind them, beyond the small lanes'
  // look-ahead, three small ones, which only those may take before the deadline.
  serving::Setup setup = SmallAndLarge();
  setup.replicas.push_back({.size = 1, .table = 0});
  Harness harness(setup, "divvy-merge");
  harness.Submit(1, 0, 2000, 1);  // Small lanes, until 10 and
  harness.Submit(2, 0, 2000, 1);  // 20.
  harness.Submit(3, 0, 60, 8);    // Large lane.
  for (std::uint64_t tag = 100; tag < 170; ++tag) harness.Submit(tag, 0, 65, 8);
  for (std::uint64_t tag = 200; tag < 203; ++tag) harness.Submit(tag, 1, 900, 1);
  harness.Finish(0, 10);
  harness.Finish(2, 20);
  EXPECT_EQ(harness.starts.size(), 3U) << "64 large ones hide the small ones";
  harness.Finish(1, 21);  // 13 ms each: four more are in time; the others go at 53.
  EXPECT_EQ(harness.starts.size(), 4U);
  harness.dispatcher().Expire(At(55));
  // Both small lanes at once, and the third small one waits for either.
  ASSERT_EQ(harness.starts.size(), 6U);
  EXPECT_THAT(harness.starts[4].tags, ElementsAre(200));
  EXPECT_THAT(harness.starts[5].tags, ElementsAre(201));
}

TEST(DispatcherTest, WithSeveralLanesTheWaitIsThatOfTheFirstToBeFree) {
  Harness harness(Equal(1, 2), "elsa");
  harness.Submit(1, 0, 1000, 1);  // Until 10.
  harness.Submit(2, 8, 1000, 1);  // Until 18.
  EXPECT_EQ(harness.dispatcher().board().Wait(ReplicaId{0}, At(8)), Ms(2));
}

TEST(DispatcherTest, ExpireRefusesBehindAWorkerThatHangs) {
  Harness harness(Equal(1), "divvy");
  harness.Submit(1, 0, 100);
  harness.Submit(2, 1, 50);
  harness.Submit(3, 1, 500);
  harness.dispatcher().Expire(At(40));
  EXPECT_THAT(harness.outcomes, IsEmpty());
  harness.dispatcher().Expire(At(42));
  EXPECT_EQ(harness.RefusalOf(2), Refusal::kHopeless);
  EXPECT_EQ(harness.dispatcher().waiting(), 1);
}

TEST(DispatcherTest, TooLargeAndNoReplicaAreToldApart) {
  for (const char* route : {"divvy", "elsa", "fifs", "shortest-queue", "weighted"}) {
    Harness harness(Equal(1), route);
    harness.Submit(1, 0, 1000, 9);
    EXPECT_EQ(harness.RefusalOf(1), Refusal::kTooLarge) << route;
    harness.dispatcher().SetDown(ReplicaId{0}, At(1));
    harness.Submit(2, 2, 1000, 1);
    EXPECT_EQ(harness.RefusalOf(2), Refusal::kNoReplica) << route;
  }
}

TEST(DispatcherTest, LanesOfOneReplicaRunSideBySide) {
  for (const char* route : {"divvy", "elsa", "fifs"}) {
    Harness harness(Equal(1, 3), route);
    for (std::uint64_t tag = 1; tag <= 4; ++tag) harness.Submit(tag, 0, 100);
    EXPECT_EQ(harness.starts.size(), 3U) << route;
    harness.Finish(1, 10);
    ASSERT_EQ(harness.starts.size(), 4U) << route;
    EXPECT_EQ(harness.starts[3].lane, LaneId{1}) << route;
  }
}

TEST(DispatcherTest, ALowerPriorityIsOvertakenWithinItsBoundOnly) {
  Harness fair(Equal(1), "fifs");
  fair.Submit(1, 0, 1000);
  fair.Submit(2, 0, 100, 1, 1);    // Key 100.
  fair.Submit(3, 90, 100, 1, 0);   // Key 90.
  fair.Submit(4, 101, 100, 1, 0);  // Key 101.
  for (const double end : {200, 210, 220, 230}) fair.Finish(0, end);
  EXPECT_THAT(fair.starts[1].tags, ElementsAre(3));
  EXPECT_THAT(fair.starts[2].tags, ElementsAre(2));
  EXPECT_THAT(fair.starts[3].tags, ElementsAre(4));
}

TEST(DispatcherTest, WhatAFailedWorkerRanIsTriedElsewhereIfTimeAllows) {
  for (const char* route : {"divvy", "elsa+merge", "fifs+merge"}) {
    Harness harness(Equal(2), route);
    harness.Submit(1, 0, 100);
    harness.Submit(2, 0, 15);
    ASSERT_EQ(harness.starts.size(), 2U) << route;
    const ReplicaId failed = harness.dispatcher().replica_of(harness.starts[1].lane);
    const LaneId other = harness.starts[0].lane;
    harness.dispatcher().SetDown(failed, At(8));
    harness.dispatcher().Failed(harness.starts[1].lane, At(8));
    EXPECT_EQ(harness.RefusalOf(2), Refusal::kLost) << route;

    harness.Submit(3, 9, 100);
    harness.Finish(static_cast<int>(other), 10);
    EXPECT_TRUE(harness.outcomes.at(1).answered);
    ASSERT_EQ(harness.starts.size(), 3U);
    harness.dispatcher().SetUp(failed, At(12));
    harness.dispatcher().Failed(harness.starts[2].lane, At(14));
    ASSERT_EQ(harness.starts.size(), 4U) << route;
    EXPECT_THAT(harness.starts[3].tags, ElementsAre(3));
    EXPECT_EQ(harness.outcomes.count(3), 0U);
  }
}

TEST(DispatcherTest, TakingAReplicaOutMovesItsQueueAndFinishesItsBatch) {
  Harness harness(Equal(2), "elsa");
  for (std::uint64_t tag = 1; tag <= 6; ++tag) harness.Submit(tag, 0, 1000);
  EXPECT_EQ(harness.dispatcher().board().pending(ReplicaId{0}), 3);
  harness.dispatcher().SetDown(ReplicaId{0}, At(1));
  EXPECT_EQ(harness.dispatcher().board().pending(ReplicaId{0}), 1);
  EXPECT_EQ(harness.dispatcher().board().pending(ReplicaId{1}), 5);
  harness.Finish(0, 10);
  EXPECT_EQ(harness.outcomes.size(), 1U);
  EXPECT_EQ(harness.starts.size(), 2U);  // The drained replica starts nothing more.
}

TEST(DispatcherTest, TheLastReplicaTakesItsQueueWithIt) {
  for (const char* route : {"divvy", "elsa", "fifs"}) {
    Harness harness(Equal(1), route);
    harness.Submit(1, 0, 1000);
    harness.Submit(2, 0, 1000);
    harness.dispatcher().SetDown(ReplicaId{0}, At(1));
    EXPECT_EQ(harness.RefusalOf(2), Refusal::kNoReplica) << route;
    EXPECT_EQ(harness.dispatcher().waiting(), 0) << route;
  }
}

TEST(DispatcherTest, EstimatesFollowAWorkerThatIsSlowerThanItsProfile) {
  Harness harness(Equal(1), "divvy");
  double now = 0;
  for (std::uint64_t tag = 1; tag <= 200; ++tag) {
    harness.Submit(tag, now, 1000);
    now += 15;  // The table says 10.
    harness.Finish(0, now);
  }
  EXPECT_NEAR(harness.dispatcher().board().groups(ModelId{})[0].error.factor(), 1.5, 0.03);
  harness.Submit(999, now, 14);
  EXPECT_EQ(harness.RefusalOf(999), Refusal::kHopeless);

  Harness exact(Equal(1), "divvy");
  for (std::uint64_t tag = 1; tag <= 50; ++tag) {
    exact.Submit(tag, 10.0 * static_cast<double>(tag), 1000);
    exact.Finish(0, 10.0 * static_cast<double>(tag) + 10);
  }
  EXPECT_EQ(exact.dispatcher().board().groups(ModelId{})[0].error.factor(), 1);
}

// Small and large replicas that take what the profile says, but for one batch in ten, which takes
// twice as long. Both are idle at `now`.
struct Noisy {
  explicit Noisy(std::string_view route = "divvy") : harness(SmallAndLarge(), route) {
    for (std::uint64_t tag = 1; tag <= 400; ++tag, now += 100) {
      harness.Submit(tag, now, 1000, 4);  // 34 ms on the small one.
      harness.Finish(0, now + (tag % 10 == 0 ? 68 : 34));
      harness.Submit(1000 + tag, now, 20, 4);  // 9 ms on the large one.
      harness.Finish(1, now + (tag % 10 == 0 ? 18 : 9));
    }
    harness.starts.clear();
  }

  std::vector<std::uint64_t> last() const {
    return harness.starts.empty() ? std::vector<std::uint64_t>{} : harness.starts.back().tags;
  }

  Harness harness;
  double now = 0;
};

using Tags = std::vector<std::uint64_t>;

TEST(DispatcherTest, WhatIsNeitherSureNorHopelessIsTriedAloneWhereItIsDoneFirst) {
  Noisy noisy;
  Harness& harness = noisy.harness;
  const double now = noisy.now;
  EXPECT_GT(harness.dispatcher().board().groups(ModelId{})[1].error.factor(), 1.35);
  harness.Submit(9001, now, 12, 4);
  EXPECT_EQ(noisy.last(), Tags{9001});
  EXPECT_EQ(harness.starts.back().lane, LaneId{1});
  // The small one, though idle, would typically be late, or later: both wait for the large one. And
  // with another the first would be late.
  harness.Submit(9002, now, 11.5, 2);
  harness.Submit(9003, now, 60, 1);
  EXPECT_EQ(noisy.last(), Tags{9003}) << "sure on the small one";
  harness.Submit(9005, now, 30, 2);
  harness.Finish(1, now + 2);
  EXPECT_EQ(noisy.last(), Tags{9005}) << "the sure one goes first";
  harness.Finish(1, now + 2.5);
  EXPECT_EQ(noisy.last(), Tags{9002});
  harness.Submit(9004, now + 2.5, 8, 4);
  EXPECT_EQ(harness.RefusalOf(9004), Refusal::kHopeless);
}

TEST(DispatcherTest, OneThatIsTriedIsNotJoined) {
  Noisy noisy;
  Harness& harness = noisy.harness;
  harness.Submit(9001, noisy.now, 1000, 8);  // Takes the large one ...
  harness.Submit(9006, noisy.now, 1000, 8);  // ... and the small one.
  harness.Submit(9002, noisy.now, 12.5, 3);
  harness.Finish(1, noisy.now + 2);
  EXPECT_EQ(noisy.last(), Tags{9002});
  harness.Submit(9003, noisy.now + 2, 11, 3);
  harness.Submit(9004, noisy.now + 2, 11.5, 1);
  harness.Finish(1, noisy.now + 2.4);
  EXPECT_EQ(noisy.last(), Tags{9004}) << "sure, if barely";
  harness.Finish(1, noisy.now + 2.5);
  EXPECT_EQ(noisy.last(), Tags{9003});
}

// Whoever would be sure is busy, and when it is free it is not sure any more: an idle one that is
// typically faster takes the request then.
TEST(DispatcherTest, WhatOneLaneLeavesIdleOnesOfOtherGroupsMayTry) {
  const serving::Setup setup{.models = {"model"},
                             .tables = {Linear(12, 1, 1), Linear(10, 1, 1)},
                             .replicas = {{.size = 1, .table = 0}, {.size = 7, .table = 1}}};
  Harness harness(setup, "divvy");
  double now = 0;
  for (std::uint64_t tag = 1; tag <= 3000; ++tag, now += 100) {
    harness.Submit(2 * tag, now, 1000);
    harness.Submit(2 * tag + 1, now, 1000);
    harness.Finish(0, now + (tag % 10 == 0 ? 18.6 : 11.9));
    harness.Finish(1, now + (tag % 10 == 0 ? 25 : 9.9));
  }
  harness.starts.clear();
  const auto groups = harness.dispatcher().board().groups(ModelId{});
  const double first = Milliseconds(groups[0].Estimate(1));
  ASSERT_GT(first, 13);
  ASSERT_LT(first + 2, Milliseconds(groups[1].Estimate(1)));
  harness.Submit(9001, now, first + 1);
  ASSERT_EQ(harness.starts.back().lane, LaneId{0}) << "sure on the first only";
  harness.Submit(9002, now, first + 1);
  ASSERT_EQ(harness.starts.size(), 1U) << "the first would be sure: it waits for it";
  harness.Finish(0, now + 1.5);
  ASSERT_EQ(harness.starts.size(), 2U);
  EXPECT_EQ(harness.starts.back().tags, Tags{9002});
  EXPECT_EQ(harness.starts.back().lane, LaneId{1});
}

TEST(DispatcherTest, AWorkerThatHasRecoveredIsAskedAgain) {
  for (const char* route : {"divvy", "elsa+shed+learn"}) {
    Harness harness(Equal(1), route);
    double now = 0;
    std::uint64_t tag = 1;
    for (; tag <= 200; ++tag, now += 100) {
      harness.Submit(tag, now, 1000);
      harness.Finish(0, now + 30);
    }
    harness.starts.clear();
    for (const std::uint64_t last = tag + 300; tag < last && harness.starts.empty(); ++tag) {
      harness.Submit(tag, now += 100, 20);
    }
    EXPECT_FALSE(harness.starts.empty()) << route;
  }
}

}  // namespace
}  // namespace divvy::serving
