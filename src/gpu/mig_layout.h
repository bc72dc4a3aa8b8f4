#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "gpu/gpu_model.h"

namespace divvy::gpu {

// One GPU instance: a profile of some GpuModel and the memory slice it begins at.
// Ordered by start, so that sorting gives the order of a strip.
struct MigInstance {
  int start;
  ProfileIndex profile;

  friend auto operator<=>(const MigInstance&, const MigInstance&) = default;
};

// Memory slices as bits: bit i is slice i.
using SliceMask = std::uint32_t;

// The slices that `profile` takes from `start`.
[[nodiscard]] constexpr SliceMask SlicesOf(const MigProfile& profile, int start) {
  return ((SliceMask{1} << profile.memory_slices) - 1) << start;
}

// The instances on one GPU.
//
// Invariant: legal. No two instances share a memory slice, each begins where its
// profile allows, no profile has more instances than the driver grants, and the
// engines suffice. Any subset of a legal set is legal, so instances may be
// removed in any order. Says what fits, not what is wise: choosing among free
// starts is gpu/transition's job. Cheap to copy. Not thread-safe.
class MigLayout {
 public:
  // An empty GPU. `model` must outlive the layout and have at most 31 slices.
  explicit MigLayout(const GpuModel& model);

  // The layout with these instances, or the first reason why it is illegal, a
  // model without slices among them.
  [[nodiscard]] static Result<MigLayout> Of(const GpuModel& model,
                                            const std::vector<MigInstance>& instances);

  // Starts at which `profile` could be created now, ascending.
  [[nodiscard]] std::vector<int> FreeStarts(ProfileIndex profile) const;

  // True when Place would succeed.
  [[nodiscard]] bool CanPlace(MigInstance instance) const;

  // Adds an instance. On failure the layout is unchanged and the code is
  //   kInvalidArgument    the profile may not begin there on this GPU;
  //   kResourceExhausted  a slice, the count or the engines it needs are taken.
  [[nodiscard]] Result<MigInstance> Place(MigInstance instance);

  // Frees the instance that begins at `start`; kNotFound if none does.
  [[nodiscard]] Result<MigInstance> Remove(int start);

  // In order of start.
  const std::vector<MigInstance>& instances() const { return instances_; }
  const GpuModel& model() const { return *model_; }

  // Memory slices that no instance holds.
  SliceMask free_slices() const;

  // Layouts of the same GpuModel object with the same instances.
  friend bool operator==(const MigLayout& a, const MigLayout& b) {
    return a.model_ == b.model_ && a.instances_ == b.instances_;
  }

 private:
  const GpuModel* model_;
  SliceMask occupied_ = 0;
  std::vector<MigInstance> instances_;
};

// The profiles of a layout without their places, ascending: its canonical form
// as a multiset. Two layouts offer the same instances iff these are equal.
[[nodiscard]] std::vector<ProfileIndex> ProfilesOf(const std::vector<MigInstance>& instances);

// "2x 1g.18gb + 3g.71gb", largest last; "empty" for none.
[[nodiscard]] std::string Describe(const GpuModel& model, std::vector<ProfileIndex> profiles);

// "3g.71gb at 4".
[[nodiscard]] std::string Describe(const GpuModel& model, MigInstance instance);

}  // namespace divvy::gpu
