#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace divvy::gpu {

// Copy and media engines. An instance owns what its profile names, so the sums
// over a GPU's instances may not pass the GPU's totals.
struct Engines {
  int copy = 0;
  int decoders = 0;
  int encoders = 0;
  int jpeg = 0;
  int ofa = 0;  // Optical flow.

  friend bool operator==(const Engines&, const Engines&) = default;
};

// A MIG GPU-instance profile: how much of a GPU one instance takes, and where
// the hardware lets it begin.
//
// Memory slices decide what fits; compute slices decide how fast it runs. The
// two differ: on an A100 a 3g instance takes 4 of 8 memory slices, so two of
// them leave a seventh compute slice that nothing can use.
struct MigProfile {
  std::string name;  // As nvidia-smi prints it, e.g. "3g.20gb".
  int nvml_enum;     // NVML_GPU_INSTANCE_PROFILE_*, the index that lists profiles.
  int nvml_id;       // The ID column of `nvidia-smi mig -lgip`, which creates instances.
  int compute_slices;
  int memory_slices;
  int max_instances;
  std::optional<int> sms;
  std::optional<int> memory_mib;
  std::optional<Engines> engines;
  std::vector<int> starts;  // First memory slice of each legal position, ascending.

  friend bool operator==(const MigProfile&, const MigProfile&) = default;
};

// Which of a GPU's profiles a question is about.
enum class ProfileSet {
  kBase,    // One profile a size.
  kDouble,  // The same, and the 1g profile with twice the memory.
  kAll,     // With the media and graphics variants too.
};

// True when `profile` belongs to `set`.
[[nodiscard]] bool Belongs(const MigProfile& profile, ProfileSet set);

// Position of a profile in its GpuModel.
enum class ProfileIndex : std::uint8_t {};

// How far a model's figures can be trusted.
enum class Provenance {
  kReadOnHardware,  // Tables that the tools printed on such a GPU.
  kPublished,       // NVIDIA's tables and other people's dumps; parts may be missing.
  kAssumed,         // Names are published; ids and placements follow the family.
  kNvml,            // This node's driver said so, just now.
};

// What `divvy` prints for a provenance, e.g. "published tables".
[[nodiscard]] std::string_view Describe(Provenance provenance);

// One kind of GPU and everything it can be cut into.
//
// Fields that no source gives are empty rather than guessed. On a node, device/
// fills a GpuModel from NVML, and that one wins over the catalogue.
struct GpuModel {
  std::string name;  // E.g. "H200-141GB".
  std::string architecture;
  std::vector<std::uint32_t> pci_device_ids;  // Device in the upper half, vendor in the lower.
  int memory_slices;
  int compute_slices;
  std::optional<int> sms;          // All that MIG can hand out.
  std::optional<Engines> engines;  // Totals; copy engines are not limited by MIG.
  std::vector<MigProfile> profiles;
  Provenance provenance;
  std::string note;  // What is uncertain about it; may be empty.

  const MigProfile& profile(ProfileIndex index) const {
    return profiles[static_cast<std::size_t>(index)];
  }

  // The profile of this name (exactly as printed), or nothing.
  [[nodiscard]] std::optional<ProfileIndex> FindProfile(std::string_view profile_name) const;

  // The profile with this NVML id, or nothing.
  [[nodiscard]] std::optional<ProfileIndex> FindProfileById(int nvml_id) const;

  // Profiles of `set`, in the model's order.
  [[nodiscard]] std::vector<ProfileIndex> Select(ProfileSet set) const;
};

}  // namespace divvy::gpu
