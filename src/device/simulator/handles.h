#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "device/nvml_abi.h"
#include "device/simulator/state.h"

// Handles are numbers in the shape of pointers: a mark that makes them no
// address any program can read, what they stand for, the GPU's index and the
// instance's serial. A stale or invented handle is therefore only a number that
// finds nothing, and the same in every process.

namespace divvy::device::simulator {

[[nodiscard]] nvml::Device GpuHandle(std::size_t gpu);
[[nodiscard]] nvml::Device MigDeviceHandle(std::size_t gpu, const ComputeInstance& instance);
[[nodiscard]] nvml::GpuInstance GpuInstanceHandle(std::size_t gpu, const GpuInstance& instance);
[[nodiscard]] nvml::ComputeInstance ComputeInstanceHandle(std::size_t gpu,
                                                          const ComputeInstance& instance);

// What a handle stands for in one State; good until that state changes. Fields
// that the kind of handle does not have are null.
struct Target {
  std::size_t index;  // Of the GPU.
  Gpu* gpu;
  GpuInstance* gpu_instance = nullptr;
  ComputeInstance* compute_instance = nullptr;
};

// Nothing when the handle is null, of another kind, invented or stale.
[[nodiscard]] std::optional<Target> FindGpu(State& state, nvml::Device handle);
[[nodiscard]] std::optional<Target> FindMigDevice(State& state, nvml::Device handle);
[[nodiscard]] std::optional<Target> FindGpuInstance(State& state, nvml::GpuInstance handle);
[[nodiscard]] std::optional<Target> FindComputeInstance(State& state, nvml::ComputeInstance handle);

// A GPU or a MIG device.
[[nodiscard]] std::optional<Target> FindDevice(State& state, nvml::Device handle);

}  // namespace divvy::device::simulator
