#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gpu/gpu_model.h"

namespace divvy::gpu {

// Every GPU whose MIG geometry is known, in order of age. Lives as long as the
// program, so pointers and references into it stay good.
[[nodiscard]] const std::vector<GpuModel>& Catalogue();

// The GPU that `name` means: a catalogue name, in any case, or as much of its
// beginning as fits only one ("h200"); "NVIDIA " may precede it.
//   kNotFound         no GPU begins so; the message names the nearest;
//   kInvalidArgument  several do; the message names them.
[[nodiscard]] Result<const GpuModel*> FindGpuModel(std::string_view name);

// The GPU with this PCI id (device in the upper half), or null: MIG geometry of
// a GPU can be read from NVML without the catalogue knowing the GPU.
[[nodiscard]] const GpuModel* FindGpuModelByPciId(std::uint32_t pci_device_id);

}  // namespace divvy::gpu
