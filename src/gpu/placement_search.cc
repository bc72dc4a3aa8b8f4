#include "gpu/placement_search.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "gpu/open_space.h"
#include "gpu/tally.h"

namespace divvy::gpu {
namespace {

// What a layout is worth, as one number so that the search adds and compares
// words. From the top: compute slices granted, instances granted, present
// instances kept, OpenSpace::Score of what stays free.
using Value = std::uint64_t;
constexpr Value kComputeSlice = Value{1} << 40;
constexpr Value kInstance = Value{1} << 32;
constexpr Value kKept = Value{1} << 24;
constexpr Value kBestScore = kKept - 1;

// A layout as the profile that begins at each slice. Comparing such arrays
// compares the sorted instances of two layouts of equally many.
constexpr std::uint8_t kNone = 0xFF;
using ByStart = std::array<std::uint8_t, 32>;

struct Option {
  int start;
  SliceMask slices;
  bool kept;  // The instance is there already.
};

// `count` alike instances, each on another of the options. Those that keep a
// present instance come first: good layouts found early cut more.
struct Group {
  ProfileIndex profile;
  int count;
  Value each;  // What one instance is worth.
  int kept;    // How many options keep a present instance.
  std::vector<Option> options;
};

enum class Missing { kForbidden, kAllowed };

// Depth-first over groups, within a group over ascending options, so that alike
// instances are never permuted. Cuts a branch when even granting and keeping all
// that is left could not reach the best layout so far.
class Search {
 public:
  Search(const GpuModel& model, std::span<const PresentInstance> present,
         std::span<const WantedInstance> wanted, Missing missing)
      : model_(model),
        all_slices_((SliceMask{1} << model.memory_slices) - 1),
        missing_(missing),
        tally_(model),
        open_(model) {
    at_.fill(kNone);
    present_at_.fill(kNone);
    HoldBusy(present);
    AddGroups(wanted);
  }

  // The best layout by start, if there is one.
  std::optional<std::vector<MigInstance>> Run() {
    if (hopeless_) return std::nullopt;
    NextGroup(0);
    if (!found_) return std::nullopt;
    std::vector<MigInstance> target;
    for (std::size_t start = 0; start < best_at_.size(); ++start) {
      if (best_at_[start] == kNone) continue;
      target.push_back({static_cast<int>(start), static_cast<ProfileIndex>(best_at_[start])});
    }
    return target;
  }

 private:
  void HoldBusy(std::span<const PresentInstance> present) {
    for (const auto& [instance, busy] : present) {
      const auto start = static_cast<std::size_t>(instance.start);
      Check(start < present_at_.size(), "present instances are a legal layout");
      present_at_[start] = static_cast<std::uint8_t>(instance.profile);
      if (!busy) continue;
      const SliceMask slices = SlicesOf(model_.profile(instance.profile), instance.start);
      Check(tally_.Fits(instance.profile, slices), "present instances are a legal layout");
      tally_.Add(instance.profile, slices);
      at_[start] = present_at_[start];
    }
  }

  // Wanted instances that busy ones grant need no group; the others get one for
  // each wanted start and one for each profile wanted anywhere.
  void AddGroups(std::span<const WantedInstance> wanted) {
    ByStart ungranted_busy = at_;
    std::vector<int> anywhere(model_.profiles.size());
    for (const WantedInstance& want : wanted) {
      if (!want.start) {
        ++anywhere[static_cast<std::size_t>(want.profile)];
      } else if (!TakeAt(ungranted_busy, *want.start, want.profile)) {
        AddFixed(want.profile, *want.start);
      }
    }
    for (std::uint8_t& profile : ungranted_busy) {
      if (profile == kNone || anywhere[profile] == 0) continue;
      --anywhere[profile];
      profile = kNone;
    }
    if (ungranted_busy != Empty()) Refuse();
    for (std::size_t i = 0; i < anywhere.size(); ++i) {
      if (anywhere[i] > 0) AddAnywhere(static_cast<ProfileIndex>(i), anywhere[i]);
    }
    // The most constrained first; then the largest, which leave least choice.
    std::ranges::sort(groups_, {}, [this](const Group& group) {
      return std::tuple(group.options.size(), -model_.profile(group.profile).memory_slices,
                        group.profile, group.options.empty() ? 0 : group.options.front().start);
    });
    potential_.assign(groups_.size() + 1, 0);
    for (std::size_t g = groups_.size(); g-- > 0;) {
      potential_[g] = potential_[g + 1] + Potential(groups_[g], 0, groups_[g].count);
    }
  }

  static ByStart Empty() {
    ByStart none;
    none.fill(kNone);
    return none;
  }

  static bool TakeAt(ByStart& at, int start, ProfileIndex profile) {
    if (start < 0 || start >= static_cast<int>(at.size())) return false;
    std::uint8_t& there = at[static_cast<std::size_t>(start)];
    if (there != static_cast<std::uint8_t>(profile)) return false;
    there = kNone;
    return true;
  }

  // Not all of the wanted can be had.
  void Refuse() {
    if (missing_ == Missing::kForbidden) hopeless_ = true;
  }

  void AddFixed(ProfileIndex profile, int start) {
    const bool legal = std::ranges::binary_search(model_.profile(profile).starts, start);
    // The same place wanted twice can be granted once; a second group for it would
    // only make the search meet layouts twice.
    if (!legal || IsFixed(profile, start)) return Refuse();
    AddGroup(profile, 1, {&start, 1});
  }

