// Parts of `divvy control` that need no node: the solver's thread and the state on disk.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <csignal>
#include <latch>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"
#include "control/arrivals.h"
#include "control/policies.h"
#include "control_observe.h"
#include "control_solver.h"
#include "control_state.h"
#include "control_stop.h"
#include "gpu/catalogue.h"

namespace divvy::app {
namespace {

using planner::GoodputAnswer;
using planner::GoodputProblem;
using planner::Work;
using ::testing::SizeIs;

GoodputProblem ProblemOf(int slots) { return {nullptr, slots, {}, {}, {}}; }

GoodputAnswer AnswerOf(const GoodputProblem& problem) {
  GoodputAnswer answer;
  answer.value = problem.slots;
  return answer;
}

TEST(SolverThread, AnswersAllThatItIsAsked) {
  StopSignal stop;
  SolverThread solver(AnswerOf, std::nullopt, stop);
  for (int slots = 1; slots <= 50; ++slots) {
    const auto answer = solver.Ask(ProblemOf(slots));
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->value, slots);
    EXPECT_FALSE(solver.busy());
  }
}

// The first answer is not given before the test lets it; it is late, is never handed out,
// and does not keep the next from being asked for.
TEST(SolverThread, ALateAnswerIsDroppedAndTheNextIsFresh) {
  StopSignal stop;
  std::latch may_end(1);
  std::latch ends(1);
  {
    SolverThread solver(
        [&](const GoodputProblem& problem) {
          if (problem.slots == 1) {
            may_end.wait();
            ends.count_down();
          }
          return AnswerOf(problem);
        },
        std::chrono::milliseconds(1), stop);
    EXPECT_FALSE(solver.Ask(ProblemOf(1)));
    EXPECT_TRUE(solver.busy());
    EXPECT_FALSE(solver.Ask(ProblemOf(2))) << "the first is still worked at";
    may_end.count_down();
    ends.wait();
    // Late or not depends on the machine; stale it must not be.
    for (int slots = 3; slots < 1000; ++slots) {
      const auto answer = solver.Ask(ProblemOf(slots));
      if (!answer) continue;
      EXPECT_EQ(answer->value, slots);
      break;
    }
  }
}

TEST(SolverThread, AStopEndsTheWaiting) {
  StopSignal stop;
  std::latch may_end(1);
  SolverThread solver(
      [&](const GoodputProblem& problem) {
        kill(getpid(), SIGTERM);
        may_end.wait();
        return AnswerOf(problem);
      },
      std::nullopt, stop);
  EXPECT_FALSE(solver.Ask(ProblemOf(1)));
  EXPECT_TRUE(stop.Heard());
  may_end.count_down();
}

// Two tenants on one A100, of which the first learns.
control::Estate SmallEstate() {
  control::Estate estate{
      *gpu::FindGpuModel("A100-80GB"), 2, std::chrono::seconds(1), 100, 5, 2, {}};
  for (const char* name : {"net", "other"}) {
    control::EstateTenant tenant{name, 1, std::chrono::milliseconds(50), 10, {}, {}, {}};
    for (std::size_t k = 0; k < estate.gpu->profiles.size(); ++k) {
      control::Offer offer;
      offer.capacity = 20;
      offer.retraining_slots = {8, 9};
      tenant.by_profile.push_back(offer);
    }
    estate.tenants.push_back(tenant);
  }
  estate.tenants[0].learning = workload::Learning{};
  estate.tenants[0].learning->accuracy = 0.8;
  estate.tenants[0].learning->options = {{"half", 50, 0.85}, {"full", 100, 0.9}};
  return estate;
}

control::View SmallView(const control::Estate& estate) {
  const auto place = [&](int start) {
    return gpu::MigInstance{start, *estate.gpu->FindProfile("1g.10gb")};
  };
  control::View view;
  view.slot = 133;
  view.tenants = {{0.7, 0.85, 100, false}, {1, 1, 0, false}};
  view.cells = {{{0, place(0), {Work::Kind::kServe, 1, 0}}, 12.5, 0},
                {{1, place(3), {Work::Kind::kRetrain, 0, 1}}, 130.25, 0.375}};
  return view;
}

TEST(ControlState, IsReadBackAsItWasWritten) {
  const control::Estate estate = SmallEstate();
  const control::View view = SmallView(estate);
  const std::string text = FormatControlState(estate, "migrator", view);
  const auto read = ParseControlState(text, estate, "migrator");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->slot, 133);
  ASSERT_THAT(read->cells, SizeIs(2));
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(read->cells[i].cell, view.cells[i].cell);
    EXPECT_EQ(read->cells[i].ready_at, view.cells[i].ready_at);
    EXPECT_EQ(read->cells[i].progress, view.cells[i].progress);
  }
  EXPECT_EQ(read->tenants[0].trained, 0.85);
  EXPECT_EQ(read->tenants[0].data_slot, 100);
  EXPECT_EQ(FormatControlState(estate, "migrator", *read), text);
}

