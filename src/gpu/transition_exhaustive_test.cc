#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "gpu/brute_force.h"
#include "gpu/catalogue.h"
#include "gpu/enumerate.h"
#include "gpu/transition.h"
#include "gpu/transition_checker.h"

// PlanTransition against a search of the graph of all layouts.

namespace divvy::gpu {
namespace {

using brute_force::kUnreached;
using brute_force::LayoutGraph;
using Layout = std::vector<MigInstance>;
using Wanted = std::vector<WantedInstance>;

const GpuModel& A100() { return **FindGpuModel("A100-40GB"); }

std::vector<PresentInstance> Present(const Layout& layout, std::uint64_t busy = 0) {
  std::vector<PresentInstance> present;
  for (std::size_t i = 0; i < layout.size(); ++i) {
    present.push_back({layout[i], (busy >> i & 1) != 0});
  }
  return present;
}

Layout BusyOf(const std::vector<PresentInstance>& present) {
  Layout busy;
  for (const PresentInstance& each : present) {
    if (each.busy) busy.push_back(each.instance);
  }
  return busy;
}

Wanted Anywhere(const std::vector<ProfileIndex>& profiles) {
  Wanted wanted;
  for (const ProfileIndex profile : profiles) wanted.push_back({profile, std::nullopt});
  return wanted;
}

Wanted Exactly(const Layout& layout) {
  Wanted wanted;
  for (const MigInstance& instance : layout) wanted.push_back({instance.profile, instance.start});
  return wanted;
}

// Holds one answer to the graph. `destroys` is what the graph says about the way
// from `present` to every layout, `least` that of the best layout that grants all.
void ExpectBest(const LayoutGraph& graph, const std::vector<PresentInstance>& present,
                const Wanted& wanted, std::span<const int> destroys, int least) {
  const TransitionAnswer answer = PlanTransition(graph.model(), present, wanted);
  if (const auto* found = std::get_if<Transition>(&answer)) {
    ASSERT_EQ(found->destroyed, least);
    ASSERT_EQ(TransitionChecker(graph.model(), present, *found).Complaint(wanted, false), "");
    return;
  }
  ASSERT_EQ(least, kUnreached);
  const auto& unreachable = std::get<Unreachable>(answer);
  const Transition& nearest = unreachable.nearest;
  ASSERT_EQ(TransitionChecker(graph.model(), present, nearest).Complaint(wanted, true), "");
  const auto grant = brute_force::GrantOf(graph.model(), nearest.target, wanted);
  ASSERT_EQ(std::tuple(grant.compute, grant.instances, -nearest.destroyed),
            graph.Nearest(destroys, BusyOf(present), wanted));
  ASSERT_EQ(std::ranges::count(nearest.starts, -1),
            static_cast<std::ptrdiff_t>(unreachable.missing.size()));
  ASSERT_EQ(wanted.size() - unreachable.missing.size(), static_cast<std::size_t>(grant.instances));
  ASSERT_FALSE(unreachable.why.empty());
}

// As above, where the caller has not looked for the least yet.
void ExpectBest(const LayoutGraph& graph, const std::vector<PresentInstance>& present,
                const Wanted& wanted, std::span<const int> destroys) {
  int least = kUnreached;
  for (std::size_t i = 0; i < destroys.size(); ++i) {
    const Layout& layout = graph.layouts()[i];
    if (destroys[i] < least && layout.size() == wanted.size() &&
        brute_force::GrantOf(graph.model(), layout, wanted).instances ==
            static_cast<int>(wanted.size())) {
      least = destroys[i];
    }
  }
  ExpectBest(graph, present, wanted, destroys, least);
}

// The least over all layouts of one multiset, for all multisets at once.
std::map<std::vector<ProfileIndex>, int> LeastByMultiset(const LayoutGraph& graph,
                                                         std::span<const int> destroys) {
  std::map<std::vector<ProfileIndex>, int> least;
  for (std::size_t i = 0; i < destroys.size(); ++i) {
    const auto [at, fresh] = least.try_emplace(ProfilesOf(graph.layouts()[i]), destroys[i]);
    at->second = std::min(at->second, destroys[i]);
  }
  return least;
}

// What OpenSpace::Score says about the free space of `layout`, found by looking at
// every layout that adds to it.
std::pair<int, int> Openness(const LayoutGraph& graph, const Layout& layout) {
  std::pair<int, int> openness = {0, 0};
  for (const Layout& other : graph.layouts()) {
    if (!std::ranges::includes(other, layout)) continue;
    int more = 0;
    for (const MigInstance& instance : other) {
      more += graph.model().profile(instance.profile).compute_slices;
    }
    for (const MigInstance& instance : layout) {
      more -= graph.model().profile(instance.profile).compute_slices;
    }
    openness.first = std::max(openness.first, more);
    if (other.size() == layout.size() + 1) ++openness.second;
  }
  return openness;
}

TEST(TransitionExhaustiveTest, TiesGoToTheLeastFragmentedThenToTheFirstLayout) {
  const LayoutGraph graph(A100(), A100().Select(ProfileSet::kBase));
  std::vector<std::pair<int, int>> openness;
  std::map<std::vector<ProfileIndex>, std::vector<std::size_t>> alike;
  for (const Layout& layout : graph.layouts()) {
    alike[ProfilesOf(layout)].push_back(openness.size());
    openness.push_back(Openness(graph, layout));
  }
  for (std::size_t from = 0; from < graph.layouts().size(); ++from) {
    const auto destroys = graph.Destroys(from, {});
    for (const auto& [profiles, layouts] : alike) {
      const std::size_t best = *std::ranges::min_element(layouts, {}, [&](std::size_t i) {
        return std::tuple(destroys[i], -openness[i].first, -openness[i].second, graph.layouts()[i]);
      });
      const auto answer =
          PlanTransition(A100(), Present(graph.layouts()[from]), Anywhere(profiles));
      ASSERT_EQ(std::get<Transition>(answer).target, graph.layouts()[best]);
    }
  }
}

TEST(TransitionExhaustiveTest, EveryPairOfA100LayoutsByProfilesAndByPlaces) {
  const LayoutGraph graph(A100(), A100().Select(ProfileSet::kBase));
  ASSERT_EQ(graph.layouts().size(), 298U);
  std::size_t pairs = 0;
  for (std::size_t from = 0; from < graph.layouts().size(); ++from) {
    const auto present = Present(graph.layouts()[from]);
    const auto destroys = graph.Destroys(from, {});
    const auto least = LeastByMultiset(graph, destroys);
    // Pairs whose targets have equal profiles are one and the same question.
    for (const auto& [profiles, fewest] : least) {
      ExpectBest(graph, present, Anywhere(profiles), destroys, fewest);
    }
    for (std::size_t to = 0; to < graph.layouts().size(); ++to, ++pairs) {
      ExpectBest(graph, present, Exactly(graph.layouts()[to]), destroys, destroys[to]);
    }
    if (HasFatalFailure()) FAIL() << "from layout " << from;
  }
  EXPECT_EQ(pairs, 88804U);
}

TEST(TransitionExhaustiveTest, EveryPairOfMaximalLayoutsWithEverySubsetBusy) {
  const auto base = A100().Select(ProfileSet::kBase);
  const LayoutGraph graph(A100(), base);
  const auto maximal = EnumerateMaximalLayouts(A100(), base);
  const auto multisets = DistinctMultisets(maximal);
  int unreachable = 0;
  for (const MigLayout& from : maximal) {
    for (std::uint64_t busy = 0; busy >> from.instances().size() == 0; ++busy) {
      const auto present = Present(from.instances(), busy);
      const auto destroys = graph.Destroys(graph.IndexOf(from.instances()), BusyOf(present));
      const auto least = LeastByMultiset(graph, destroys);
      for (const auto& profiles : multisets) {
        unreachable += least.at(profiles) == kUnreached ? 1 : 0;
        ExpectBest(graph, present, Anywhere(profiles), destroys, least.at(profiles));
      }
      for (const MigLayout& to : maximal) {
        ExpectBest(graph, present, Exactly(to.instances()), destroys,
                   destroys[graph.IndexOf(to.instances())]);
      }
      if (HasFatalFailure()) FAIL() << "busy " << busy;
    }
  }
  EXPECT_GT(unreachable, 0);
}

// Questions drawn at random: any present layout, any of it busy, any layout wanted,
// each of its instances with or without its place; now and then more than fits.
void AskAtRandom(const GpuModel& model, ProfileSet set, int questions, std::uint32_t seed) {
  const LayoutGraph graph(model, model.Select(set));
  std::mt19937 random(seed);
  const auto below = [&](std::size_t n) { return random() % n; };
  for (int i = 0; i < questions; ++i) {
    const std::size_t from = below(graph.layouts().size());
    const auto some = random();
    const auto present = Present(graph.layouts()[from], i % 2 == 0 ? 0 : some & random());
    const auto destroys = graph.Destroys(from, BusyOf(present));
    for (int j = 0; j < 8; ++j) {
      Wanted wanted = Exactly(graph.layouts()[below(graph.layouts().size())]);
      for (WantedInstance& want : wanted) {
        if (below(2) == 0) want.start.reset();
      }
      if (j == 0) {
        const Wanted more = Exactly(graph.layouts()[below(graph.layouts().size())]);
        wanted.insert(wanted.end(), more.begin(), more.end());
      }
      std::ranges::shuffle(wanted, random);
      ExpectBest(graph, present, wanted, destroys);
      if (testing::Test::HasFatalFailure()) FAIL() << model.name << ", question " << i;
    }
  }
}

TEST(TransitionExhaustiveTest, RandomQuestionsOnAnA100WithTheDoubleMemoryProfile) {
  AskAtRandom(A100(), ProfileSet::kDouble, 300, 1);
}

TEST(TransitionExhaustiveTest, RandomQuestionsOnAnA100WithAllProfiles) {
  AskAtRandom(A100(), ProfileSet::kAll, 150, 2);
}

TEST(TransitionExhaustiveTest, RandomQuestionsOnAnA30WithAllProfiles) {
  AskAtRandom(**FindGpuModel("A30-24GB"), ProfileSet::kAll, 2000, 3);
}

TEST(TransitionExhaustiveTest, RandomQuestionsOnAnRtxProWithAllProfiles) {
  AskAtRandom(**FindGpuModel("RTX-PRO-6000-Blackwell-96GB"), ProfileSet::kAll, 300, 4);
}

TEST(TransitionExhaustiveTest, RandomQuestionsWhereEnginesAreUnseen) {
  AskAtRandom(**FindGpuModel("B200-180GB"), ProfileSet::kAll, 60, 5);
}

TEST(TransitionExhaustiveTest, EveryPairOfTheMaximalLayoutsWithTheDoubleMemoryProfile) {
  const auto profiles = A100().Select(ProfileSet::kDouble);
  const LayoutGraph graph(A100(), profiles);
  const auto maximal = EnumerateMaximalLayouts(A100(), profiles);
  ASSERT_EQ(maximal.size(), 78U);
  for (const MigLayout& from : maximal) {
    const auto present = Present(from.instances());
    const auto destroys = graph.Destroys(graph.IndexOf(from.instances()), {});
    const auto least = LeastByMultiset(graph, destroys);
    for (const auto& multiset : DistinctMultisets(maximal)) {
      ExpectBest(graph, present, Anywhere(multiset), destroys, least.at(multiset));
    }
    if (HasFatalFailure()) FAIL();
  }
}

// Creates `order` one by one, each where `choose` says; false when one finds no place.
template <typename Choose>
bool Creates(const std::vector<ProfileIndex>& order, Choose choose) {
  MigLayout layout(A100());
  return std::ranges::all_of(order, [&](ProfileIndex profile) {
    const std::optional<int> start = choose(layout, profile);
    return start && layout.Place({*start, profile});
  });
}

std::optional<int> LowestStart(const MigLayout& layout, ProfileIndex profile) {
  const auto starts = layout.FreeStarts(profile);
  return starts.empty() ? std::nullopt : std::optional(starts.front());
}

// Where the planner puts one more instance, unaware of what comes next.
std::optional<int> LeastFragmentingStart(const MigLayout& layout, ProfileIndex profile) {
  Wanted wanted = Exactly(layout.instances());
  wanted.push_back({profile, std::nullopt});
  const auto answer =
      PlanTransition(A100(), Present(layout.instances(), ~std::uint64_t{0}), wanted);
  const auto* found = std::get_if<Transition>(&answer);
  return found == nullptr ? std::nullopt : std::optional(found->starts.back());
}

TEST(TransitionExhaustiveTest, PlannedPlacesSucceedInEveryOrderOfCreation) {
  const auto base = A100().Select(ProfileSet::kBase);
  int orders = 0;
  int planned = 0;
  int lowest = 0;
  int least_fragmenting = 0;
  for (std::vector<ProfileIndex> order : DistinctMultisets(EnumerateLayouts(A100(), base))) {
    const auto plan = std::get<Transition>(PlanTransition(A100(), {}, Anywhere(order)));
    do {
      std::multimap<ProfileIndex, int> places;
      for (const auto& [start, profile] : plan.target) places.emplace(profile, start);
      ++orders;
      planned += Creates(order, [&](const MigLayout&, ProfileIndex profile) {
        return std::optional(places.extract(places.find(profile)).mapped());
      });
      lowest += Creates(order, LowestStart);
      least_fragmenting += Creates(order, LeastFragmentingStart);
    } while (std::ranges::next_permutation(order).found);
  }
  EXPECT_EQ(orders, 113);
  EXPECT_EQ(planned, 113);
  EXPECT_EQ(lowest, 86);
  EXPECT_EQ(least_fragmenting, 98);
}

// The fewest moves by trying every layout that holds the present profiles and the
// wanted one and leaves the pinned instances alone.
int FewestMoves(const LayoutGraph& graph, std::span<const int> destroys, const Layout& present,
                ProfileIndex wanted) {
  auto profiles = ProfilesOf(present);
  profiles.insert(std::ranges::upper_bound(profiles, wanted), wanted);
  int fewest = kUnreached;
  for (std::size_t i = 0; i < destroys.size(); ++i) {
    if (ProfilesOf(graph.layouts()[i]) == profiles) fewest = std::min(fewest, destroys[i]);
  }
  return fewest;
}

void ExpectBestRoom(const LayoutGraph& graph, const std::vector<PresentInstance>& present,
                    ProfileIndex wanted, int fewest) {
  const auto answer = PlanDefragmentation(graph.model(), present, wanted);
  Wanted all;
  for (const PresentInstance& each : present) all.push_back({each.instance.profile, std::nullopt});
  all.push_back({wanted, std::nullopt});
  if (const auto* nothing = std::get_if<Unreachable>(&answer)) {
    ASSERT_EQ(fewest, kUnreached);
    ASSERT_TRUE(nothing->nearest.steps.empty());
    ASSERT_EQ(nothing->nearest.target.size(), present.size());
    return;
  }
  const auto& room = std::get<Defragmentation>(answer);
  ASSERT_EQ(static_cast<int>(room.moves.size()), fewest);
  ASSERT_EQ(TransitionChecker(graph.model(), present, room.transition).Complaint(all, false), "");
  // The moves and the new instance account for the target, one by one.
  Layout after;
  for (const PresentInstance& each : present) {
    const auto move = std::ranges::find(room.moves, each.instance.start, &Move::from);
    if (move == room.moves.end()) {
      after.push_back(each.instance);
      continue;
    }
    ASSERT_EQ(move->profile, each.instance.profile);
    ASSERT_FALSE(each.busy);
    after.push_back({move->to, move->profile});
  }
  after.push_back({room.start, wanted});
  for (std::size_t i = 0; i < after.size(); ++i) {
    ASSERT_EQ(room.transition.starts[i], after[i].start);
  }
  std::ranges::sort(after);
  ASSERT_EQ(after, room.transition.target);
}

TEST(TransitionExhaustiveTest, DefragmentationMovesAsFewAsAnyWay) {
  const auto base = A100().Select(ProfileSet::kBase);
  const LayoutGraph graph(A100(), base);
  std::mt19937 random(6);
  int moved = 0;
  for (std::size_t from = 0; from < graph.layouts().size(); ++from) {
    for (const std::uint64_t busy : {std::uint64_t{0}, std::uint64_t{random()}}) {
      const Layout& layout = graph.layouts()[from];
      const auto present = Present(layout, busy);
      const auto destroys = graph.Destroys(from, BusyOf(present));
      for (const ProfileIndex wanted : base) {
        const int fewest = FewestMoves(graph, destroys, layout, wanted);
        moved += fewest != kUnreached && fewest > 0 ? 1 : 0;
        ExpectBestRoom(graph, present, wanted, fewest);
      }
    }
    if (HasFatalFailure()) FAIL() << "layout " << from;
  }
  EXPECT_GT(moved, 0);
}

}  // namespace
}  // namespace divvy::gpu