  void AddAnywhere(ProfileIndex profile, int count) {
    std::vector<int> starts;
    for (const int start : model_.profile(profile).starts) {
      // That place has a group already: with two, layouts would be met twice.
      if (!IsFixed(profile, start)) starts.push_back(start);
    }
    AddGroup(profile, count, starts);
  }

  bool IsFixed(ProfileIndex profile, int start) const {
    return std::ranges::any_of(groups_, [&](const Group& group) {
      return group.profile == profile && group.options.size() == 1 &&
             group.options.front().start == start;
    });
  }

  void AddGroup(ProfileIndex profile, int count, std::span<const int> starts) {
    const MigProfile& kind = model_.profile(profile);
    Group group{profile, count, kind.compute_slices * kComputeSlice + kInstance, 0, {}};
    group.options.reserve(starts.size());
    for (const int start : starts) {
      const bool kept =
          present_at_[static_cast<std::size_t>(start)] == static_cast<std::uint8_t>(profile);
      group.options.push_back({start, SlicesOf(kind, start), kept});
      group.kept += kept ? 1 : 0;
    }
    std::ranges::sort(group.options, {},
                      [](const Option& option) { return std::pair(!option.kept, option.start); });
    const int most = static_cast<int>(group.options.size());
    if (count > most) Refuse();
    group.count = std::min(count, most);
    groups_.push_back(std::move(group));
  }

  // The most that `left` more instances of `group` can add, from `option` on.
  static Value Potential(const Group& group, std::size_t option, int left) {
    const int kept = std::clamp(group.kept - static_cast<int>(option), 0, left);
    return static_cast<Value>(left) * group.each + static_cast<Value>(kept) * kKept;
  }

  void NextGroup(std::size_t g) {
    if (g == groups_.size()) return Offer();
    Choose(g, 0, groups_[g].count);
  }

  void Choose(std::size_t g, std::size_t from, int left) {
    const Group& group = groups_[g];
    const Value bound = value_ + Potential(group, from, left) + potential_[g + 1] + kBestScore;
    if (found_ && bound < best_) return;
    if (left == 0) return NextGroup(g + 1);
    for (std::size_t i = from; i < group.options.size(); ++i) {
      const Option& option = group.options[i];
      if (!tally_.Fits(group.profile, option.slices)) continue;
      const Value gain = group.each + (option.kept ? kKept : 0);
      tally_.Add(group.profile, option.slices);
      at_[static_cast<std::size_t>(option.start)] = static_cast<std::uint8_t>(group.profile);
      value_ += gain;
      Choose(g, i + 1, left - 1);
      value_ -= gain;
      at_[static_cast<std::size_t>(option.start)] = kNone;
      tally_.Remove(group.profile, option.slices);
    }
    if (missing_ == Missing::kAllowed) NextGroup(g + 1);
  }

  void Offer() {
    const SliceMask free = all_slices_ & ~tally_.occupied();
    const Value value = value_ + static_cast<Value>(open_.Score(free));
    if (found_ && (value < best_ || (value == best_ && best_at_ <= at_))) return;
    found_ = true;
    best_ = value;
    best_at_ = at_;
  }

  const GpuModel& model_;
  const SliceMask all_slices_;
  const Missing missing_;
  Tally tally_;
  const OpenSpace open_;
  ByStart present_at_;
  std::vector<Group> groups_;
  std::vector<Value> potential_;  // The most that groups from here on can add.
  bool hopeless_ = false;

  ByStart at_;
  Value value_ = 0;
  bool found_ = false;
  ByStart best_at_{};
  Value best_ = 0;
};

}  // namespace

std::optional<std::vector<MigInstance>> PlaceAll(const GpuModel& model,
                                                 std::span<const PresentInstance> present,
                                                 std::span<const WantedInstance> wanted) {
  return Search(model, present, wanted, Missing::kForbidden).Run();
}

std::vector<MigInstance> PlaceMost(const GpuModel& model, std::span<const PresentInstance> present,
                                   std::span<const WantedInstance> wanted) {
  auto target = Search(model, present, wanted, Missing::kAllowed).Run();
  Check(target.has_value(), "the busy instances alone are a layout");
  return *std::move(target);
}

std::vector<int> GrantedStarts(std::span<const MigInstance> target,
                               std::span<const WantedInstance> wanted) {
  std::vector<MigInstance> left(target.begin(), target.end());
  std::ranges::sort(left);
  std::vector<int> starts(wanted.size(), -1);
  const auto grant = [&](std::size_t i, auto granted) {
    if (granted == left.end()) return;
    starts[i] = granted->start;
    left.erase(granted);
  };
  // Who asks for a place goes first, or it might be given away.
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto& [profile, start] = wanted[i];
    if (start) grant(i, std::ranges::find(left, MigInstance{*start, profile}));
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto& [profile, start] = wanted[i];
    if (!start) grant(i, std::ranges::find(left, profile, &MigInstance::profile));
  }
  return starts;
}

std::vector<MigInstance> BusyButUnwanted(std::span<const PresentInstance> present,
                                         std::span<const WantedInstance> wanted) {
  std::vector<MigInstance> busy;
  for (const PresentInstance& each : present) {
    if (each.busy) busy.push_back(each.instance);
  }
  std::ranges::sort(busy);
  const std::vector<int> granted = GrantedStarts(busy, wanted);
  std::erase_if(busy, [&](const MigInstance& instance) {
    return std::ranges::find(granted, instance.start) != granted.end();
  });
  return busy;
}

}  // namespace divvy::gpu
