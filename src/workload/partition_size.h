#pragma once

#include <compare>
#include <string>
#include <string_view>

#include "base/result.h"
#include "gpu/gpu_model.h"

namespace divvy::workload {

// How much of a GPU a measurement was taken on, as a profile file writes it:
//   "3g"       a MIG size: compute slices, on whatever memory comes with them;
//   "3g.40gb"  one MIG profile by its full name;
//   "60sm"     a number of SMs, say under MPS with a thread percentage.
struct PartitionSize {
  enum class Unit { kSlices, kProfile, kSms };

  Unit unit = Unit::kSlices;
  int amount = 0;            // Compute slices, or SMs for kSms.
  std::string profile = {};  // The full name, for kProfile alone.

  friend auto operator<=>(const PartitionSize&, const PartitionSize&) = default;
};

// kInvalidArgument for anything but the three forms; the message says which.
[[nodiscard]] Result<PartitionSize> ParsePartitionSize(std::string_view text);

// As the file writes it.
[[nodiscard]] std::string Describe(const PartitionSize& size);

// How well a measurement on `size` speaks for instances of `profile`, for choosing
// the best among several: 3 its full name, 2 the same compute slices, 1 the same
// number of SMs, 0 not at all. A profile with extras in its name ("1g.10gb+me")
// is measured by its full name only.
[[nodiscard]] int MatchQuality(const PartitionSize& size, const gpu::MigProfile& profile);

}  // namespace divvy::workload
