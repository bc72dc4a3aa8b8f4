#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/nvml_library.h"
#include "gpu/gpu_model.h"
#include "gpu/mig_layout.h"

namespace divvy::device {

// A process that uses a GPU, as NVML sees it.
struct GpuProcess {
  unsigned pid;
  std::string name;                           // Empty when NVML does not say.
  std::optional<std::uint64_t> memory_bytes;  // Of the GPU.

  friend bool operator==(const GpuProcess&, const GpuProcess&) = default;
};

// A compute instance's kind and place, in compute slices of its GPU instance.
struct ComputeSpec {
  unsigned profile_id;
  unsigned start;
  unsigned size;

  friend auto operator<=>(const ComputeSpec&, const ComputeSpec&) = default;
};

struct ComputeInstanceState {
  unsigned id;
  ComputeSpec spec;
  std::string uuid;  // "MIG-...", what CUDA_VISIBLE_DEVICES takes.
};

// A GPU instance by itself, in NVML's terms.
struct InstanceReading {
  unsigned id;
  unsigned profile_id;
  nvml::Placement placement;
  std::vector<ComputeInstanceState> compute;  // By start.
  std::vector<GpuProcess> processes;
  bool processes_known = true;  // False when NVML would not list them.

  // Must not be touched. What cannot be looked into counts as busy.
  bool busy() const { return !processes.empty() || !processes_known; }
};

// An InstanceReading in terms of its GPU's model.
struct GpuInstanceState {
  unsigned id;
  gpu::MigInstance instance;
  // Without compute instances a GPU instance can run nothing, and no listing of
  // MIG devices shows it, yet it holds its slices.
  std::vector<ComputeInstanceState> compute;
  std::vector<GpuProcess> processes;
  bool processes_known = true;

  bool busy() const { return !processes.empty() || !processes_known; }
};

struct GpuState {
  unsigned index;
  std::string uuid;
  std::string name;  // Product name, e.g. "NVIDIA H200".
  std::string pci_bus_id;
  std::uint32_t pci_device_id;
  std::uint64_t memory_total_bytes;
  std::uint64_t memory_used_bytes;

  bool mig_capable = false;
  bool mig_enabled = false;
  bool mig_pending = false;  // The mode after the next reset; usually as mig_enabled.

  // Profiles and placements as NVML gave them; where it would not, from the
  // catalogue, and a warning says so. Without profiles when the GPU has no MIG.
  gpu::GpuModel model;
  std::vector<GpuInstanceState> instances;  // By start.
  bool instances_known = true;              // False when this user may not list them.
  std::vector<GpuProcess> processes;        // On the whole GPU; with MIG, those on no instance.
  bool processes_known = true;
  std::vector<std::string> warnings;
};

struct NodeState {
  std::string driver_version;
  std::vector<GpuState> gpus;  // By NVML index.
};

// Whether a driver of this version is our simulator's: what was seen there was seen on no GPU.
[[nodiscard]] inline bool IsSimulated(std::string_view driver_version) {
  return driver_version.ends_with("-divvy-sim");
}

// Reads everything above from NVML. Changes nothing. What a driver or user cannot
// see becomes a warning, instances_known or processes_known; a GPU that cannot be
// read at all, say because it fell off the bus, is there with its error as name.
[[nodiscard]] Result<NodeState> ReadNode(const NvmlLibrary& nvml);

// The same for one GPU. kNotFound when there is none with this UUID.
[[nodiscard]] Result<GpuState> ReadGpu(const NvmlLibrary& nvml, const std::string& uuid);

// Which programs may use the whole GPU with this UUID. Any, as far as NVML does not say otherwise;
// a GPU that is cut does not.
[[nodiscard]] nvml::ComputeMode ReadComputeMode(const NvmlLibrary& nvml, const std::string& uuid);

// The compute instance profiles that fit a GPU instance, in NVML's order.
[[nodiscard]] Result<std::vector<nvml::ComputeInstanceProfileInfo>> ReadComputeProfiles(
    const NvmlLibrary& nvml, nvml::GpuInstance instance);

// Reads one GPU instance, its compute instances and who runs on them.
[[nodiscard]] Result<InstanceReading> ReadInstance(const NvmlLibrary& nvml,
                                                   nvml::GpuInstance instance);

}  // namespace divvy::device
