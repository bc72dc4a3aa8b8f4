#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpu/gpu_model.h"

// Figures that NVML reports about profiles. Where the catalogue has none they
// are estimated, since a driver has no way to say "unknown".

namespace divvy::device::simulator {

// SMs of one instance; the GPU's share by compute slices when unseen.
[[nodiscard]] int SmsOf(const gpu::GpuModel& model, const gpu::MigProfile& profile);

// Memory of one instance; the gigabytes of its name when unseen.
[[nodiscard]] std::uint64_t MemoryMibOf(const gpu::MigProfile& profile);

// Memory of the whole GPU: that of its largest profile.
[[nodiscard]] std::uint64_t MemoryMibOf(const gpu::GpuModel& model);

// All zero when unseen.
[[nodiscard]] gpu::Engines EnginesOf(const gpu::MigProfile& profile);

// A way to cut a GPU instance's compute slices.
struct ComputeProfile {
  unsigned id;  // NVML_COMPUTE_INSTANCE_PROFILE_*; drivers use it as the id too.
  int slices;
  std::vector<int> starts;  // In compute slices of the GPU instance, ascending.

  friend bool operator==(const ComputeProfile&, const ComputeProfile&) = default;
};

// The compute profiles of a GPU instance with `profile`, by id; the last takes
// all of it. Three slices of a 4g are not offered, as on drivers.
[[nodiscard]] std::vector<ComputeProfile> ComputeProfilesOf(const gpu::MigProfile& profile);

[[nodiscard]] std::optional<ComputeProfile> FindComputeProfile(const gpu::MigProfile& profile,
                                                               unsigned id);

// The id of the compute profile with this many slices, if NVML has one.
[[nodiscard]] std::optional<unsigned> ComputeProfileId(int slices);

// "1c.3g.71gb", or "3g.71gb" for all of the GPU instance.
[[nodiscard]] std::string ComputeProfileName(const gpu::MigProfile& profile, int slices);

}  // namespace divvy::device::simulator
