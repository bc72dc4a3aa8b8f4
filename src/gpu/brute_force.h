#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <span>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "gpu/gpu_model.h"
#include "gpu/mig_layout.h"
#include "gpu/transition.h"

// Answers by exhaustion, for tests: slow, obvious, and sharing no code with what
// they check. Legality is written down here a second time on purpose.
namespace divvy::gpu::brute_force {

constexpr int kUnreached = std::numeric_limits<int>::max();

// MIG's rules, checked slice by slice and engine by engine.
inline bool IsLegal(const GpuModel& model, std::span<const MigInstance> instances) {
  std::vector<bool> taken(static_cast<std::size_t>(model.memory_slices));
  std::map<ProfileIndex, int> counts;
  Engines sum;
  for (const MigInstance& instance : instances) {
    const MigProfile& profile = model.profile(instance.profile);
    if (std::ranges::find(profile.starts, instance.start) == profile.starts.end()) return false;
    for (int slice = instance.start; slice < instance.start + profile.memory_slices; ++slice) {
      if (slice >= model.memory_slices || taken[static_cast<std::size_t>(slice)]) return false;
      taken[static_cast<std::size_t>(slice)] = true;
    }
    if (++counts[instance.profile] > profile.max_instances) return false;
    if (!profile.engines) continue;
    sum.decoders += profile.engines->decoders;
    sum.encoders += profile.engines->encoders;
    sum.jpeg += profile.engines->jpeg;
    sum.ofa += profile.engines->ofa;
  }
  if (!model.engines) return true;
  return sum.decoders <= model.engines->decoders && sum.encoders <= model.engines->encoders &&
         sum.jpeg <= model.engines->jpeg && sum.ofa <= model.engines->ofa;
}

// Every place an instance of `profiles` may take.
inline std::vector<MigInstance> PlacesOf(const GpuModel& model,
                                         std::span<const ProfileIndex> profiles) {
  std::vector<MigInstance> places;
  for (const ProfileIndex profile : profiles) {
    for (const int start : model.profile(profile).starts) places.push_back({start, profile});
  }
  std::ranges::sort(places);
  return places;
}

// What a layout gives to somebody who wants something.
struct Grant {
  int compute = 0;
  int instances = 0;
};

inline Grant GrantOf(const GpuModel& model, std::span<const MigInstance> layout,
                     std::span<const WantedInstance> wanted) {
  std::map<ProfileIndex, int> there;
  std::map<ProfileIndex, int> anywhere;
  for (const MigInstance& instance : layout) ++there[instance.profile];
  Grant grant;
  const auto give = [&](ProfileIndex profile, int count) {
    grant.instances += count;
    grant.compute += count * model.profile(profile).compute_slices;
    there[profile] -= count;
  };
  std::vector<MigInstance> given;
  for (const auto& [profile, start] : wanted) {
    if (!start) {
      ++anywhere[profile];
      continue;
    }
    const MigInstance fixed{*start, profile};
    if (std::ranges::find(layout, fixed) == layout.end()) continue;
    if (std::ranges::find(given, fixed) != given.end()) continue;
    given.push_back(fixed);
    give(profile, 1);
  }
  for (const auto& [profile, count] : anywhere) give(profile, std::min(count, there[profile]));
  return grant;
}

// All legal layouts of some profiles of a GPU, joined by single creates and
// destroys. A layout is a set of places, one bit each.
class LayoutGraph {
 public:
  using Set = std::uint32_t;

  // REQUIRES: at most 32 places.
  LayoutGraph(const GpuModel& model, std::span<const ProfileIndex> profiles)
      : model_(model), places_(PlacesOf(model, profiles)) {
    // Every subset of a legal layout is legal, so growing finds them all.
    index_[0] = 0;
    sets_.push_back(0);
    for (std::size_t i = 0; i < sets_.size(); ++i) {
      for (std::size_t place = 0; place < places_.size(); ++place) {
        const Set grown = sets_[i] | Set{1} << place;
        if (index_.contains(grown) || !IsLegal(model, Instances(grown))) continue;
        index_[grown] = sets_.size();
        sets_.push_back(grown);
      }
    }
    for (const Set set : sets_) {
      layouts_.push_back(Instances(set));
      for (std::size_t place = 0; place < places_.size(); ++place) {
        const auto toggled = index_.find(set ^ Set{1} << place);
        neighbours_.push_back(toggled == index_.end() ? kNoLayout : toggled->second);
      }
    }
  }

