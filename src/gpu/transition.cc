#include "gpu/transition.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "gpu/placement_search.h"
#include "gpu/step_order.h"
#include "gpu/tally.h"

namespace divvy::gpu {
namespace {

using Kind = TransitionStep::Kind;

Transition MakeTransition(const GpuModel& model, std::span<const PresentInstance> present,
                          std::vector<MigInstance> target, std::vector<int> starts) {
  Transition transition;
  transition.steps = OrderSteps(model, present, target);
  transition.destroyed =
      static_cast<int>(std::ranges::count(transition.steps, Kind::kDestroy, &TransitionStep::kind));
  transition.target = std::move(target);
  transition.starts = std::move(starts);
  return transition;
}

// "a", "a and b", "a, b and c".
std::string Listed(const GpuModel& model, std::span<const MigInstance> instances) {
  std::string text;
  for (std::size_t i = 0; i < instances.size(); ++i) {
    if (i > 0) text += i + 1 == instances.size() ? " and " : ", ";
    text += Describe(model, instances[i]);
  }
  return text;
}

std::vector<MigInstance> BusyOnes(std::span<const PresentInstance> present) {
  std::vector<MigInstance> busy;
  for (const PresentInstance& each : present) {
    if (each.busy) busy.push_back(each.instance);
  }
  std::ranges::sort(busy);
  return busy;
}

std::vector<ProfileIndex> ProfilesOf(std::span<const WantedInstance> wanted) {
  std::vector<ProfileIndex> profiles;
  for (const WantedInstance& want : wanted) profiles.push_back(want.profile);
  std::ranges::sort(profiles);
  return profiles;
}

// What is wrong with `wanted` on any GPU of this model, however empty; else "".
std::string WhyNever(const GpuModel& model, std::span<const WantedInstance> wanted) {
  MigLayout fixed(model);
  for (const auto& [profile, start] : wanted) {
    if (!start) continue;
    if (const auto placed = fixed.Place({*start, profile}); !placed) return placed.error().message;
  }
  const std::vector<ProfileIndex> profiles = ProfilesOf(wanted);
  int compute = 0;
  int memory = 0;
  for (const ProfileIndex profile : profiles) {
    const MigProfile& kind = model.profile(profile);
    compute += kind.compute_slices;
    memory += kind.memory_slices;
    if (const auto count = std::ranges::count(profiles, profile); count > kind.max_instances) {
      return fmt::format("{} holds at most {} {}, not {}", model.name, kind.max_instances,
                         kind.name, count);
    }
  }
  // Engines may run out as well then, but that is not what people look for.
  if (compute > model.compute_slices || memory > model.memory_slices) {
    return fmt::format("{} takes {} compute and {} memory slices, while {} has {} and {}",
                       Describe(model, profiles), compute, memory, model.name, model.compute_slices,
                       model.memory_slices);
  }
  Tally tally(model);
  for (const ProfileIndex profile : profiles) {
    if (!tally.Fits(profile, 0)) {
      return fmt::format("{} has too few media engines for {}", model.name,
                         Describe(model, profiles));
    }
    tally.Add(profile, 0);
  }
  if (PlaceAll(model, {}, wanted)) return "";
  const bool anywhere = std::ranges::none_of(
      wanted, [](const WantedInstance& want) { return want.start.has_value(); });
  return fmt::format("{} cannot be placed together on one {}{}", Describe(model, profiles),
                     model.name, anywhere ? "" : " with the starts given");
}

std::string WhyNotNow(const GpuModel& model, std::span<const PresentInstance> present,
                      std::span<const WantedInstance> wanted,
                      std::span<const WantedInstance> missing) {
  if (const auto extra = BusyButUnwanted(present, wanted); !extra.empty()) {
    return fmt::format("{} {} busy and not among the wanted instances", Listed(model, extra),
                       extra.size() == 1 ? "is" : "are");
  }
  const std::vector<MigInstance> busy = BusyOnes(present);
  Check(!busy.empty(), "what fits an empty GPU fits where nothing is busy");
  return fmt::format("there is no room for {} while {} {} busy",
                     Describe(model, ProfilesOf(missing)), Listed(model, busy),
                     busy.size() == 1 ? "is" : "are");
}

Unreachable MakeUnreachable(const GpuModel& model, std::span<const PresentInstance> present,
                            std::span<const WantedInstance> wanted) {
  std::vector<MigInstance> target = PlaceMost(model, present, wanted);
  std::vector<int> starts = GrantedStarts(target, wanted);
  Unreachable answer;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (starts[i] < 0) answer.missing.push_back(wanted[i]);
  }
  answer.why = WhyNever(model, wanted);
  if (answer.why.empty()) answer.why = WhyNotNow(model, present, wanted, answer.missing);
  answer.nearest = MakeTransition(model, present, std::move(target), std::move(starts));
  return answer;
}

// Pairs what `transition` destroys with what it creates. Alike instances are
// interchangeable; of those created, the last is the new one, so that the moved
// ones are back first.
Defragmentation MakeDefragmentation(Transition transition, std::span<const PresentInstance> present,
                                    ProfileIndex wanted) {
  std::vector<MigInstance> gone;
  std::vector<MigInstance> created;
  for (const auto& [kind, instance] : transition.steps) {
    (kind == Kind::kDestroy ? gone : created).push_back(instance);
  }
  const auto fresh = std::find_if(created.rbegin(), created.rend(),
                                  [&](const MigInstance& c) { return c.profile == wanted; });
  Check(fresh != created.rend(), "the wanted instance is created");
  Defragmentation answer;
  answer.start = fresh->start;
  created.erase(std::next(fresh).base());

  std::ranges::sort(gone);
  std::ranges::sort(created);
  for (const MigInstance& from : gone) {
    const auto to = std::ranges::find(created, from.profile, &MigInstance::profile);
    Check(to != created.end(), "every present instance continues to exist");
    answer.moves.push_back({from.profile, from.start, to->start});
    created.erase(to);
  }
  transition.starts.clear();
  for (const PresentInstance& each : present) {
    const auto move = std::ranges::find(answer.moves, each.instance.start, &Move::from);
    transition.starts.push_back(move == answer.moves.end() ? each.instance.start : move->to);
  }
  transition.starts.push_back(answer.start);
  answer.transition = std::move(transition);
  return answer;
}

}  // namespace

