#include "gate/slices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>

#include "gate/latency.h"

namespace divvy::gate {
namespace {

// A board in this process' memory; slots are written as their owners would.
class SlicesTest : public ::testing::Test {
 protected:
  Slot& Place(int index, JobClass job_class) {
    Slot& slot = board_->slots[index];
    slot.live.store(1);
    slot.job.job_class = job_class;
    return slot;
  }
  Slot& PlaceApart(int index, std::uint32_t openness, std::uint32_t stepwise_us = 0) {
    Slot& slot = Place(index, JobClass::kLatency);
    slot.apart.store(1);
    slot.openness.store(openness);
    slot.stepwise_us.store(stepwise_us);
    return slot;
  }

  std::unique_ptr<Board> board_ = std::make_unique<Board>();
};

TEST_F(SlicesTest, NobodyApartLeavesTheDriversSlice) {
  EXPECT_EQ(WantedSliceUs(*board_), kDriverSliceUs);
  Place(3, JobClass::kLatency);
  Place(4, JobClass::kBatch);
  Place(5, JobClass::kServer);
  EXPECT_EQ(WantedSliceUs(*board_), kDriverSliceUs);
}

TEST_F(SlicesTest, TheMoreProtectedTheShorter) {
  for (const std::uint32_t stepwise_us : {0, 5'000, 10'000}) {
    for (std::uint32_t openness = 1; openness <= kNoProtection; ++openness) {
      EXPECT_GE(BatchSliceUs(openness, stepwise_us), BatchSliceUs(openness - 1, stepwise_us));
    }
    EXPECT_LT(BatchSliceUs(kTight, stepwise_us), BatchSliceUs(kBalanced, stepwise_us));
    EXPECT_GT(BatchSliceUs(kTight, stepwise_us), 0U);
  }
}

TEST_F(SlicesTest, KernelByKernelIsGivenAPartOfARequestsTime) {
  EXPECT_LT(BatchSliceUs(kBalanced, 0), kLeastStepwiseUs / 3);
  EXPECT_EQ(BatchSliceUs(kTight, 8'000), 800U);
  EXPECT_EQ(BatchSliceUs(kBalanced, 8'000), 1'600U);
  for (const std::uint32_t openness : {kTight, kBalanced}) {
    EXPECT_EQ(BatchSliceUs(openness, 1), kLeastStepwiseUs);
    EXPECT_EQ(BatchSliceUs(openness, UINT32_MAX), kMostStepwiseUs);
  }
}

TEST_F(SlicesTest, TheLeastOfAllThatAreApartCounts) {
  PlaceApart(0, kBalanced);
  EXPECT_EQ(WantedSliceUs(*board_), BatchSliceUs(kBalanced, 0));
  Slot& tight = PlaceApart(63, kTight);
  EXPECT_EQ(WantedSliceUs(*board_), BatchSliceUs(kTight, 0));
  tight.stepwise_us.store(5'000);
  EXPECT_EQ(WantedSliceUs(*board_), BatchSliceUs(kBalanced, 0));
  tight.stepwise_us.store(0);
  tight.live.store(0);
  EXPECT_EQ(WantedSliceUs(*board_), BatchSliceUs(kBalanced, 0));
}

TEST_F(SlicesTest, SmallChangesOfWhatRequestsTakeAreNotTold) {
  EXPECT_EQ(StepwiseUs(0, 5'000'000), 5'000U);
  EXPECT_EQ(StepwiseUs(4'000, 5'000'000), 4'000U);
  EXPECT_EQ(StepwiseUs(4'000, 5'001'000), 5'001U);
  EXPECT_EQ(StepwiseUs(4'000, 3'000'000), 4'000U);
  EXPECT_EQ(StepwiseUs(4'000, 2'999'000), 2'999U);
  EXPECT_EQ(StepwiseUs(4'000, 0), 1U) << "0 would mean something else";
  EXPECT_EQ(StepwiseUs(4'000, UINT64_MAX), UINT32_MAX);
}

TEST_F(SlicesTest, LongRequestsKernelByKernelLeaveLongerOnesThanTheDriver) {
  PlaceApart(0, kTight, 30'000);
  EXPECT_EQ(WantedSliceUs(*board_), 3'000U);
}

TEST_F(SlicesTest, WhoWantsNoProtectionOrIsNotApartDoesNotCount) {
  PlaceApart(0, kNoProtection);
  Place(1, JobClass::kLatency).openness.store(kTight);
  Place(2, JobClass::kBatch).apart.store(1);
  EXPECT_EQ(WantedSliceUs(*board_), kDriverSliceUs);
}

// Over boards at random, against the rule in other words.
TEST_F(SlicesTest, WantedIsTheShortestOfEachByItself) {
  std::mt19937 engine(7);
  const auto random = [&] { return static_cast<std::uint32_t>(engine()); };
  for (int round = 0; round < 2'000; ++round) {
    board_ = std::make_unique<Board>();
    std::uint32_t least = UINT32_MAX;
    for (int i = 0; i < kSlots; i += 1 + static_cast<int>(random() % 16)) {
      Slot& slot =
          PlaceApart(i, random() % (kNoProtection + 1), random() % 2 == 0 ? 0 : random() % 30'000);
      slot.job.job_class = static_cast<JobClass>(random() % 5);
      slot.live.store(random() % 2);
      slot.slice_us.store(0);
      slot.apart.store(random() % 2);
      const bool counts = slot.live.load() == 1 && slot.apart.load() == 1 &&
                          slot.job.job_class == JobClass::kLatency &&
                          slot.openness.load() < kNoProtection;
      if (counts) {
        least = std::min(least, BatchSliceUs(slot.openness.load(), slot.stepwise_us.load()));
      }
    }
    ASSERT_EQ(WantedSliceUs(*board_), least == UINT32_MAX ? kDriverSliceUs : least)
        << "round " << round;
  }
}

TEST_F(SlicesTest, JobOfItsOwnTurnsIsInterruptibleOnceTheyAreSet) {
  Slot& own = Place(1, JobClass::kBatch);
  EXPECT_FALSE(IsInterruptible(*board_, 1, false));
  own.slice_us.store(50);
  EXPECT_TRUE(IsInterruptible(*board_, 1, false));
}

TEST_F(SlicesTest, SeveralInTurnsKeepTheDriversAndAreNotInterruptible) {
  PlaceApart(0, kTight);
  Slot& own = Place(1, JobClass::kBatch);
  own.slice_us.store(10);
  EXPECT_EQ(WantedSliceUs(*board_), BatchSliceUs(kTight, 0));
  EXPECT_TRUE(IsInterruptible(*board_, 1, false));
  for (const JobClass second : {JobClass::kBatch, JobClass::kServer}) {
    Slot& other = Place(2, second);
    other.slice_us.store(10);
    EXPECT_EQ(WantedSliceUs(*board_), kDriverSliceUs);
    EXPECT_FALSE(IsInterruptible(*board_, 1, false));
    EXPECT_FALSE(IsInterruptible(*board_, 1, true));
    // One whose slices are not ours to set has no short ones.
    other.slice_us.store(0);
    EXPECT_EQ(WantedSliceUs(*board_), BatchSliceUs(kTight, 0));
    other.live.store(0);
  }
}

TEST_F(SlicesTest, ClientIsInterruptibleIfItsServerIs) {
  Place(1, JobClass::kBatch);
  EXPECT_FALSE(IsInterruptible(*board_, 1, true));  // No server has our library.
  Slot& server = Place(0, JobClass::kServer);
  EXPECT_FALSE(IsInterruptible(*board_, 1, true));
  server.slice_us.store(2'048);
  EXPECT_TRUE(IsInterruptible(*board_, 1, true));
  // Another that cannot be: nobody knows whose clients are whose.
  Slot& second = Place(9, JobClass::kServer);
  EXPECT_FALSE(IsInterruptible(*board_, 1, true));
  second.live.store(0);
  EXPECT_TRUE(IsInterruptible(*board_, 1, true));
}

}  // namespace
}  // namespace divvy::gate
