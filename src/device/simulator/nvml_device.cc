// NVML: GPUs and MIG devices, found and described.

#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "device/simulator/c_string.h"
#include "device/simulator/cuda_machine.h"
#include "device/simulator/handles.h"
#include "device/simulator/nvml_entry_points.h"
#include "device/simulator/nvml_structs.h"
#include "device/simulator/profiles.h"
#include "device/simulator/session.h"

namespace divvy::device::simulator {
namespace {

constexpr unsigned long long kMib = 1ULL << 20U;

// GPUs sit on buses of their own, from 1.
unsigned BusOf(std::size_t index) { return static_cast<unsigned>(index) + 1; }

nvml::Return DeviceCount(const char* function, unsigned* count) {
  return Query(function, [&](Call& call) {
    if (count == nullptr) return nvml::kInvalidArgument;
    *count = static_cast<unsigned>(call.state().gpus.size());
    return nvml::kSuccess;
  });
}

nvml::Return HandleByIndex(const char* function, unsigned index, nvml::Device* device) {
  return Query(function, [&](Call& call) {
    if (device == nullptr || index >= call.state().gpus.size()) return nvml::kInvalidArgument;
    *device = GpuHandle(index);
    return nvml::kSuccess;
  });
}

nvml::Return HandleByPciBusId(const char* function, const char* bus_id, nvml::Device* device) {
  return Query(function, [&](Call& call) {
    unsigned domain = 0;
    unsigned bus = 0;
    unsigned slot = 0;
    if (bus_id == nullptr || device == nullptr ||
        std::sscanf(bus_id, "%x:%x:%x", &domain, &bus, &slot) != 3) {
      return nvml::kInvalidArgument;
    }
    for (std::size_t i = 0; i < call.state().gpus.size(); ++i) {
      if (domain != 0 || bus != BusOf(i) || slot != 0) continue;
      *device = GpuHandle(i);
      return nvml::kSuccess;
    }
    return nvml::kNotFound;
  });
}

// The device with this UUID, or null.
nvml::Device FindByUuid(const State& state, const char* uuid) {
  for (std::size_t i = 0; i < state.gpus.size(); ++i) {
    if (strcasecmp(state.gpus[i].uuid.c_str(), uuid) == 0) return GpuHandle(i);
    for (const GpuInstance& instance : state.gpus[i].instances) {
      for (const ComputeInstance& compute : instance.compute_instances) {
        if (strcasecmp(compute.uuid.c_str(), uuid) == 0) return MigDeviceHandle(i, compute);
      }
    }
  }
  return nullptr;
}

// Position of a MIG device among its GPU's, as nvmlDeviceGetMigDeviceHandleByIndex
// counts: by GPU instance id, then by compute instance id.
unsigned MigIndex(const Target& target) {
  unsigned index = 0;
  for (const GpuInstance& instance : target.gpu->instances) {
    for (const ComputeInstance& compute : instance.compute_instances) {
      if (compute.serial == target.compute_instance->serial) return index;
      ++index;
    }
  }
  return index;
}

const gpu::MigProfile& ProfileOf(const Target& target) {
  return target.gpu->model->profile(target.gpu_instance->place.profile);
}

std::string NameOf(const Target& target) {
  std::string gpu = fmt::format("NVIDIA {} (simulated)", target.gpu->model->name);
  if (target.compute_instance == nullptr) return gpu;
  return fmt::format("{} MIG {}", gpu,
                     ComputeProfileName(ProfileOf(target), target.compute_instance->slices));
}

// Memory is shared by the compute instances of a GPU instance.
nvml::Memory MemoryOf(const Target& target, const CudaMachine& cuda_machine) {
  const bool whole = target.gpu_instance == nullptr;
  nvml::Memory memory{};
  memory.total = (whole ? MemoryMibOf(*target.gpu->model) : MemoryMibOf(ProfileOf(target))) * kMib;
  for (const Process& process : ProcessesOn(*target.gpu, cuda_machine)) {
    if (whole || process.gpu_instance == target.gpu_instance->id) {
      memory.used += process.memory_mib * kMib;
    }
  }
  memory.used = std::min(memory.used, memory.total);
  memory.free = memory.total - memory.used;
  return memory;
}

nvml::DeviceAttributes AttributesOf(const Target& target) {
  const gpu::MigProfile& profile = ProfileOf(target);
  const gpu::Engines engines = EnginesOf(profile);
  const int slices = target.compute_instance->slices;
  const int sms = SmsOf(*target.gpu->model, profile) * slices / profile.compute_slices;
  return {static_cast<unsigned>(sms),
          static_cast<unsigned>(engines.copy),
          static_cast<unsigned>(engines.decoders),
          static_cast<unsigned>(engines.encoders),
          static_cast<unsigned>(engines.jpeg),
          static_cast<unsigned>(engines.ofa),
          static_cast<unsigned>(profile.compute_slices),
          static_cast<unsigned>(slices),
          MemoryMibOf(profile)};
}

}  // namespace

extern "C" {

nvml::Return nvmlDeviceGetCount(unsigned* count) noexcept { return DeviceCount(__func__, count); }
nvml::Return nvmlDeviceGetCount_v2(unsigned* count) noexcept {
  return DeviceCount(__func__, count);
}

nvml::Return nvmlDeviceGetHandleByIndex(unsigned index, nvml::Device* device) noexcept {
  return HandleByIndex(__func__, index, device);
}
nvml::Return nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml::Device* device) noexcept {
  return HandleByIndex(__func__, index, device);
}

nvml::Return nvmlDeviceGetHandleByPciBusId(const char* bus_id, nvml::Device* device) noexcept {
  return HandleByPciBusId(__func__, bus_id, device);
}
nvml::Return nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, nvml::Device* device) noexcept {
  return HandleByPciBusId(__func__, bus_id, device);
}

