#pragma once

#include <vector>

#include "gpu/gpu_model.h"
#include "gpu/mig_layout.h"

namespace divvy::gpu {

// How many more instances of one profile a layout can take.
struct ProfileRoom {
  ProfileIndex profile;
  std::vector<int> starts;  // Where one could be created now.
  int now;                  // How many could be created now, as things stand.
  int after_moves;          // How many if the present instances were placed anew.
};

// What is left of a GPU beside the instances it has.
struct FreeSpace {
  SliceMask slices;                // Memory slices nobody holds.
  std::vector<ProfileRoom> rooms;  // One for each profile, in the model's order.

  // The most compute slices that base profiles can still get, now and if the
  // present instances were placed anew.
  int compute_now;
  int compute_after_moves;

  // The share of the reachable compute slices that bad placement locks away:
  // 0 when moving instances would gain nothing, 1 when it would gain all there is.
  double fragmentation() const;
};

[[nodiscard]] FreeSpace MeasureFreeSpace(const MigLayout& layout);

}  // namespace divvy::gpu
