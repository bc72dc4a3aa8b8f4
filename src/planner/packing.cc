#include "planner/packing.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "gpu/enumerate.h"
#include "gpu/open_space.h"

namespace divvy::planner {
namespace {

using gpu::GpuModel;
using gpu::MigInstance;
using gpu::MigLayout;
using gpu::MigProfile;
using gpu::ProfileIndex;

// What one GPU may hold, as multisets of profiles: places are chosen only once it
// is known what shares the GPU, so no order of packing can spoil them.
class Contents {
 public:
  // Position of a multiset; 0 is the empty GPU.
  using State = std::size_t;
  static constexpr State kFull = static_cast<State>(-1);

  Contents(const GpuModel& model, std::span<const ProfileIndex> profiles) {
    const gpu::OpenSpace space(model);
    for (const MigLayout& layout : gpu::EnumerateLayouts(model, profiles)) {
      const auto [at, is_new] =
          states_.try_emplace(gpu::ProfilesOf(layout.instances()), best_.size());
      const int score = space.Score(layout.free_slices());
      if (is_new) {
        best_.push_back({layout.instances(), score});
      } else if (score > best_[at->second].score) {
        best_[at->second] = {layout.instances(), score};
      }
    }
  }

  // The state with one more instance of `profile`, or kFull.
  State Add(State state, ProfileIndex profile) const {
    std::vector<ProfileIndex> grown = gpu::ProfilesOf(best_[state].instances);
    grown.insert(std::ranges::upper_bound(grown, profile), profile);
    const auto found = states_.find(grown);
    return found == states_.end() ? kFull : found->second;
  }

  // Of the layouts with these contents, the one that leaves the most useful room.
  const std::vector<MigInstance>& LayoutOf(State state) const { return best_[state].instances; }

 private:
  struct Scored {
    std::vector<MigInstance> instances;
    int score;
  };

  std::map<std::vector<ProfileIndex>, State> states_;
  std::vector<Scored> best_;
};

// Positions in `wanted`, largest first; alike ones in the order given.
std::vector<std::size_t> LargestFirst(const GpuModel& model, std::span<const ProfileIndex> wanted) {
  std::vector<std::size_t> order(wanted.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto size = [&](std::size_t i) {
    const MigProfile& profile = model.profile(wanted[i]);
    return std::tuple(-profile.memory_slices, -profile.compute_slices, wanted[i], i);
  };
  std::ranges::sort(order, {}, size);
  return order;
}

}  // namespace

std::vector<std::optional<Packed>> Pack(const GpuModel& model, int gpus,
                                        std::span<const ProfileIndex> wanted) {
  const Contents contents(model, wanted);
  std::vector<Contents::State> fleet;
  std::vector<std::vector<std::size_t>> guests;  // [gpu]: positions in `wanted`.
  std::optional<ProfileIndex> last;
  std::size_t first_open = 0;
  for (const std::size_t i : LargestFirst(model, wanted)) {
    // A GPU that has refused a profile will refuse it again: it only gets fuller.
    if (std::exchange(last, wanted[i]) != wanted[i]) first_open = 0;
    for (;; ++first_open) {
      if (first_open == fleet.size()) {
        if (first_open == static_cast<std::size_t>(std::max(gpus, 0))) break;
        fleet.push_back(0);
        guests.emplace_back();
      }
      const Contents::State grown = contents.Add(fleet[first_open], wanted[i]);
      if (grown == Contents::kFull) continue;
      fleet[first_open] = grown;
      guests[first_open].push_back(i);
      break;
    }
  }

  std::vector<std::optional<Packed>> packed(wanted.size());
  for (std::size_t g = 0; g < fleet.size(); ++g) {
    std::vector<MigInstance> places = contents.LayoutOf(fleet[g]);
    for (const std::size_t i : guests[g]) {
      const auto place = std::ranges::find(places, wanted[i], &MigInstance::profile);
      Check(place != places.end(), "a layout holds what its state says");
      packed[i] = Packed{static_cast<int>(g), *place};
      places.erase(place);
    }
  }
  return packed;
}

}  // namespace divvy::planner
