#include "device/cuda_simulator/machine.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace divvy::device::cuda_simulator {
namespace {

// Who gets what, at times of our choosing: each `Machine` here stands for a process.
class MachineTest : public ::testing::Test {
 protected:
  MachineTest() {
    std::string name = std::filesystem::temp_directory_path() / "divvy-machine-XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  ~MachineTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<Machine> Open(bool low_priority = false) {
    auto machine = Machine::Open(path(), spec_);
    EXPECT_TRUE(machine) << machine.error().message;
    EXPECT_TRUE((*machine)->Join(low_priority, 100));
    return std::move(*machine);
  }

  std::string path() const { return folder_ + "/machine"; }

  static Demand All(Nanos waiting_since = 0) { return {16, kMillisecond, 0, waiting_since}; }

  MachineSpec spec_;

 private:
  std::string folder_;
};

constexpr Nanos kStart = 1'000'000 * kMillisecond;
constexpr Nanos kLong = 3'600'000 * kMillisecond;

TEST_F(MachineTest, SmsGoToWhoWaitedLongest) {
  auto holder = Open();
  auto first = Open();
  auto second = Open();
  const auto grant = holder->Begin(0, {16, kLong, kStart, 0}, kStart);
  ASSERT_TRUE(grant);
  EXPECT_FALSE(first->Begin(0, All(), kStart + 1));
  EXPECT_FALSE(second->Begin(0, All(), kStart + 2));
  holder->End(0, grant->granted, kStart + 2);
  EXPECT_FALSE(second->Begin(0, All(kStart + 2), kStart + 3));
  EXPECT_FALSE(holder->Begin(0, All(), kStart + 3));
  EXPECT_TRUE(first->Begin(0, All(kStart + 1), kStart + 4));
}

TEST_F(MachineTest, LowPriorityGoesBehindWhoCameLater) {
  auto holder = Open();
  auto low = Open(true);
  auto normal = Open();
  const auto grant = holder->Begin(0, {16, kLong, kStart, 0}, kStart);
  ASSERT_TRUE(grant);
  EXPECT_FALSE(low->Begin(0, All(), kStart + 1));
  EXPECT_FALSE(normal->Begin(0, All(), kStart + 2));
  holder->End(0, grant->granted, kStart + 2);
  EXPECT_FALSE(low->Begin(0, All(kStart + 1), kStart + 3));
  EXPECT_TRUE(normal->Begin(0, All(kStart + 2), kStart + 4));
}

TEST_F(MachineTest, WhoStopsAskingIsPassedBy) {
  auto holder = Open();
  auto stopped = Open();
  auto other = Open();
  const auto grant = holder->Begin(0, {16, kLong, kStart, 0}, kStart);
  ASSERT_TRUE(grant);
  EXPECT_FALSE(stopped->Begin(0, All(), kStart + 1));
  holder->End(0, grant->granted, kStart + 2);
  EXPECT_FALSE(other->Begin(0, All(), kStart + 2));
  EXPECT_TRUE(other->Begin(0, All(kStart + 2), kStart + 2 * Machine::kPatience));
}

TEST_F(MachineTest, SmsOfAKernelThatIsOverAreFreeThoughItsProcessIsLate) {
  auto late = Open();
  auto other = Open();
  const auto grant = late->Begin(0, {16, kMillisecond, kStart, 0}, kStart);
  ASSERT_TRUE(grant);
  EXPECT_EQ(grant->end, kStart + kMillisecond);
  EXPECT_FALSE(other->Begin(0, All(), kStart + kMillisecond / 2));
  EXPECT_TRUE(other->Begin(0, All(kStart + kMillisecond / 2), kStart + 30 * kMillisecond));
}

TEST_F(MachineTest, FewerSmsTakeLonger) {
  auto one = Open();
  auto other = Open();
  const auto twelve = one->Begin(0, {12, kMillisecond, kStart, 0}, kStart);
  ASSERT_TRUE(twelve);
  EXPECT_EQ(twelve->granted, 12);
  const auto rest = other->Begin(0, {16, kMillisecond, kStart, 0}, kStart);
  ASSERT_TRUE(rest);
  EXPECT_EQ(rest->granted, 4);
  EXPECT_EQ(rest->end, kStart + 4 * kMillisecond);
}

TEST_F(MachineTest, TurnEndsWithItsSliceIfAnotherWaits) {
  spec_.sharing = Sharing::kTimeSlice;
  spec_.slice = 2 * kMillisecond;
  auto one = Open();
  auto other = Open();
  EXPECT_TRUE(one->HoldTurn(0, kStart).mine);
  // Alone: one slice after another, and nothing to look for.
  const Turn alone = one->HoldTurn(0, kStart + 5 * kMillisecond);
  EXPECT_TRUE(alone.mine);
  EXPECT_EQ(alone.again, kNever);
  const Turn refused = other->HoldTurn(0, kStart + 6 * kMillisecond);
  EXPECT_FALSE(refused.mine);
  EXPECT_EQ(refused.again, kStart + 8 * kMillisecond);
  const Turn kept = one->HoldTurn(0, kStart + 7 * kMillisecond);
  EXPECT_TRUE(kept.mine);
  EXPECT_EQ(kept.again, kStart + 8 * kMillisecond);
  // Seen late, it was over in time all the same.
  const Turn lost = one->HoldTurn(0, kStart + 9 * kMillisecond);
  EXPECT_FALSE(lost.mine);
  EXPECT_EQ(lost.ends, kStart + 8 * kMillisecond);
  // The other's begins when it comes to know of it.
  const Turn taken = other->HoldTurn(0, kStart + 12 * kMillisecond);
  EXPECT_TRUE(taken.mine);
  EXPECT_EQ(taken.ends, kStart + 14 * kMillisecond);
  // And ends at once where it has nothing to run.
  other->EndTurn(0);
  EXPECT_TRUE(one->HoldTurn(0, kStart + 12 * kMillisecond).mine);
}

TEST_F(MachineTest, TurnOfAProcessThatIsNotSeenIsLost) {
  spec_.sharing = Sharing::kTimeSlice;
  auto stopped = Open();
  auto other = Open();
  EXPECT_TRUE(stopped->HoldTurn(0, kStart).mine);
  EXPECT_FALSE(other->HoldTurn(0, kStart + kMillisecond).mine);
  EXPECT_TRUE(other->HoldTurn(0, kStart + 40 * kMillisecond).mine);
}

TEST_F(MachineTest, WhoWaitsTakesATurnThatIsOver) {
  spec_.sharing = Sharing::kTimeSlice;
  auto late = Open();
  auto other = Open();
  EXPECT_TRUE(late->HoldTurn(0, kStart).mine);
  EXPECT_FALSE(other->HoldTurn(0, kStart + kMillisecond).mine);
  EXPECT_TRUE(other->HoldTurn(0, kStart + 3 * kMillisecond).mine);
  other->EndTurn(0);
  // The turn is free, but not one and the same: what ran in it was stopped on the way.
  const Turn lost = late->HoldTurn(0, kStart + 4 * kMillisecond);
  EXPECT_FALSE(lost.mine);
  EXPECT_EQ(lost.ends, kStart + 2 * kMillisecond);
  EXPECT_EQ(lost.again, kStart + 4 * kMillisecond);
  EXPECT_TRUE(late->HoldTurn(0, kStart + 4 * kMillisecond).mine);
}

TEST_F(MachineTest, TurnThatIsNotComeForIsLostHoweverLongItsSlice) {
  spec_.sharing = Sharing::kTimeSlice;
  auto one = Open();
  auto stopped = Open();
  stopped->SetSlice(0, kLong, kStart);
  EXPECT_TRUE(one->HoldTurn(0, kStart).mine);
  EXPECT_FALSE(stopped->HoldTurn(0, kStart).mine);
  EXPECT_FALSE(one->HoldTurn(0, kStart + 2 * kMillisecond).mine);
  EXPECT_TRUE(one->HoldTurn(0, kStart + 40 * kMillisecond).mine);
}

TEST_F(MachineTest, TurnLastsItsOwnersSlice) {
  spec_.sharing = Sharing::kTimeSlice;
  auto longer = Open();
  auto shorter = Open();
  EXPECT_EQ(longer->Slice(0), spec_.slice);
  longer->SetSlice(0, kLong, kStart);
  shorter->SetSlice(0, kMicrosecond, kStart);
  EXPECT_EQ(longer->Slice(0), kLong);
  EXPECT_EQ(shorter->Slice(0), kMicrosecond);
  EXPECT_EQ(shorter->HoldTurn(0, kStart).ends, kStart + Machine::kLeastTurn);
  EXPECT_FALSE(longer->HoldTurn(0, kStart).mine);
  const Turn taken = longer->HoldTurn(0, kStart + Machine::kLeastTurn);
  EXPECT_TRUE(taken.mine);
  EXPECT_EQ(taken.ends, kStart + Machine::kLeastTurn + kLong);
  for (const Nanos later : {kMillisecond, 1000 * kMillisecond}) {
    EXPECT_FALSE(shorter->HoldTurn(0, kStart + later).mine);
    EXPECT_TRUE(longer->HoldTurn(0, kStart + later).mine);
  }
}

TEST_F(MachineTest, SliceOfAProcessThatLeftIsNotThatOfTheNext) {
  auto one = Open();
  one->SetSlice(0, kLong, kStart);
  one->Leave();
  EXPECT_EQ(Open()->Slice(0), spec_.slice);
}

TEST_F(MachineTest, NewSliceCountsForTheTurnUnderWay) {
  spec_.sharing = Sharing::kTimeSlice;
  auto one = Open();
  auto other = Open();
  EXPECT_TRUE(one->HoldTurn(0, kStart).mine);
  EXPECT_FALSE(other->HoldTurn(0, kStart).mine);
  one->SetSlice(0, kLong, kStart + kMillisecond);
  EXPECT_FALSE(other->HoldTurn(0, kStart + 30 * kMillisecond).mine);
  const auto bell = one->ReadBell();
  const auto others_bell = other->ReadBell();
  one->SetSlice(0, kMillisecond, kStart + 35 * kMillisecond);
  EXPECT_NE(one->ReadBell(), bell);
  EXPECT_NE(other->ReadBell(), others_bell);
  EXPECT_TRUE(other->HoldTurn(0, kStart + 36 * kMillisecond).mine);
  // It had the GPU until it asked for less.
  EXPECT_EQ(one->HoldTurn(0, kStart + 37 * kMillisecond).ends, kStart + 35 * kMillisecond);
}

TEST_F(MachineTest, NobodyRunsWhileTheGpuChangesHands) {
  spec_.sharing = Sharing::kTimeSlice;
  spec_.switching = 5 * kMillisecond;
  auto one = Open();
  auto other = Open();
  EXPECT_TRUE(one->HoldTurn(0, kStart).mine) << "from nobody";
  one->EndTurn(0);
  EXPECT_TRUE(one->HoldTurn(0, kStart + kMillisecond).mine) << "its own";
  EXPECT_FALSE(other->HoldTurn(0, kStart + kMillisecond).mine);
  const Turn waits = other->HoldTurn(0, kStart + 3 * kMillisecond);
  EXPECT_FALSE(waits.mine);
  EXPECT_EQ(waits.again, kStart + 8 * kMillisecond);
  EXPECT_FALSE(one->HoldTurn(0, kStart + 4 * kMillisecond).mine);
  EXPECT_FALSE(other->HoldTurn(0, kStart + 8 * kMillisecond - 1).mine);
  const Turn runs = other->HoldTurn(0, kStart + 8 * kMillisecond);
  EXPECT_TRUE(runs.mine);
  EXPECT_EQ(runs.ends, kStart + 10 * kMillisecond) << "a whole slice";
  // Nor is a GPU free of who has gone.
  other->Leave();
  EXPECT_FALSE(one->HoldTurn(0, kStart + 9 * kMillisecond).mine);
  EXPECT_TRUE(one->HoldTurn(0, kStart + 14 * kMillisecond).mine);
}

TEST_F(MachineTest, WhoLeavesGivesEverythingBack) {
  auto one = Open();
  auto other = Open();
  ASSERT_TRUE(one->Begin(0, {16, kLong, kStart, 0}, kStart));
  ASSERT_TRUE(one->TakeMemory(0, spec_.memory));
  EXPECT_FALSE(other->Begin(0, All(), kStart));
  EXPECT_FALSE(other->TakeMemory(0, 1));
  one->Leave();
  EXPECT_TRUE(other->Begin(0, All(kStart), kStart + 1));
  EXPECT_TRUE(other->TakeMemory(0, spec_.memory));
}

TEST_F(MachineTest, ActivityIsWhatRanAndForHowLong) {
  auto one = Open();
  auto other = Open();
  const Nanos start = Now() + 1'000 * kMillisecond;
  const Activity before = one->Observe(0, start);
  EXPECT_EQ(before.busy, 0);
  const auto time = [&](int milliseconds) { return start + milliseconds * kMillisecond; };
  // 4 SMs from 0 to 20, 8 from 10 to 40; the end of the first is seen late.
  const auto four = one->Begin(0, {4, 20 * kMillisecond, start, 0}, start);
  const auto eight = other->Begin(0, {8, 30 * kMillisecond, time(10), 0}, time(12));
  ASSERT_TRUE(four && eight);
  EXPECT_EQ(one->Observe(0, time(15)).busy, 15 * kMillisecond);
  one->End(0, four->granted, time(25));
  other->End(0, eight->granted, time(40));
  const Activity after = other->Observe(0, time(100));
  EXPECT_EQ(after.busy, 40 * kMillisecond);
  EXPECT_EQ(after.sm_busy, (4 * 20 + 8 * 30) * kMillisecond);
  EXPECT_DOUBLE_EQ(after.busy_share, 0.4);
  EXPECT_DOUBLE_EQ(after.sm_share, 3.2 / 16);
  EXPECT_EQ(other->Observe(0, time(150)).busy_share, 0.4) << "until the next window is full";
  EXPECT_EQ(other->Observe(0, time(200)).busy_share, 0);
}

TEST_F(MachineTest, ItCanBeLookedAtFromOutside) {
  auto inside = Open();
  EXPECT_TRUE(inside->Holders(0).empty()) << "who has no context is on no GPU";
  inside->AddContext(0);
  ASSERT_TRUE(inside->TakeMemory(0, 1234));
  ASSERT_TRUE(inside->Begin(0, {16, kLong, Now(), 0}, Now()));
  const auto outside = Machine::Open(path(), {});
  ASSERT_TRUE(outside) << outside.error().message;
  const auto holders = (*outside)->Holders(0);
  ASSERT_EQ(holders.size(), 1U);
  EXPECT_EQ(holders[0].pid, getpid());
  EXPECT_EQ(holders[0].bytes, 1234U);
  inside->AddContext(0);
  inside->RemoveContext(0);
  EXPECT_EQ((*outside)->Holders(0).size(), 1U) << "one is left";
  const Nanos later = Now() + 1'000 * kMillisecond;
  EXPECT_GT((*outside)->Observe(0, later).busy_share, 0.5);
  inside->Leave();
  EXPECT_TRUE((*outside)->Holders(0).empty());
}

TEST_F(MachineTest, AFileOfAnotherKindIsRefused) {
  const std::string path = std::filesystem::temp_directory_path() / "divvy-no-machine-XXXXXX";
  std::string name = path;
  const int file = mkstemp(name.data());
  ASSERT_GE(file, 0);
  ASSERT_EQ(write(file, "hello", 5), 5);
  close(file);
  const auto machine = Machine::Open(name, spec_);
  ASSERT_FALSE(machine);
  EXPECT_EQ(machine.error().code, ErrorCode::kFailedPrecondition);
  std::filesystem::remove(name);
}

}  // namespace
}  // namespace divvy::device::cuda_simulator
