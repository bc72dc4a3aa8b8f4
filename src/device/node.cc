#include "device/node.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <utility>

#include "device/profiles.h"
#include "gpu/catalogue.h"

namespace divvy::device {
namespace {

using nvml::Return;

struct ProcessReading {
  // By GPU instance id; nvml::kNoInstance for those on no instance.
  std::map<unsigned, std::vector<GpuProcess>> by_instance;
  bool complete = true;
};

std::string ProcessName(const NvmlFunctions& f, unsigned pid) {
  char name[1024] = {};
  if (f.nvmlSystemGetProcessName(pid, name, sizeof(name) - 1) != nvml::kSuccess) return {};
  // NVML gives the whole path, or the command line; the first word's last part names it.
  std::string text(name);
  text = text.substr(0, text.find(' '));
  return text.substr(text.rfind('/') + 1);
}

// Adds what one of the three process calls lists for `device`. A driver or
// device may know no graphics or MPS clients (`optional`); any other refusal
// means that there may be processes which we cannot see.
void AddProcesses(const NvmlFunctions& f, NvmlFunctions::RunningProcesses call, bool optional,
                  nvml::Device device, ProcessReading& reading) {
  if (call == nullptr) {
    reading.complete &= optional;
    return;
  }
  std::vector<nvml::ProcessInfo> buffer(64);
  unsigned count = 0;
  Return code = nvml::kInsufficientSize;
  // The list may grow between two calls, hence the slack and the retries.
  for (int attempt = 0; attempt < 8 && code == nvml::kInsufficientSize; ++attempt) {
    count = static_cast<unsigned>(buffer.size());
    code = call(device, &count, buffer.data());
    if (code == nvml::kInsufficientSize) {
      buffer.resize(std::max<std::size_t>(count, buffer.size()) + 64);
    }
  }
  if (code != nvml::kSuccess) {
    const bool unknown_kind = code == nvml::kNotSupported || code == nvml::kFunctionNotFound;
    reading.complete &= optional && unknown_kind;
    return;
  }
  for (unsigned i = 0; i < std::min<std::size_t>(count, buffer.size()); ++i) {
    const nvml::ProcessInfo& info = buffer[i];
    auto& list = reading.by_instance[info.gpuInstanceId];
    // The same process may show up as a compute, graphics and MPS client.
    if (std::ranges::find(list, info.pid, &GpuProcess::pid) != list.end()) continue;
    GpuProcess process{info.pid, ProcessName(f, info.pid), std::nullopt};
    constexpr auto kNotAvailable = ~0ULL;
    if (info.usedGpuMemory != kNotAvailable) process.memory_bytes = info.usedGpuMemory;
    list.push_back(std::move(process));
  }
}

ProcessReading ReadProcesses(const NvmlFunctions& f, nvml::Device device) {
  ProcessReading reading;
  AddProcesses(f, f.compute_processes, false, device, reading);
  AddProcesses(f, f.graphics_processes, true, device, reading);
  AddProcesses(f, f.mps_processes, true, device, reading);
  return reading;
}

Result<ComputeInstanceState> ReadCompute(const NvmlFunctions& f, nvml::ComputeInstance compute,
                                         InstanceReading& parent) {
  nvml::ComputeInstanceInfo info{};
  if (const Return code = f.nvmlComputeInstanceGetInfo_v2(compute, &info); code != nvml::kSuccess) {
    return Fail(NvmlError(code, "reading a compute instance", "nvmlComputeInstanceGetInfo_v2"));
  }
  ComputeInstanceState state{
      info.id, {info.profileId, info.placement.start, info.placement.size}, {}};
  // The info carries the MIG device itself: its UUID costs one call, while
  // scanning for it can take seconds on a loaded node.
  char uuid[nvml::kUuidBufferSize] = {};
  if (const Return code = f.nvmlDeviceGetUUID(info.device, uuid, sizeof(uuid));
      code != nvml::kSuccess) {
    return Fail(NvmlError(code, "reading the UUID of a MIG device", "nvmlDeviceGetUUID"));
  }
  state.uuid = uuid;
  // The MIG device's own list is the authority on who runs there.
  ProcessReading reading = ReadProcesses(f, info.device);
  parent.processes_known &= reading.complete;
  for (auto& [instance, processes] : reading.by_instance) {
    for (GpuProcess& process : processes) parent.processes.push_back(std::move(process));
  }
  return state;
}

// The instance in terms of `model`, which lists every profile the GPU has.
Result<GpuInstanceState> InModel(const gpu::GpuModel& model, InstanceReading reading) {
  const auto profile = model.FindProfileById(static_cast<int>(reading.profile_id));
  if (!profile) {
    return Fail(ErrorCode::kUnavailable,
                fmt::format("NVML reports GPU instance {} with profile id {}, which it does not "
                            "list among this GPU's profiles",
                            reading.id, reading.profile_id));
  }
  return GpuInstanceState{
      .id = reading.id,
      .instance = {static_cast<int>(reading.placement.start), *profile},
      .compute = std::move(reading.compute),
      .processes = std::move(reading.processes),
      .processes_known = reading.processes_known,
  };
}

// NO_PERMISSION becomes a warning: an ordinary user still sees the rest.
Result<std::vector<GpuInstanceState>> ReadInstances(const NvmlLibrary& nvml, nvml::Device device,
                                                    GpuState& gpu) {
  const NvmlFunctions& f = nvml.functions();
  std::vector<GpuInstanceState> states;
  for (const gpu::MigProfile& profile : gpu.model.profiles) {
    // No probing with a null buffer here; twice the count covers drivers that
    // count wrongly.
    std::vector<nvml::GpuInstance> handles(2 * static_cast<std::size_t>(profile.max_instances) + 8);
    unsigned count = static_cast<unsigned>(handles.size());
    const Return code = f.nvmlDeviceGetGpuInstances(device, static_cast<unsigned>(profile.nvml_id),
                                                    handles.data(), &count);
    // The catalogue may list profiles that this driver does not have.
    if (code == nvml::kNotSupported && gpu.model.provenance != gpu::Provenance::kNvml) continue;
    if (code == nvml::kNoPermission) {
      gpu.warnings.push_back("MIG instances are shown to privileged users only");
      gpu.instances_known = false;
      return std::vector<GpuInstanceState>{};
    }
    if (code != nvml::kSuccess) {
      return Fail(NvmlError(code, fmt::format("listing {} instances", profile.name),
                            "nvmlDeviceGetGpuInstances"));
    }
    for (unsigned i = 0; i < std::min<std::size_t>(count, handles.size()); ++i) {
      auto reading = ReadInstance(nvml, handles[i]);
      if (!reading) return Fail(reading.error());
      auto state = InModel(gpu.model, *std::move(reading));
      if (!state) return Fail(state.error());
      states.push_back(*std::move(state));
    }
  }
  std::ranges::sort(states, {}, [](const GpuInstanceState& s) { return s.instance; });
  return states;
}

// Gives each instance the processes that only the whole GPU's list names.
void DealOutProcesses(ProcessReading reading, GpuState& gpu) {
  gpu.processes_known &= reading.complete;
  for (auto& [instance, processes] : reading.by_instance) {
    const auto owner = std::ranges::find(gpu.instances, instance, &GpuInstanceState::id);
    auto& list = owner == gpu.instances.end() ? gpu.processes : owner->processes;
    for (GpuProcess& process : processes) {
      if (std::ranges::find(list, process.pid, &GpuProcess::pid) == list.end()) {
        list.push_back(std::move(process));
      }
    }
  }
}

Result<void> ReadIdentity(const NvmlFunctions& f, nvml::Device device, GpuState& gpu) {
  char uuid[nvml::kUuidBufferSize] = {};
  char name[nvml::kNameBufferSize] = {};
  nvml::PciInfo pci{};
  nvml::Memory memory{};
  if (const Return code = f.nvmlDeviceGetIndex(device, &gpu.index); code != nvml::kSuccess) {
    return Fail(NvmlError(code, "reading a GPU's index", "nvmlDeviceGetIndex"));
  }
  const std::string which = fmt::format("reading GPU {}", gpu.index);
  if (const Return code = f.nvmlDeviceGetUUID(device, uuid, sizeof(uuid)); code != nvml::kSuccess) {
    return Fail(NvmlError(code, which, "nvmlDeviceGetUUID"));
  }
  if (const Return code = f.nvmlDeviceGetName(device, name, sizeof(name)); code != nvml::kSuccess) {
    return Fail(NvmlError(code, which, "nvmlDeviceGetName"));
  }
  if (const Return code = f.nvmlDeviceGetPciInfo_v3(device, &pci); code != nvml::kSuccess) {
    return Fail(NvmlError(code, which, "nvmlDeviceGetPciInfo_v3"));
  }
  // Some parts have no memory of their own, and in MIG mode not all may ask.
  const Return asked = f.nvmlDeviceGetMemoryInfo(device, &memory);
  if (asked == nvml::kNoPermission || asked == nvml::kNotSupported) {
    gpu.warnings.push_back("NVML does not show this GPU's memory");
  } else if (asked != nvml::kSuccess) {
    return Fail(NvmlError(asked, which, "nvmlDeviceGetMemoryInfo"));
  }
  gpu.uuid = uuid;
  gpu.name = name;
  gpu.pci_bus_id = std::string(pci.busId, strnlen(pci.busId, sizeof(pci.busId)));
  gpu.pci_device_id = pci.pciDeviceId;
  gpu.memory_total_bytes = memory.total;
  gpu.memory_used_bytes = memory.used;
  return {};
}

Result<GpuState> ReadDevice(const NvmlLibrary& nvml, nvml::Device device) {
  const NvmlFunctions& f = nvml.functions();
  GpuState gpu{};
  if (auto identity = ReadIdentity(f, device, gpu); !identity) return Fail(identity.error());

  unsigned current = 0;
  unsigned pending = 0;
  const Return mode = f.nvmlDeviceGetMigMode == nullptr
                          ? nvml::kNotSupported
                          : f.nvmlDeviceGetMigMode(device, &current, &pending);
  if (mode != nvml::kSuccess && mode != nvml::kNotSupported && mode != nvml::kFunctionNotFound) {
    return Fail(NvmlError(mode, fmt::format("reading the MIG mode of GPU {}", gpu.index),
                          "nvmlDeviceGetMigMode"));
  }
  gpu.mig_capable = mode == nvml::kSuccess;
  gpu.mig_enabled = gpu.mig_capable && current == nvml::kMigEnable;
  gpu.mig_pending = gpu.mig_capable && pending == nvml::kMigEnable;
  const gpu::GpuModel* const known = gpu::FindGpuModelByPciId(gpu.pci_device_id);
  gpu.model.name = known != nullptr ? known->name : gpu.name;
  if (gpu.mig_capable) {
    auto reading = ReadProfiles(nvml, device, gpu.name, gpu.pci_device_id, gpu.memory_total_bytes);
    if (!reading) return Fail(reading.error());
    gpu.model = std::move(reading->model);
    std::ranges::move(reading->warnings, std::back_inserter(gpu.warnings));
  }
  if (gpu.mig_enabled && nvml.has_mig()) {
    auto instances = ReadInstances(nvml, device, gpu);
    if (!instances) return Fail(instances.error());
    gpu.instances = *std::move(instances);
  } else if (gpu.mig_enabled) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("GPU {} is in MIG mode, but this driver's NVML is too old to list its "
                            "instances; R470 or newer can",
                            gpu.index));
  }
  DealOutProcesses(ReadProcesses(f, device), gpu);
  return gpu;
}

