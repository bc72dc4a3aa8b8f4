#include "gpu/fragmentation.h"

#include <algorithm>

#include "gpu/open_space.h"
#include "gpu/tally.h"

namespace divvy::gpu {
namespace {

// What can be added to a fixed multiset of instances, wherever they lie. Their
// counts and engines are tallied once; the slices they hold come with each
// question.
class Filler {
 public:
  Filler(const GpuModel& model, const std::vector<MigInstance>& instances)
      : model_(model),
        all_slices_((SliceMask{1} << model.memory_slices) - 1),
        tally_(model),
        open_(model) {
    for (const MigInstance& instance : instances) tally_.Add(instance.profile, 0);
  }

  // The most instances of `profile` that fit beside `occupied`. Alike intervals,
  // so taking the leftmost that fits, again and again, is optimal.
  int MostInstances(ProfileIndex profile, SliceMask occupied) {
    const MigProfile& kind = model_.profile(profile);
    Tally tally = tally_;
    tally.set_occupied(occupied);
    int count = 0;
    for (const int start : kind.starts) {
      if (!tally.Fits(profile, SlicesOf(kind, start))) continue;
      tally.Add(profile, SlicesOf(kind, start));
      ++count;
    }
    return count;
  }

  // The most compute slices that base profiles get beside `occupied`, or
  // `at_least` if that is more.
  int MostCompute(SliceMask occupied, int at_least) {
    best_ = at_least;
    tally_.set_occupied(occupied);
    Fill(0, 0);
    return best_;
  }

 private:
  void Fill(std::size_t from, int compute) {
    best_ = std::max(best_, compute);
    const auto& places = open_.places();
    for (std::size_t i = from; i < places.size(); ++i) {
      const OpenSpace::Place& place = places[i];
      // What lies to the left was passed over; engines can only lower the bound.
      const SliceMask right = all_slices_ & ~((SliceMask{1} << place.start) - 1);
      if (compute + open_.MostCompute(right & ~tally_.occupied()) <= best_) return;
      if (!tally_.Fits(place.profile, place.slices)) continue;
      tally_.Add(place.profile, place.slices);
      Fill(i + 1, compute + place.compute);
      tally_.Remove(place.profile, place.slices);
    }
  }

  const GpuModel& model_;
  const SliceMask all_slices_;
  Tally tally_;
  const OpenSpace open_;
  int best_ = 0;
};

// The slices held in every way of placing `profiles` (ascending, from `next` on)
// anew. Alike instances go to ascending starts, so no way is seen twice.
void CollectArrangements(const GpuModel& model, const std::vector<ProfileIndex>& profiles,
                         std::size_t next, int from, SliceMask occupied,
                         std::vector<SliceMask>& found) {
  if (next == profiles.size()) {
    found.push_back(occupied);
    return;
  }
  const MigProfile& kind = model.profile(profiles[next]);
  const bool next_is_alike = next + 1 < profiles.size() && profiles[next + 1] == profiles[next];
  for (const int start : kind.starts) {
    const SliceMask slices = SlicesOf(kind, start);
    if (start < from || (occupied & slices) != 0) continue;
    CollectArrangements(model, profiles, next + 1, next_is_alike ? start + 1 : 0, occupied | slices,
                        found);
  }
}

std::vector<SliceMask> Arrangements(const MigLayout& layout) {
  std::vector<SliceMask> found;
  CollectArrangements(layout.model(), ProfilesOf(layout.instances()), 0, 0, 0, found);
  std::ranges::sort(found);
  const auto repeated = std::ranges::unique(found);
  found.erase(repeated.begin(), repeated.end());
  return found;
}

}  // namespace

double FreeSpace::fragmentation() const {
  if (compute_after_moves == 0) return 0;
  return static_cast<double>(compute_after_moves - compute_now) / compute_after_moves;
}

FreeSpace MeasureFreeSpace(const MigLayout& layout) {
  const GpuModel& model = layout.model();
  const SliceMask occupied = ((SliceMask{1} << model.memory_slices) - 1) & ~layout.free_slices();
  const std::vector<SliceMask> arrangements = Arrangements(layout);
  Filler filler(model, layout.instances());

  FreeSpace space{};
  space.slices = layout.free_slices();
  for (std::size_t i = 0; i < model.profiles.size(); ++i) {
    const auto profile = static_cast<ProfileIndex>(i);
    ProfileRoom room{profile, layout.FreeStarts(profile), filler.MostInstances(profile, occupied),
                     0};
    for (const SliceMask arrangement : arrangements) {
      room.after_moves = std::max(room.after_moves, filler.MostInstances(profile, arrangement));
    }
    space.rooms.push_back(std::move(room));
  }
  space.compute_now = filler.MostCompute(occupied, 0);
  for (const SliceMask arrangement : arrangements) {
    space.compute_after_moves = filler.MostCompute(arrangement, space.compute_after_moves);
  }
  return space;
}

}  // namespace divvy::gpu
