#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gpu/gpu_model.h"
#include "gpu/mig_layout.h"

namespace divvy::gpu {

// What a set of instances uses of one GPU: the rules of MigLayout as a few
// integer operations, for searches that place and take back without end.
//
// Each profile has a count left, the GPU has slices and engines left. Starts are
// the caller's business: it passes slices. The four kinds of engines that MIG
// limits lie in four lanes of one word, so that all are compared at once; figures
// that no source gives count as nothing used, as in MigLayout. Not thread-safe.
class Tally {
 public:
  // Nothing used. Keeps no reference to `model`.
  explicit Tally(const GpuModel& model) {
    if (model.engines) engines_left_ = Pack(*model.engines);
    kinds_.reserve(model.profiles.size());
    for (const MigProfile& profile : model.profiles) {
      const bool limited = model.engines && profile.engines;
      kinds_.push_back({profile.max_instances, limited ? Pack(*profile.engines) : 0});
    }
  }

  // True when one more instance of `profile` on `slices` is legal.
  bool Fits(ProfileIndex profile, SliceMask slices) const {
    const Kind& kind = kinds_[static_cast<std::size_t>(profile)];
    return (occupied_ & slices) == 0 && kind.left > 0 &&
           (((engines_left_ | kGuards) - kind.engines) & kGuards) == kGuards;
  }

  // REQUIRES: Fits(profile, slices).
  void Add(ProfileIndex profile, SliceMask slices) {
    Kind& kind = kinds_[static_cast<std::size_t>(profile)];
    --kind.left;
    occupied_ |= slices;
    engines_left_ -= kind.engines;
  }

  // Takes one Add back. They may be taken back in any order.
  void Remove(ProfileIndex profile, SliceMask slices) {
    Kind& kind = kinds_[static_cast<std::size_t>(profile)];
    ++kind.left;
    occupied_ &= ~slices;
    engines_left_ += kind.engines;
  }

  SliceMask occupied() const { return occupied_; }
  void set_occupied(SliceMask slices) { occupied_ = slices; }

 private:
  struct Kind {
    int left;
    std::uint64_t engines;
  };

  // The top bit of each lane is never part of a number: it catches the borrow.
  static constexpr std::uint64_t kGuards = 0x8000'8000'8000'8000;

  static constexpr std::uint64_t Lane(int engines) {
    return static_cast<std::uint64_t>(std::clamp(engines, 0, 0x7FFF));
  }
  static constexpr std::uint64_t Pack(const Engines& e) {
    return Lane(e.decoders) | Lane(e.encoders) << 16 | Lane(e.jpeg) << 32 | Lane(e.ofa) << 48;
  }

  std::vector<Kind> kinds_;  // By profile.
  SliceMask occupied_ = 0;
  std::uint64_t engines_left_ = ~kGuards;  // Unlimited when the GPU's totals are unseen.
};

}  // namespace divvy::gpu