GpuState Unreadable(unsigned index, const Error& error) {
  GpuState gpu{};
  gpu.index = index;
  gpu.name = "cannot be read: " + error.message;
  gpu.model.name = "a GPU that cannot be read";
  gpu.instances_known = gpu.processes_known = false;
  return gpu;
}

}  // namespace

Result<NodeState> ReadNode(const NvmlLibrary& nvml) {
  const NvmlFunctions& f = nvml.functions();
  NodeState node;
  char version[nvml::kVersionBufferSize] = {};
  if (const Return code = f.nvmlSystemGetDriverVersion(version, sizeof(version));
      code != nvml::kSuccess) {
    return Fail(NvmlError(code, "reading the driver's version", "nvmlSystemGetDriverVersion"));
  }
  node.driver_version = version;
  unsigned count = 0;
  if (const Return code = f.nvmlDeviceGetCount_v2(&count); code != nvml::kSuccess) {
    return Fail(NvmlError(code, "counting GPUs", "nvmlDeviceGetCount_v2"));
  }
  for (unsigned i = 0; i < count; ++i) {
    nvml::Device device = nullptr;
    if (const Return code = f.nvmlDeviceGetHandleByIndex_v2(i, &device); code != nvml::kSuccess) {
      node.gpus.push_back(Unreadable(
          i, NvmlError(code, fmt::format("opening GPU {}", i), "nvmlDeviceGetHandleByIndex_v2")));
      continue;
    }
    auto gpu = ReadDevice(nvml, device);
    // One bad GPU must not hide the others.
    node.gpus.push_back(gpu ? *std::move(gpu) : Unreadable(i, gpu.error()));
  }
  return node;
}

