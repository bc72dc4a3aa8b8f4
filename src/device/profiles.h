#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/nvml_library.h"
#include "gpu/gpu_model.h"

namespace divvy::device {

// What NVML says a GPU can be cut into.
struct ProfileReading {
  gpu::GpuModel model;
  std::vector<std::string> warnings;  // What came from the catalogue instead, and why.
};

// Reads profiles and placements of a MIG-capable GPU; they can be read with MIG
// off as well. NVML's answers win; the catalogue fills in what this user or
// driver may not read, and names the GPU where its PCI id is known. Fails only
// when NVML answers something it should never answer.
[[nodiscard]] Result<ProfileReading> ReadProfiles(const NvmlLibrary& nvml, nvml::Device device,
                                                  const std::string& product_name,
                                                  std::uint32_t pci_device_id,
                                                  std::uint64_t memory_total_bytes);

// The profile name that drivers print, for those too old to tell it: NVIDIA
// rounds the instance's share of memory to eighths of the GPU's.
[[nodiscard]] std::string ProfileName(unsigned profile_enum, int compute_slices,
                                      std::uint64_t memory_mib, std::uint64_t memory_total_bytes);

}  // namespace divvy::device
