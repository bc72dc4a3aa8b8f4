#include "control/loop.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "control/test_estate.h"

namespace divvy::control {
namespace {

using planner::Work;
using testing::MakeTestEstate;
using testing::TestPlant;

gpu::MigInstance Place(const Estate& estate, std::string_view profile, int start) {
  return {start, *estate.gpu->FindProfile(profile)};
}

// Says what it is told to, and when it was asked.
class Scripted final : public Policy {
 public:
  std::string_view name() const override { return "scripted"; }
  Sharing sharing() const override { return Sharing::kMig; }
  Decision Decide(const View& view) override {
    asked.push_back(view.slot);
    return std::exchange(next, {});
  }

  Decision next;
  std::vector<int> asked;
};

class LoopTest : public ::testing::Test {
 protected:
  void Begin(int to) {
    while (slot_ <= to) loop_.Begin(slot_++, std::vector<double>{1, 2});
  }
  bool Told(LoopEvent::Kind kind) const {
    return std::ranges::any_of(events_, [&](const LoopEvent& e) { return e.kind == kind; });
  }
  Cell Serve(int tenant, std::string_view profile, int start) const {
    return {0,
            Place(estate_, profile, start),
            {Work::Kind::kServe, static_cast<std::size_t>(tenant), 0}};
  }
  Cell Retrain(std::string_view profile, int start) const {
    return {0, Place(estate_, profile, start), {Work::Kind::kRetrain, 0, 0}};
  }

  Estate estate_ = MakeTestEstate(1, {{.training = 10, .accuracy = 0.5}, {}}, 1.5);
  Scripted policy_;
  TestPlant plant_{estate_, 0, 1};
  std::vector<LoopEvent> events_;
  Loop loop_{estate_, policy_, plant_, [this](const LoopEvent& e) { events_.push_back(e); }};
  int slot_ = 0;
};

TEST_F(LoopTest, AsksAtTheStartAndAtEveryMultiple) {
  Begin(12);
  EXPECT_EQ(policy_.asked, (std::vector<int>{0, 5, 10}));
}

TEST_F(LoopTest, WhatComesFirstIsReadyAtOnceAndWhatComesLaterAfterTheRestart) {
  policy_.next.cells = {Serve(0, "3g.40gb", 4)};
  Begin(4);
  EXPECT_EQ(loop_.view().cells.front().ready_at, 0);
  policy_.next.cells = {Serve(0, "3g.40gb", 4), Serve(1, "4g.40gb", 0)};
  Begin(5);
  ASSERT_EQ(loop_.view().cells.size(), 2u);
  EXPECT_EQ(loop_.view().cells[0].ready_at, 0);
  EXPECT_EQ(loop_.view().cells[1].ready_at, 6.5);
  EXPECT_EQ(loop_.starts(), 1);
  EXPECT_EQ(loop_.reconfigurations(), 1);
}

TEST_F(LoopTest, ARetrainingRaisesAccuracyWhenItIsDoneAndItsEndIsATimeToDecide) {
  policy_.next.cells = {Retrain("7g.80gb", 0)};
  Begin(9);
  EXPECT_FALSE(loop_.view().tenants[0].retrained);
  EXPECT_LT(loop_.view().tenants[0].accuracy, 0.5);
  policy_.asked.clear();
  Begin(11);  // Ten slots, the first of them at once.
  EXPECT_TRUE(loop_.view().tenants[0].retrained);
  EXPECT_TRUE(loop_.view().cells.empty());
  EXPECT_TRUE(Told(LoopEvent::Kind::kRetrained));
  EXPECT_EQ(policy_.asked.front(), 10);
  // Of the data of the window's start, which is eleven seconds old.
  EXPECT_NEAR(loop_.view().tenants[0].accuracy, 0.75 - 0.02 * 11 / 60, 1e-12);
}

TEST_F(LoopTest, TheEndOfTheWindowEndsWhatLearnsFromItsData) {
  Begin(94);
  policy_.next.cells = {Retrain("7g.80gb", 0)};
  Begin(99);
  EXPECT_EQ(loop_.view().cells.size(), 1u);
  Begin(100);
  EXPECT_TRUE(loop_.view().cells.empty());
  EXPECT_TRUE(Told(LoopEvent::Kind::kGivenUp));
  EXPECT_FALSE(loop_.view().tenants[0].retrained);
}

TEST_F(LoopTest, AModelThatIsNoBetterDoesNotServe) {
  Estate worse = MakeTestEstate(1, {{.training = 10, .accuracy = 0.9, .reached = {0.3}}}, 0);
  Loop loop(worse, policy_, plant_, {});
  policy_.next.cells = {Retrain("7g.80gb", 0)};
  for (int slot = 0; slot <= 12; ++slot) loop.Begin(slot, std::vector<double>{1});
  EXPECT_TRUE(loop.view().tenants[0].retrained);
  EXPECT_GT(loop.view().tenants[0].accuracy, 0.8);
}

TEST_F(LoopTest, WhatCannotBeIsNotDone) {
  policy_.next.cells = {Serve(0, "3g.40gb", 4)};
  Begin(4);
  const std::vector<std::vector<Cell>> wrong = {
      {Serve(0, "3g.40gb", 4), Serve(1, "7g.80gb", 0)},  // On one slice.
      {Serve(0, "3g.40gb", 2)},                          // Not a place.
      {Retrain("3g.40gb", 0), Retrain("3g.40gb", 4)},    // Twice.
      {{1, Place(estate_, "3g.40gb", 4), {}}},           // No such GPU.
      {{0, Share{11}, {}}},
  };
  for (const std::vector<Cell>& cells : wrong) {
    events_.clear();
    policy_.next.cells = cells;
    Begin(slot_ + 4);
    ASSERT_TRUE(Told(LoopEvent::Kind::kKept));
    ASSERT_EQ(loop_.view().cells.size(), 1u);
    EXPECT_EQ(loop_.view().cells.front().cell, Serve(0, "3g.40gb", 4));
  }
}

TEST_F(LoopTest, AMigInstanceThatRetrainsStays) {
  policy_.next.cells = {Retrain("1g.10gb", 0)};
  Begin(4);
  policy_.next.cells = std::vector<Cell>{};
  Begin(5);
  EXPECT_TRUE(Told(LoopEvent::Kind::kKept));
  EXPECT_EQ(loop_.view().cells.size(), 1u);
}

TEST_F(LoopTest, ARefusalLeavesTheViewAsItWas) {
  TestPlant refuses(estate_, 1, 1);
  Loop loop(estate_, policy_, refuses, [this](const LoopEvent& e) { events_.push_back(e); });
  policy_.next.cells = {Serve(0, "3g.40gb", 4)};
  loop.Begin(0, {});
  EXPECT_TRUE(loop.view().cells.empty());
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(events_.front().kind, LoopEvent::Kind::kKept);
  EXPECT_EQ(events_.front().text, TestPlant::kRefused);
}

}  // namespace
}  // namespace divvy::control