Result<GpuState> ReadGpu(const NvmlLibrary& nvml, const std::string& uuid) {
  nvml::Device device = nullptr;
  if (const Return code = nvml.functions().nvmlDeviceGetHandleByUUID(uuid.c_str(), &device);
      code != nvml::kSuccess) {
    return Fail(NvmlError(code, fmt::format("opening GPU {}", uuid), "nvmlDeviceGetHandleByUUID"));
  }
  return ReadDevice(nvml, device);
}

nvml::ComputeMode ReadComputeMode(const NvmlLibrary& nvml, const std::string& uuid) {
  const NvmlFunctions& f = nvml.functions();
  nvml::Device device = nullptr;
  nvml::ComputeMode mode = nvml::kComputeDefault;
  const bool known = f.nvmlDeviceGetComputeMode != nullptr &&
                     f.nvmlDeviceGetHandleByUUID(uuid.c_str(), &device) == nvml::kSuccess &&
                     f.nvmlDeviceGetComputeMode(device, &mode) == nvml::kSuccess;
  return known ? mode : nvml::kComputeDefault;
}

Result<std::vector<nvml::ComputeInstanceProfileInfo>> ReadComputeProfiles(
    const NvmlLibrary& nvml, nvml::GpuInstance instance) {
  const NvmlFunctions& f = nvml.functions();
  std::vector<nvml::ComputeInstanceProfileInfo> profiles;
  for (unsigned e = 0; e < nvml::kComputeInstanceProfileCount; ++e) {
    nvml::ComputeInstanceProfileInfo profile{};
    const Return code = f.nvmlGpuInstanceGetComputeInstanceProfileInfo(
        instance, e, nvml::kEngineProfileShared, &profile);
    // Profiles that do not fit this instance answer one or the other.
    if (code == nvml::kNotSupported || code == nvml::kInvalidArgument) continue;
    if (code != nvml::kSuccess) {
      return Fail(NvmlError(code, "reading compute instance profiles",
                            "nvmlGpuInstanceGetComputeInstanceProfileInfo"));
    }
    profiles.push_back(profile);
  }
  return profiles;
}

