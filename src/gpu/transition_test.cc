#include "gpu/transition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gpu/catalogue.h"
#include "gpu/transition_checker.h"

namespace divvy::gpu {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const GpuModel& A30() { return **FindGpuModel("A30-24GB"); }
const GpuModel& A100() { return **FindGpuModel("A100-40GB"); }
const GpuModel& RtxPro() { return **FindGpuModel("RTX-PRO-6000-Blackwell-96GB"); }

// A present instance in one word, "2g.10gb@4", with a '!' at the end when busy.
PresentInstance P(const GpuModel& model, std::string text) {
  const bool busy = text.back() == '!';
  const std::size_t at = text.find('@');
  return {{std::stoi(text.substr(at + 1)), *model.FindProfile(text.substr(0, at))}, busy};
}

std::vector<PresentInstance> Present(const GpuModel& model, const std::vector<std::string>& texts) {
  std::vector<PresentInstance> present;
  for (const std::string& text : texts) present.push_back(P(model, text));
  return present;
}

// Wanted instances, "2g.10gb" for anywhere.
std::vector<WantedInstance> Wanted(const GpuModel& model, const std::vector<std::string>& texts) {
  std::vector<WantedInstance> wanted;
  for (const std::string& text : texts) {
    const std::size_t at = text.find('@');
    wanted.push_back({*model.FindProfile(text.substr(0, at)), std::nullopt});
    if (at != std::string::npos) wanted.back().start = std::stoi(text.substr(at + 1));
  }
  return wanted;
}

std::vector<std::string> Steps(const GpuModel& model, const Transition& transition) {
  std::vector<std::string> steps;
  for (const auto& [kind, instance] : transition.steps) {
    steps.push_back((kind == TransitionStep::Kind::kCreate ? "+" : "-") +
                    model.profile(instance.profile).name + "@" + std::to_string(instance.start));
  }
  return steps;
}

Transition Reach(const GpuModel& model, const std::vector<std::string>& present,
                 const std::vector<std::string>& wanted) {
  const auto now = Present(model, present);
  const auto then = Wanted(model, wanted);
  auto answer = PlanTransition(model, now, then);
  const auto* unreachable = std::get_if<Unreachable>(&answer);
  EXPECT_EQ(unreachable, nullptr) << unreachable->why;
  if (unreachable != nullptr) return {};
  auto transition = std::get<Transition>(std::move(answer));
  EXPECT_EQ(TransitionChecker(model, now, transition).Complaint(then, false), "");
  return transition;
}

Unreachable Miss(const GpuModel& model, const std::vector<std::string>& present,
                 const std::vector<std::string>& wanted) {
  const auto now = Present(model, present);
  const auto then = Wanted(model, wanted);
  auto answer = PlanTransition(model, now, then);
  EXPECT_TRUE(std::holds_alternative<Unreachable>(answer));
  if (std::holds_alternative<Transition>(answer)) return {};
  auto unreachable = std::get<Unreachable>(std::move(answer));
  EXPECT_EQ(TransitionChecker(model, now, unreachable.nearest).Complaint(then, true), "");
  return unreachable;
}

TEST(TransitionTest, WhatIsThereAlreadyNeedsNoStep) {
  const Transition nothing = Reach(A100(), {"3g.20gb@4!", "1g.5gb@0"}, {"1g.5gb", "3g.20gb"});
  EXPECT_THAT(nothing.steps, IsEmpty());
  EXPECT_THAT(nothing.starts, ElementsAre(0, 4));
  EXPECT_THAT(Reach(A100(), {}, {}).steps, IsEmpty());
}

TEST(TransitionTest, FreeSpaceIsUsedBeforeAnythingIsDestroyed) {
  const Transition swap = Reach(A100(), {"3g.20gb@0"}, {"3g.20gb@4"});
  EXPECT_THAT(Steps(A100(), swap), ElementsAre("+3g.20gb@4", "-3g.20gb@0"));
  EXPECT_EQ(swap.destroyed, 1);
}

TEST(TransitionTest, DestroysOnlyWhatTheNextCreateNeeds) {
  const Transition change = Reach(A100(), {"1g.5gb@0", "1g.5gb@1", "1g.5gb@2", "1g.5gb@3"},
                                  {"2g.10gb@0", "2g.10gb@2", "3g.20gb@4"});
  EXPECT_THAT(Steps(A100(), change),
              ElementsAre("+3g.20gb@4", "-1g.5gb@0", "-1g.5gb@1", "+2g.10gb@0", "-1g.5gb@2",
                          "-1g.5gb@3", "+2g.10gb@2"));
}

TEST(TransitionTest, TheCreateThatNeedsLeastComesFirst) {
  const Transition change =
      Reach(A100(), {"1g.5gb@0", "1g.5gb@1", "1g.5gb@2", "2g.10gb@4"}, {"4g.20gb@0", "1g.5gb@4"});
  EXPECT_THAT(Steps(A100(), change), ElementsAre("-2g.10gb@4", "+1g.5gb@4", "-1g.5gb@0",
                                                 "-1g.5gb@1", "-1g.5gb@2", "+4g.20gb@0"));
}

TEST(TransitionTest, WhatNobodyNeedsGoneGoesLast) {
  const Transition shrink = Reach(A100(), {"3g.20gb@0", "1g.5gb@6"}, {"3g.20gb", "2g.10gb@4"});
  EXPECT_THAT(Steps(A100(), shrink), ElementsAre("+2g.10gb@4", "-1g.5gb@6"));
}

TEST(TransitionTest, KeepsIdleInstancesWhereverTheyLie) {
  // First fit would put the 3g at 0 and destroy all three.
  const Transition keep = Reach(A100(), {"1g.5gb@1", "1g.5gb@2", "1g.5gb@3"},
                                {"3g.20gb", "1g.5gb", "1g.5gb", "1g.5gb"});
  EXPECT_THAT(Steps(A100(), keep), ElementsAre("+3g.20gb@4"));
  EXPECT_THAT(keep.starts, ElementsAre(4, 1, 2, 3));
}

TEST(TransitionTest, AWantedPlaceIsNotGivenAway) {
  const Transition placed = Reach(A100(), {"1g.5gb@3!"}, {"1g.5gb", "1g.5gb@3", "1g.5gb@0"});
  EXPECT_EQ(placed.starts[1], 3);
  EXPECT_EQ(placed.starts[2], 0);
  EXPECT_EQ(placed.destroyed, 0);
}

TEST(TransitionTest, NewInstancesGoWhereTheyLeaveMostRoom) {
  // At 6, a lone 1g spoils no 3g or 4g.
  EXPECT_THAT(Reach(A100(), {}, {"1g.5gb"}).starts, ElementsAre(6));
  EXPECT_THAT(Reach(A100(), {}, {"3g.20gb"}).starts, ElementsAre(4));
}

TEST(TransitionTest, AMediaEngineMustBeFreedBeforeItIsUsedAgain) {
  // Slices are free, but the GPU has one of these engines.
  const Transition moved = Reach(A100(), {"1g.5gb+me@0", "1g.5gb@1"}, {"1g.5gb+me@4", "1g.5gb"});
  EXPECT_THAT(Steps(A100(), moved), ElementsAre("-1g.5gb+me@0", "+1g.5gb+me@4"));
  const Transition other = Reach(A30(), {"1g.6gb+me@0", "1g.6gb@1"}, {"2g.12gb+me", "1g.6gb"});
  EXPECT_THAT(Steps(A30(), other), ElementsAre("-1g.6gb+me@0", "+2g.12gb+me@2"));
}

TEST(TransitionTest, AllMediaEnginesTakeEveryDoomedOwnerFirst) {
  const Transition change =
      Reach(RtxPro(), {"1g.24gb@0", "1g.24gb@3", "1g.24gb-me@6"}, {"1g.24gb+me.all", "1g.24gb-me"});
  EXPECT_THAT(Steps(RtxPro(), change),
              ElementsAre("-1g.24gb@0", "-1g.24gb@3", "+1g.24gb+me.all@9"));
}

TEST(TransitionTest, EveryKindOfEngineLimitsButCopyEngines) {
  for (int Engines::* kind :
       {&Engines::copy, &Engines::decoders, &Engines::encoders, &Engines::jpeg, &Engines::ofa}) {
    GpuModel model = A100();
    model.engines = Engines{1, 1, 1, 1, 1};
    model.profiles[0].engines = Engines{};
    (*model.profiles[0].engines).*kind = 1;
    const auto answer = PlanTransition(model, {}, Wanted(model, {"1g.5gb", "1g.5gb"}));
    EXPECT_EQ(std::holds_alternative<Transition>(answer), kind == &Engines::copy);
  }
}

TEST(TransitionTest, BusyInstancesNobodyWantsAreNamedAndStay) {
  const Unreachable miss = Miss(A100(), {"1g.5gb@3!", "2g.10gb@4!", "1g.5gb@0"}, {"4g.20gb"});
  EXPECT_EQ(miss.why, "1g.5gb at 3 and 2g.10gb at 4 are busy and not among the wanted instances");
  EXPECT_THAT(miss.nearest.starts, ElementsAre(-1));
  EXPECT_THAT(Steps(A100(), miss.nearest), ElementsAre("-1g.5gb@0"));
  ASSERT_EQ(miss.missing.size(), 1U);
}

TEST(TransitionTest, TheNearestLayoutGrantsWhatItCan) {
  const Unreachable miss = Miss(A100(), {"1g.5gb@1!"}, {"2g.10gb@4", "4g.20gb", "1g.5gb"});
  EXPECT_EQ(miss.why, "there is no room for 4g.20gb while 1g.5gb at 1 is busy");
  EXPECT_THAT(miss.nearest.starts, ElementsAre(4, -1, 1));
  EXPECT_EQ(miss.missing.front().profile, *A100().FindProfile("4g.20gb"));
}

TEST(TransitionTest, WhatNoGpuCouldHoldIsSaidSo) {
  const auto why = [](const GpuModel& model, const std::vector<std::string>& wanted) {
    return Miss(model, {}, wanted).why;
  };
  EXPECT_EQ(why(A100(), {"3g.20gb@2"}),
            "3g.20gb may not begin at slice 2 of A100-40GB, only at 0, 4");
  EXPECT_EQ(why(A100(), {"4g.20gb@0", "1g.5gb@2"}), "1g.5gb at 2 overlaps 4g.20gb at 0");
  EXPECT_EQ(why(A100(), {"4g.20gb", "4g.20gb"}), "A100-40GB holds at most 1 4g.20gb, not 2");
  EXPECT_EQ(why(A100(), {"3g.20gb", "3g.20gb", "1g.5gb"}),
            "1g.5gb + 2x 3g.20gb takes 7 compute and 9 memory slices, while A100-40GB has 7 and 8");
  EXPECT_EQ(why(A100(), {"3g.20gb@0", "4g.20gb"}),
            "3g.20gb + 4g.20gb cannot be placed together on one A100-40GB with the starts given");
  EXPECT_EQ(why(A30(), {"1g.6gb+me", "2g.12gb+me"}),
            "A30-24GB has too few media engines for 1g.6gb+me + 2g.12gb+me");
}

TEST(TransitionTest, TheSamePlaceTwiceIsGrantedOnce) {
  const Unreachable miss = Miss(A100(), {"2g.10gb@0!"}, {"2g.10gb@0", "2g.10gb@0"});
  EXPECT_THAT(miss.nearest.starts, ElementsAre(0, -1));
  EXPECT_THAT(miss.nearest.steps, IsEmpty());
}

TEST(TransitionTest, AbsurdWishesAreAnsweredToo) {
  std::vector<std::string> wanted(500, "1g.24gb-me");
  for (int i = 0; i < 200; ++i) {
    wanted.push_back("2g.48gb@" + std::to_string(i % 12));
    wanted.push_back("1g.24gb+gfx@" + std::to_string(i % 12));
    wanted.push_back("1g.24gb+me.all");
  }
  const Unreachable miss = Miss(RtxPro(), {"1g.24gb@3!"}, wanted);
  // Three quarters beside the busy one; the first of equals by place.
  EXPECT_EQ(miss.missing.size(), wanted.size() - 3);
}

TEST(DefragmentationTest, RoomThatIsThereNeedsNoMove) {
  const auto answer =
      PlanDefragmentation(A100(), Present(A100(), {"4g.20gb@0!"}), *A100().FindProfile("3g.20gb"));
  const auto& room = std::get<Defragmentation>(answer);
  EXPECT_THAT(room.moves, IsEmpty());
  EXPECT_EQ(room.start, 4);
  EXPECT_THAT(Steps(A100(), room.transition), ElementsAre("+3g.20gb@4"));
}

TEST(DefragmentationTest, MovesTheOneInstanceInTheWay) {
  const auto answer =
      PlanDefragmentation(A100(), Present(A100(), {"3g.20gb@0"}), *A100().FindProfile("4g.20gb"));
  const auto& room = std::get<Defragmentation>(answer);
  EXPECT_THAT(room.moves, ElementsAre(Move{*A100().FindProfile("3g.20gb"), 0, 4}));
  EXPECT_THAT(Steps(A100(), room.transition),
              ElementsAre("+3g.20gb@4", "-3g.20gb@0", "+4g.20gb@0"));
  EXPECT_THAT(room.transition.starts, ElementsAre(4, 0));
}

TEST(DefragmentationTest, OneOfTheMovedKindCanBeTheWantedKind) {
  const auto answer = PlanDefragmentation(A100(), Present(A100(), {"1g.5gb@0", "2g.10gb@2!"}),
                                          *A100().FindProfile("1g.5gb"));
  EXPECT_THAT(std::get<Defragmentation>(answer).moves, IsEmpty());
}

TEST(DefragmentationTest, BusyInstancesDoNotMoveAndNothingIsGivenUp) {
  const auto answer = PlanDefragmentation(A100(), Present(A100(), {"1g.5gb@5", "3g.20gb@0!"}),
                                          *A100().FindProfile("4g.20gb"));
  const auto& stuck = std::get<Unreachable>(answer);
  EXPECT_EQ(stuck.why,
            "1g.5gb + 3g.20gb + 4g.20gb takes 8 compute and 9 memory slices, while A100-40GB has 7 "
            "and 8");
  EXPECT_THAT(stuck.nearest.steps, IsEmpty());
  EXPECT_THAT(stuck.nearest.starts, ElementsAre(5, 0, -1));
  EXPECT_EQ(stuck.nearest.target.front().start, 0);

  const auto pinned =
      PlanDefragmentation(A100(), Present(A100(), {"3g.20gb@0!"}), *A100().FindProfile("4g.20gb"));
  EXPECT_EQ(std::get<Unreachable>(pinned).why,
            "there is no room for 4g.20gb while 3g.20gb at 0 is busy");
}

}  // namespace
}  // namespace divvy::gpu
