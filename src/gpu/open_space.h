#pragma once

#include <vector>

#include "gpu/gpu_model.h"
#include "gpu/mig_layout.h"

namespace divvy::gpu {

// How useful a set of free memory slices is, judged by slices alone: engines and
// counts are left aside, which makes an answer cost some tens of nanoseconds.
// MeasureFreeSpace gives the whole truth, slower. Thread-safe.
class OpenSpace {
 public:
  // A place that a base profile may take.
  struct Place {
    ProfileIndex profile;
    int start;
    int size;
    int compute;
    SliceMask slices;
  };

  // Keeps no reference to `model`.
  explicit OpenSpace(const GpuModel& model);

  // The most compute slices that base profiles could get out of `free`.
  int MostCompute(SliceMask free) const;

  // Orders sets of free slices: greater is less fragmented. MostCompute decides;
  // among equals, how many places of base profiles are open, which counts a free
  // region that could take a large instance several times. In [0, 2^24).
  int Score(SliceMask free) const;

  // All places, by start, then in the model's order of profiles.
  const std::vector<Place>& places() const { return places_; }

 private:
  std::vector<Place> places_;
  int end_ = 0;  // No place reaches beyond it.
};

}  // namespace divvy::gpu