nvml::Return nvmlDeviceGetHandleByUUID(const char* uuid, nvml::Device* device) noexcept {
  return Query(__func__, [&](Call& call) {
    if (uuid == nullptr || device == nullptr) return nvml::kInvalidArgument;
    nvml::Device found = FindByUuid(call.state(), uuid);
    if (found == nullptr) return nvml::kNotFound;
    *device = found;
    return nvml::kSuccess;
  });
}

nvml::Return nvmlDeviceGetUUID(nvml::Device device, char* uuid, unsigned length) noexcept {
  return Query(__func__, [&](Call& call) {
    const auto target = FindDevice(call.state(), device);
    if (!target) return nvml::kInvalidArgument;
    const bool mig = target->compute_instance != nullptr;
    return CopyOut(mig ? target->compute_instance->uuid : target->gpu->uuid, uuid, length);
  });
}

nvml::Return nvmlDeviceGetName(nvml::Device device, char* name, unsigned length) noexcept {
  return Query(__func__, [&](Call& call) {
    const auto target = FindDevice(call.state(), device);
    if (!target) return nvml::kInvalidArgument;
    return CopyOut(NameOf(*target), name, length);
  });
}

nvml::Return nvmlDeviceGetIndex(nvml::Device device, unsigned* index) noexcept {
  return Query(__func__, [&](Call& call) {
    const auto target = FindDevice(call.state(), device);
    if (!target || index == nullptr) return nvml::kInvalidArgument;
    const bool mig = target->compute_instance != nullptr;
    *index = mig ? MigIndex(*target) : static_cast<unsigned>(target->index);
    return nvml::kSuccess;
  });
}

// In MIG mode it is the instances that have one, which the simulator does not know.
nvml::Return nvmlDeviceGetComputeMode(nvml::Device device, nvml::ComputeMode* mode) noexcept {
  return Query(__func__, [&](Call& call) {
    const auto target = FindDevice(call.state(), device);
    if (!target || mode == nullptr) return nvml::kInvalidArgument;
    if (target->gpu->mig) return nvml::kNotSupported;
    *mode = target->gpu->compute_mode;
    return nvml::kSuccess;
  });
}

nvml::Return nvmlDeviceGetMinorNumber(nvml::Device device, unsigned* minor) noexcept {
  return Query(__func__, [&](Call& call) {
    const auto target = FindDevice(call.state(), device);
    if (!target || minor == nullptr) return nvml::kInvalidArgument;
    if (target->compute_instance != nullptr) return nvml::kNotSupported;
    *minor = static_cast<unsigned>(target->index);
    return nvml::kSuccess;
  });
}

nvml::Return nvmlDeviceGetPciInfo_v3(nvml::Device device, nvml::PciInfo* pci) noexcept {
  return Query(__func__, [&](Call& call) {
    const auto target = FindDevice(call.state(), device);
    if (!target || pci == nullptr) return nvml::kInvalidArgument;
    if (target->compute_instance != nullptr) return nvml::kNotSupported;
    *pci = {};
    pci->bus = BusOf(target->index);
    const auto& ids = target->gpu->model->pci_device_ids;
    pci->pciDeviceId = ids.empty() ? 0 : ids.front();
    CopyInto(fmt::format("0000:{:02X}:00.0", pci->bus), pci->busIdLegacy);
    CopyInto(fmt::format("00000000:{:02X}:00.0", pci->bus), pci->busId);
    return nvml::kSuccess;
  });
}