Result<InstanceReading> ReadInstance(const NvmlLibrary& nvml, nvml::GpuInstance instance) {
  const NvmlFunctions& f = nvml.functions();
  nvml::GpuInstanceInfo info{};
  if (const Return code = f.nvmlGpuInstanceGetInfo(instance, &info); code != nvml::kSuccess) {
    return Fail(NvmlError(code, "reading a GPU instance", "nvmlGpuInstanceGetInfo"));
  }
  InstanceReading reading{.id = info.id,
                          .profile_id = info.profileId,
                          .placement = info.placement,
                          .compute = {},
                          .processes = {}};
  const auto profiles = ReadComputeProfiles(nvml, instance);
  if (!profiles) return Fail(profiles.error());
  for (const nvml::ComputeInstanceProfileInfo& profile : *profiles) {
    // A GPU instance has at most as many compute instances as compute slices.
    std::vector<nvml::ComputeInstance> computes(16);
    unsigned count = static_cast<unsigned>(computes.size());
    if (const Return code =
            f.nvmlGpuInstanceGetComputeInstances(instance, profile.id, computes.data(), &count);
        code != nvml::kSuccess) {
      return Fail(NvmlError(code, fmt::format("listing compute instances of {}", info.id),
                            "nvmlGpuInstanceGetComputeInstances"));
    }
    for (unsigned i = 0; i < std::min<std::size_t>(count, computes.size()); ++i) {
      auto compute = ReadCompute(f, computes[i], reading);
      if (!compute) return Fail(compute.error());
      reading.compute.push_back(*std::move(compute));
    }
  }
  std::ranges::sort(reading.compute, {},
                    [](const ComputeInstanceState& c) { return c.spec.start; });
  return reading;
}

}  // namespace divvy::device