TEST(ControlState, OfAnotherFleetOrPolicyIsRefused) {
  const control::Estate estate = SmallEstate();
  const std::string text = FormatControlState(estate, "migrator", SmallView(estate));
  control::Estate other = SmallEstate();
  other.tenants[1].by_profile[2].capacity = 21;
  EXPECT_EQ(ParseControlState(text, other, "migrator").error().message, "it is of another fleet");
  EXPECT_EQ(ParseControlState(text, estate, "static").error().message,
            "it is of the policy 'migrator'");
}

TEST(ControlState, ThatCannotBeIsDamaged) {
  const control::Estate estate = SmallEstate();
  control::View view = SmallView(estate);
  view.cells[1].cell = view.cells[0].cell;  // Two on one place.
  EXPECT_EQ(ParseControlState(FormatControlState(estate, "m", view), estate, "m").error().message,
            "it is damaged");
}

TEST(ControlState, AnyBytesGiveAViewOrAnError) {
  const control::Estate estate = SmallEstate();
  const std::string good = FormatControlState(estate, "m", SmallView(estate));
  Random random(11);
  int refused = 0;
  for (int round = 0; round < 3'000; ++round) {
    std::string text = good;
    for (std::uint64_t edits = 1 + random.Below(3); edits > 0 && !text.empty(); --edits) {
      const auto at = static_cast<std::size_t>(random.Below(text.size()));
      switch (random.Below(4)) {
        case 0:
          text[at] = static_cast<char>(random.Below(256));
          break;
        case 1:
          text[at] = "0129-.e[]{}\","[random.Below(13)];
          break;
        case 2:
          text.erase(at, 1 + random.Below(8));
          break;
        default:
          text.insert(at, text.substr(at, 1 + random.Below(8)));
      }
    }
    const auto read = ParseControlState(text, estate, "m");
    if (!read) ++refused;
    if (read) {
      EXPECT_THAT(read->tenants, SizeIs(2));
    }
  }
  EXPECT_GT(refused, 1'000);
  EXPECT_LT(refused, 3'000);
}

class ReplayTest : public ::testing::Test {
 protected:
  ReplayTest() {
    for (const double rate : {40.0, 3.0}) {
      workload::Load load;
      load.rate = rate;
      sources_.push_back({.model = {}, .slo = {}, .priority = 0, .arrivals = load});
    }
    trace_ = {{std::chrono::milliseconds(1500), 1}, {std::chrono::milliseconds(1999), 1}};
    sources_.push_back({.model = {},
                        .slo = {},
                        .priority = 0,
                        .arrivals = std::span<const workload::Arrival>(trace_)});
  }

  static constexpr int kSlots = 20;
  const Duration slot_ = std::chrono::seconds(1);
  std::vector<workload::Arrival> trace_;
  std::vector<sim::Source> sources_;
};

TEST_F(ReplayTest, HasTheRequestsThatPoliciesAreTriedOn) {
  const auto counts =
      control::CountBySlot(control::DrawArrivals(sources_, 5, slot_ * kSlots), slot_, kSlots);
  ReplayObservation replay(sources_, 5, slot_, 0);
  ASSERT_TRUE(replay.Look(0));
  for (int slot = 1; slot <= kSlots; ++slot) {
    const auto look = replay.Look(slot);
    ASSERT_TRUE(look && *look);
    for (std::size_t m = 0; m < sources_.size(); ++m) {
      EXPECT_EQ((**look)[m], counts[m][static_cast<std::size_t>(slot) - 1]) << m << " " << slot;
    }
  }
}

TEST_F(ReplayTest, GoesOnWhereItWasAndSpreadsWhatWasMissed) {
  ReplayObservation all(sources_, 5, slot_, 0);
  for (int slot = 1; slot <= 7; ++slot) ASSERT_TRUE(all.Look(slot));
  ReplayObservation resumed(sources_, 5, slot_, 7);
  EXPECT_EQ(**all.Look(8), **resumed.Look(8));
  const double ninth = (**all.Look(9))[0];
  const double tenth = (**all.Look(10))[0];
  EXPECT_EQ((**resumed.Look(10))[0], (ninth + tenth) / 2);
}

}  // namespace
}  // namespace divvy::app
