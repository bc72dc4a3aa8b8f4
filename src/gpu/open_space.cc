#include "gpu/open_space.h"

#include <algorithm>
#include <array>
#include <utility>

namespace divvy::gpu {

OpenSpace::OpenSpace(const GpuModel& model) {
  for (std::size_t i = 0; i < model.profiles.size(); ++i) {
    const MigProfile& profile = model.profiles[i];
    if (!Belongs(profile, ProfileSet::kBase)) continue;
    for (const int start : profile.starts) {
      places_.push_back({static_cast<ProfileIndex>(i), start, profile.memory_slices,
                         profile.compute_slices, SlicesOf(profile, start)});
      end_ = std::max(end_, start + profile.memory_slices);
    }
  }
  std::ranges::sort(places_, {},
                    [](const Place& place) { return std::pair(place.start, place.profile); });
}

int OpenSpace::MostCompute(SliceMask free) const {
  // Weighted interval scheduling, from the right: best[s] is the answer for the
  // slices from s on. Entries right of the leftmost place seen so far are final.
  std::array<int, 64> best{};
  int filled = end_;
  for (auto place = places_.rbegin(); place != places_.rend(); ++place) {
    if ((place->slices & ~free) != 0) continue;
    const auto start = static_cast<std::size_t>(place->start);
    for (; filled > place->start; --filled) {
      best[static_cast<std::size_t>(filled) - 1] = best[static_cast<std::size_t>(filled)];
    }
    best[start] =
        std::max(best[start], place->compute + best[start + static_cast<std::size_t>(place->size)]);
  }
  return best[static_cast<std::size_t>(filled)];
}

int OpenSpace::Score(SliceMask free) const {
  constexpr int kMostOpenings = 0xFFF;
  int openings = 0;
  for (const Place& place : places_) {
    if ((place.slices & ~free) == 0) ++openings;
  }
  return (std::min(MostCompute(free), kMostOpenings) << 12) | std::min(openings, kMostOpenings);
}

}  // namespace divvy::gpu
