#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "control/loop.h"
#include "gpu/catalogue.h"

// What a loop meets on a node and never in a simulation: slots of which nothing is known,
// cells that others took away, and a process that ended.

namespace divvy::control {
namespace {

using planner::Work;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// One tenant that serves on any 1g, and learns there in 8 slots.
Estate SmallEstate() {
  Estate estate{*gpu::FindGpuModel("A100-80GB"), 1, std::chrono::seconds(1), 100, 5, 2, {}};
  EstateTenant tenant{"net", 1, std::chrono::milliseconds(50), 10, {}, {}, {}};
  tenant.learning = workload::Learning{};
  tenant.learning->accuracy = 0.8;
  tenant.learning->options = {{"full", 100, 0.9}};
  for (std::size_t k = 0; k < estate.gpu->profiles.size(); ++k) {
    Offer offer;
    offer.capacity = 20;
    offer.retraining_slots = {8};
    tenant.by_profile.push_back(offer);
  }
  estate.tenants.push_back(tenant);
  return estate;
}

// Decides what it is told to, and remembers what it saw.
class Script final : public Policy {
 public:
  std::string_view name() const override { return "script"; }
  Sharing sharing() const override { return Sharing::kMig; }
  Decision Decide(const View& view) override {
    slots.push_back(view.slot);
    arrivals.assign(view.arrivals[0].begin(), view.arrivals[0].end());
    cells_seen = view.cells;
    return {.cells = cells, .why = "as told", .failed = false, .gap = {}};
  }

  std::optional<std::vector<Cell>> cells;
  std::vector<int> slots;
  std::vector<double> arrivals;
  std::vector<CellState> cells_seen;
};

class WillingPlant final : public Plant {
 public:
  Result<void> Change(int, std::span<const CellState>, std::span<const Cell>) override {
    return {};
  }
  double Outcome(const Work&, int) override { return 0.9; }
};

class LoopResumeTest : public ::testing::Test {
 protected:
  Cell At(int start, Work::Kind kind) const {
    return {0, gpu::MigInstance{start, *estate_.gpu->FindProfile("1g.10gb")}, {kind, 0, 0}};
  }

  const Estate estate_ = SmallEstate();
  Script policy_;
  WillingPlant plant_;
  Loop loop_{estate_, policy_, plant_, {}};
};

TEST_F(LoopResumeTest, SlotsThatPassDecideNothingAndTheNextThatBeginsDoes) {
  const std::vector<double> seven = {7};
  loop_.Begin(0, {});
  for (int slot = 1; slot <= 3; ++slot) loop_.Begin(slot, seven);
  for (int slot = 4; slot <= 6; ++slot) loop_.Pass(slot);
  EXPECT_THAT(policy_.slots, ElementsAre(0));
  loop_.Begin(7, std::vector<double>{9});
  EXPECT_THAT(policy_.slots, ElementsAre(0, 7));
  EXPECT_THAT(policy_.arrivals, ElementsAre(7, 7, 7, 7, 7, 7, 9));
  loop_.Begin(8, seven);
  EXPECT_THAT(policy_.slots, ElementsAre(0, 7)) << "it was due once";
}

TEST_F(LoopResumeTest, SlotsThatPassWithArrivalsKeepThem) {
  loop_.Begin(0, {});
  loop_.Pass(1, std::vector<double>{3});
  loop_.Pass(2);
  loop_.Begin(3, std::vector<double>{4});
  EXPECT_THAT(loop_.view().arrivals[0], ElementsAre(3, 3, 4));
}

TEST_F(LoopResumeTest, ALoopThatBeganBlindHasNoArrivalsToShow) {
  loop_.Pass(0);
  loop_.Pass(1);
  EXPECT_THAT(loop_.view().arrivals[0], IsEmpty());
  loop_.Begin(2, std::vector<double>{5});
  EXPECT_THAT(policy_.slots, ElementsAre(2));
  EXPECT_THAT(policy_.arrivals, ElementsAre(5));
}

TEST_F(LoopResumeTest, RetrainingsGoOnWhileNothingIsObserved) {
  policy_.cells = {At(0, Work::Kind::kServe), At(1, Work::Kind::kRetrain)};
  loop_.Begin(0, {});
  for (int slot = 1; slot <= 8; ++slot) loop_.Pass(slot);
  EXPECT_EQ(loop_.retrained(), 1);
  EXPECT_THAT(loop_.view().cells, SizeIs(1));
  EXPECT_TRUE(loop_.view().tenants[0].retrained);
}

TEST_F(LoopResumeTest, LostCellsAreForgottenAndTheNextSlotDecides) {
  policy_.cells = {At(0, Work::Kind::kServe), At(1, Work::Kind::kServe)};
  loop_.Begin(0, {});
  loop_.Lose(std::vector<Cell>{At(1, Work::Kind::kServe), At(3, Work::Kind::kServe)});
  loop_.Begin(1, std::vector<double>{5});
  EXPECT_THAT(policy_.slots, ElementsAre(0, 1));
  EXPECT_THAT(policy_.cells_seen, SizeIs(1));
  // It comes back as a new one.
  EXPECT_EQ(loop_.view().cells[0].ready_at, 0);
  EXPECT_EQ(loop_.view().cells[1].ready_at, 3);
}

TEST_F(LoopResumeTest, LosingWhatIsNotThereAsksForNothing) {
  loop_.Begin(0, {});
  loop_.Lose(std::vector<Cell>{At(3, Work::Kind::kServe)});
  loop_.Begin(1, std::vector<double>{5});
  EXPECT_THAT(policy_.slots, ElementsAre(0));
}

TEST_F(LoopResumeTest, ALoopThatResumesGoesOnAsTheOtherWould) {
  policy_.cells = {At(0, Work::Kind::kServe), At(1, Work::Kind::kRetrain)};
  loop_.Begin(0, {});
  for (int slot = 1; slot <= 3; ++slot) loop_.Begin(slot, std::vector<double>{5});
  Loop second(estate_, policy_, plant_, {});
  second.Resume(loop_.view());
  EXPECT_THAT(second.view().arrivals[0], IsEmpty());
  for (int slot = 4; slot <= 9; ++slot) {
    loop_.Begin(slot, std::vector<double>{5});
    second.Begin(slot, std::vector<double>{5});
    ASSERT_EQ(second.view().cells.size(), loop_.view().cells.size()) << "slot " << slot;
    EXPECT_EQ(second.view().cells.back().progress, loop_.view().cells.back().progress);
    EXPECT_EQ(second.view().tenants[0].accuracy, loop_.view().tenants[0].accuracy);
    // The retraining is done in slot 8, and none follows in this window.
    if (slot == 7) policy_.cells.reset();
  }
  EXPECT_EQ(second.retrained(), 1);
}

}  // namespace
}  // namespace divvy::control