nvml::Return nvmlDeviceGetMemoryInfo(nvml::Device device, nvml::Memory* memory) noexcept {
  return Query(__func__, [&](Call& call) {
    const auto target = FindDevice(call.state(), device);
    if (!target || memory == nullptr) return nvml::kInvalidArgument;
    *memory = MemoryOf(*target, call.cuda_machine());
    return nvml::kSuccess;
  });
}

nvml::Return nvmlDeviceGetMemoryInfo_v2(nvml::Device device, MemoryV2* memory) noexcept {
  return Query(__func__, [&](Call& call) {
    const auto target = FindDevice(call.state(), device);
    if (!target || memory == nullptr) return nvml::kInvalidArgument;
    if (memory->version != nvml::StructVersion<MemoryV2>(2)) return nvml::kArgumentVersionMismatch;
    const nvml::Memory plain = MemoryOf(*target, call.cuda_machine());
    *memory = {memory->version, plain.total, 0, plain.free, plain.used};
    return nvml::kSuccess;
  });
}

nvml::Return nvmlDeviceGetAttributes_v2(nvml::Device device,
                                        nvml::DeviceAttributes* attributes) noexcept {
  return Query(__func__, [&](Call& call) {
    const auto target = FindDevice(call.state(), device);
    if (!target || attributes == nullptr) return nvml::kInvalidArgument;
    if (target->compute_instance == nullptr) return nvml::kNotSupported;
    *attributes = AttributesOf(*target);
    return nvml::kSuccess;
  });
}

nvml::Return nvmlDeviceIsMigDeviceHandle(nvml::Device device, unsigned* is_mig) noexcept {
  return Query(__func__, [&](Call& call) {
    const auto target = FindDevice(call.state(), device);
    if (!target || is_mig == nullptr) return nvml::kInvalidArgument;
    *is_mig = target->compute_instance != nullptr ? 1 : 0;
    return nvml::kSuccess;
  });
}

nvml::Return nvmlDeviceGetGpuInstanceId(nvml::Device device, unsigned* id) noexcept {
  return Query(__func__, [&](Call& call) {
    const auto target = FindMigDevice(call.state(), device);
    if (!target || id == nullptr) return nvml::kInvalidArgument;
    *id = target->gpu_instance->id;
    return nvml::kSuccess;
  });
}

nvml::Return nvmlDeviceGetComputeInstanceId(nvml::Device device, unsigned* id) noexcept {
  return Query(__func__, [&](Call& call) {
    const auto target = FindMigDevice(call.state(), device);
    if (!target || id == nullptr) return nvml::kInvalidArgument;
    *id = target->compute_instance->id;
    return nvml::kSuccess;
  });
}

nvml::Return nvmlDeviceGetMaxMigDeviceCount(nvml::Device device, unsigned* count) noexcept {
  return Query(__func__, [&](Call& call) {
    const auto target = FindGpu(call.state(), device);
    if (!target || count == nullptr) return nvml::kInvalidArgument;
    *count = target->gpu->mig ? static_cast<unsigned>(target->gpu->model->compute_slices) : 0;
    return nvml::kSuccess;
  });
}

nvml::Return nvmlDeviceGetMigDeviceHandleByIndex(nvml::Device device, unsigned index,
                                                 nvml::Device* mig_device) noexcept {
  return Query(__func__, [&](Call& call) {
    const auto target = FindGpu(call.state(), device);
    if (!target || mig_device == nullptr) return nvml::kInvalidArgument;
    if (!target->gpu->mig) return nvml::kNotSupported;
    if (index >= static_cast<unsigned>(target->gpu->model->compute_slices)) {
      return nvml::kInvalidArgument;
    }
    unsigned passed = 0;
    for (const GpuInstance& instance : target->gpu->instances) {
      for (const ComputeInstance& compute : instance.compute_instances) {
        if (passed++ != index) continue;
        *mig_device = MigDeviceHandle(target->index, compute);
        return nvml::kSuccess;
      }
    }
    return nvml::kNotFound;
  });
}

nvml::Return nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvml::Device mig_device,
                                                          nvml::Device* device) noexcept {
  return Query(__func__, [&](Call& call) {
    const auto target = FindMigDevice(call.state(), mig_device);
    if (!target || device == nullptr) return nvml::kInvalidArgument;
    *device = GpuHandle(target->index);
    return nvml::kSuccess;
  });
}

}  // extern "C"

}  // namespace divvy::device::simulator
