#pragma once

#include <optional>

#include "device/nvml_abi.h"
#include "device/simulator/profiles.h"
#include "device/simulator/state.h"

// The rules by which a driver changes its GPUs. Each function either does all
// of what it says or leaves the state as it was.

namespace divvy::device::simulator {

struct GpuInstanceCreation {
  nvml::Return code;
  const GpuInstance* instance;  // In the state; null unless kSuccess.
};

// Creates an instance of `profile` at `start`, or at the lowest start that is
// free when none is given. REQUIRES: the GPU is in MIG mode.
//   kInvalidArgument        the profile may not begin there;
//   kInsufficientResources  slices, count or engines are taken.
[[nodiscard]] GpuInstanceCreation CreateGpuInstance(State& state, Gpu& gpu,
                                                    gpu::ProfileIndex profile,
                                                    std::optional<int> start);

// Removes `instance` of `gpu`; kInUse while compute instances or processes are
// on it.
[[nodiscard]] nvml::Return DestroyGpuInstance(Gpu& gpu, Serial instance);

struct ComputeInstanceCreation {
  nvml::Return code;
  const ComputeInstance* instance;  // In the state; null unless kSuccess.
};

// The like inside a GPU instance, with the same codes.
[[nodiscard]] ComputeInstanceCreation CreateComputeInstance(State& state, Gpu& gpu,
                                                            GpuInstance& parent,
                                                            const ComputeProfile& profile,
                                                            std::optional<int> start);

// Removes a compute instance; kInUse while processes are on it.
[[nodiscard]] nvml::Return DestroyComputeInstance(Gpu& gpu, GpuInstance& parent, Serial instance);

// Asks for a MIG mode and says whether it came into force; until it does it is
// pending. `forced`, where given, is answered in place of trying.
//   kInUse          processes are on the GPU, or instances on one that would
//                   leave MIG mode;
//   kResetRequired  the GPU changes its mode at a reboot only.
[[nodiscard]] nvml::Return SetMigMode(Gpu& gpu, bool enable, std::optional<nvml::Return> forced);

// Starts of `profile` that no compute instance of `parent` overlaps, ascending.
[[nodiscard]] std::vector<int> FreeStarts(const GpuInstance& parent, const ComputeProfile& profile);

// Pending modes come into force; instances and processes are gone.
void Reboot(State& state);

}  // namespace divvy::device::simulator
