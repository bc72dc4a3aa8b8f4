#include "gpu/enumerate.h"

#include <algorithm>

#include "base/check.h"

namespace divvy::gpu {
namespace {

// Appends `layout`, then every layout that adds instances from slice `from` on.
// Trying the lower start first, then the lower profile, yields the order promised.
void Extend(const MigLayout& layout, int from, std::span<const ProfileIndex> profiles,
            std::vector<MigLayout>& layouts) {
  layouts.push_back(layout);
  for (int start = from; start < layout.model().memory_slices; ++start) {
    for (const ProfileIndex profile : profiles) {
      if (!layout.CanPlace({start, profile})) continue;
      MigLayout next = layout;
      Check(next.Place({start, profile}).has_value(), "CanPlace foretells Place");
      Extend(next, start + layout.model().profile(profile).memory_slices, profiles, layouts);
    }
  }
}

bool IsMaximal(const MigLayout& layout, std::span<const ProfileIndex> profiles) {
  return std::ranges::all_of(
      profiles, [&](ProfileIndex profile) { return layout.FreeStarts(profile).empty(); });
}

}  // namespace

std::vector<MigLayout> EnumerateLayouts(const GpuModel& model,
                                        std::span<const ProfileIndex> profiles) {
  std::vector<ProfileIndex> ordered(profiles.begin(), profiles.end());
  std::ranges::sort(ordered);
  const auto repeated = std::ranges::unique(ordered);
  ordered.erase(repeated.begin(), repeated.end());
  std::vector<MigLayout> layouts;
  Extend(MigLayout(model), 0, ordered, layouts);
  return layouts;
}

std::vector<MigLayout> EnumerateMaximalLayouts(const GpuModel& model,
                                               std::span<const ProfileIndex> profiles) {
  std::vector<MigLayout> layouts = EnumerateLayouts(model, profiles);
  std::erase_if(layouts, [&](const MigLayout& layout) { return !IsMaximal(layout, profiles); });
  return layouts;
}

std::vector<std::vector<ProfileIndex>> DistinctMultisets(std::span<const MigLayout> layouts) {
  std::vector<std::vector<ProfileIndex>> multisets;
  for (const MigLayout& layout : layouts) {
    if (!layout.instances().empty()) multisets.push_back(ProfilesOf(layout.instances()));
  }
  std::ranges::sort(multisets);
  const auto repeated = std::ranges::unique(multisets);
  multisets.erase(repeated.begin(), repeated.end());
  return multisets;
}

}  // namespace divvy::gpu