  const GpuModel& model() const { return model_; }
  const std::vector<std::vector<MigInstance>>& layouts() const { return layouts_; }

  std::size_t IndexOf(std::span<const MigInstance> layout) const {
    return index_.at(SetOf(layout));
  }

  // For each layout, how many idle instances must at least be destroyed on the
  // way from `from` to it; kUnreached where a busy one would have to go.
  std::vector<int> Destroys(std::size_t from, std::span<const MigInstance> busy) const {
    const Set pinned = SetOf(busy);
    std::vector<int> destroys(sets_.size(), kUnreached);
    std::deque<std::size_t> queue = {from};
    destroys[from] = 0;
    while (!queue.empty()) {
      const std::size_t at = queue.front();
      queue.pop_front();
      for (std::size_t place = 0; place < places_.size(); ++place) {
        const std::size_t next = neighbours_[at * places_.size() + place];
        if (next == kNoLayout || (pinned >> place & 1) != 0) continue;
        const int cost = static_cast<int>(sets_[at] >> place & 1);
        if (destroys[at] + cost >= destroys[next]) continue;
        destroys[next] = destroys[at] + cost;
        if (cost == 0) {
          queue.push_front(next);
        } else {
          queue.push_back(next);
        }
      }
    }
    return destroys;
  }

  // The best (compute slices granted, instances granted, -destroyed) of any layout
  // with `destroys` finite that holds nothing but busy and granted instances.
  std::tuple<int, int, int> Nearest(std::span<const int> destroys,
                                    std::span<const MigInstance> busy,
                                    std::span<const WantedInstance> wanted) const {
    std::tuple<int, int, int> best = {-1, -1, 0};
    for (std::size_t i = 0; i < layouts_.size(); ++i) {
      if (destroys[i] == kUnreached) continue;
      const Grant grant = GrantOf(model_, layouts_[i], wanted);
      const std::tuple<int, int, int> value = {grant.compute, grant.instances, -destroys[i]};
      if (value > best && HoldsNothingElse(layouts_[i], busy, wanted)) best = value;
    }
    return best;
  }

 private:
  static constexpr std::size_t kNoLayout = std::numeric_limits<std::size_t>::max();

  Set SetOf(std::span<const MigInstance> layout) const {
    Set set = 0;
    for (const MigInstance& instance : layout) {
      set |= Set{1} << (std::ranges::find(places_, instance) - places_.begin());
    }
    return set;
  }

  std::vector<MigInstance> Instances(Set set) const {
    std::vector<MigInstance> instances;
    for (std::size_t place = 0; place < places_.size(); ++place) {
      if (set >> place & 1) instances.push_back(places_[place]);
    }
    return instances;
  }

  // Without any one idle instance, less would be granted.
  bool HoldsNothingElse(const std::vector<MigInstance>& layout, std::span<const MigInstance> busy,
                        std::span<const WantedInstance> wanted) const {
    const int granted = GrantOf(model_, layout, wanted).instances;
    return std::ranges::all_of(layout, [&](const MigInstance& instance) {
      if (std::ranges::find(busy, instance) != busy.end()) return true;
      std::vector<MigInstance> without = layout;
      std::erase(without, instance);
      return GrantOf(model_, without, wanted).instances < granted;
    });
  }

  const GpuModel& model_;
  std::vector<MigInstance> places_;
  std::vector<Set> sets_;
  std::unordered_map<Set, std::size_t> index_;
  std::vector<std::vector<MigInstance>> layouts_;  // Alongside sets_.
  std::vector<std::size_t> neighbours_;            // [layout][place]: with the place toggled.
};

}  // namespace divvy::gpu::brute_force