TransitionAnswer PlanTransition(const GpuModel& model, std::span<const PresentInstance> present,
                                std::span<const WantedInstance> wanted) {
  auto target = PlaceAll(model, present, wanted);
  if (!target) return MakeUnreachable(model, present, wanted);
  std::vector<int> starts = GrantedStarts(*target, wanted);
  return MakeTransition(model, present, *std::move(target), std::move(starts));
}

std::variant<Defragmentation, Unreachable> PlanDefragmentation(
    const GpuModel& model, std::span<const PresentInstance> present, ProfileIndex wanted) {
  std::vector<WantedInstance> all;
  std::vector<MigInstance> now;
  Unreachable unchanged;
  for (const PresentInstance& each : present) {
    all.push_back({each.instance.profile, std::nullopt});
    now.push_back(each.instance);
    unchanged.nearest.starts.push_back(each.instance.start);
  }
  all.push_back({wanted, std::nullopt});
  if (auto target = PlaceAll(model, present, all)) {
    return MakeDefragmentation(MakeTransition(model, present, *std::move(target), {}), present,
                               wanted);
  }
  std::ranges::sort(now);
  unchanged.missing = {{wanted, std::nullopt}};
  unchanged.why = WhyNever(model, all);
  if (unchanged.why.empty()) unchanged.why = WhyNotNow(model, present, all, unchanged.missing);
  unchanged.nearest.target = std::move(now);
  unchanged.nearest.starts.push_back(-1);
  return unchanged;
}

}  // namespace divvy::gpu
