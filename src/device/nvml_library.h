#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "device/nvml_abi.h"

namespace divvy::device {

// NVML's functions, under NVIDIA's names. Those listed as optional may be null:
// older drivers lack them.
struct NvmlFunctions {
  using Device = nvml::Device;
  using Return = nvml::Return;

  Return (*nvmlInit_v2)();
  Return (*nvmlShutdown)();
  Return (*nvmlSystemGetDriverVersion)(char* version, unsigned length);
  Return (*nvmlSystemGetProcessName)(unsigned pid, char* name, unsigned length);
  Return (*nvmlDeviceGetCount_v2)(unsigned* count);
  Return (*nvmlDeviceGetHandleByIndex_v2)(unsigned index, Device* device);
  Return (*nvmlDeviceGetHandleByUUID)(const char* uuid, Device* device);
  Return (*nvmlDeviceGetUUID)(Device device, char* uuid, unsigned length);
  Return (*nvmlDeviceGetName)(Device device, char* name, unsigned length);
  Return (*nvmlDeviceGetIndex)(Device device, unsigned* index);
  Return (*nvmlDeviceGetPciInfo_v3)(Device device, nvml::PciInfo* pci);
  Return (*nvmlDeviceGetMemoryInfo)(Device device, nvml::Memory* memory);

  // Optional, since a driver may be too old for MIG or for one form of a call.
  Return (*nvmlDeviceGetComputeMode)(Device device, nvml::ComputeMode* mode);
  Return (*nvmlDeviceGetMigMode)(Device device, unsigned* current, unsigned* pending);
  Return (*nvmlDeviceSetMigMode)(Device device, unsigned mode, Return* activation);
  Return (*nvmlDeviceGetGpuInstanceProfileInfo)(Device device, unsigned profile,
                                                nvml::GpuInstanceProfileInfo* info);
  Return (*nvmlDeviceGetGpuInstanceProfileInfoV)(Device device, unsigned profile,
                                                 nvml::GpuInstanceProfileInfoV2* info);
  Return (*nvmlDeviceGetGpuInstancePossiblePlacements_v2)(Device device, unsigned profile_id,
                                                          nvml::Placement* placements,
                                                          unsigned* count);
  Return (*nvmlDeviceCreateGpuInstanceWithPlacement)(Device device, unsigned profile_id,
                                                     const nvml::Placement* placement,
                                                     nvml::GpuInstance* instance);
  Return (*nvmlGpuInstanceDestroy)(nvml::GpuInstance instance);
  Return (*nvmlDeviceGetGpuInstances)(Device device, unsigned profile_id,
                                      nvml::GpuInstance* instances, unsigned* count);
  Return (*nvmlDeviceGetGpuInstanceById)(Device device, unsigned id, nvml::GpuInstance* instance);
  Return (*nvmlGpuInstanceGetInfo)(nvml::GpuInstance instance, nvml::GpuInstanceInfo* info);
  Return (*nvmlGpuInstanceGetComputeInstanceProfileInfo)(nvml::GpuInstance instance,
                                                         unsigned profile, unsigned engine_profile,
                                                         nvml::ComputeInstanceProfileInfo* info);
  Return (*nvmlGpuInstanceCreateComputeInstance)(nvml::GpuInstance instance, unsigned profile_id,
                                                 nvml::ComputeInstance* compute);
  Return (*nvmlGpuInstanceCreateComputeInstanceWithPlacement)(nvml::GpuInstance instance,
                                                              unsigned profile_id,
                                                              const nvml::Placement* placement,
                                                              nvml::ComputeInstance* compute);
  Return (*nvmlComputeInstanceDestroy)(nvml::ComputeInstance compute);
  Return (*nvmlGpuInstanceGetComputeInstances)(nvml::GpuInstance instance, unsigned profile_id,
                                               nvml::ComputeInstance* computes, unsigned* count);
  Return (*nvmlGpuInstanceGetComputeInstanceById)(nvml::GpuInstance instance, unsigned id,
                                                  nvml::ComputeInstance* compute);
  Return (*nvmlComputeInstanceGetInfo_v2)(nvml::ComputeInstance compute,
                                          nvml::ComputeInstanceInfo* info);

  // Optional: what a GPU does meanwhile. GPM is of Hopper and later.
  Return (*nvmlDeviceGetUtilizationRates)(Device device, nvml::Utilization* utilization);
  Return (*nvmlDeviceGetPowerUsage)(Device device, unsigned* milliwatts);
  Return (*nvmlDeviceGetTotalEnergyConsumption)(Device device, unsigned long long* millijoules);
  Return (*nvmlGpmQueryDeviceSupport)(Device device, nvml::GpmSupport* support);
  Return (*nvmlGpmSampleAlloc)(nvml::GpmSample* sample);
  Return (*nvmlGpmSampleFree)(nvml::GpmSample sample);
  Return (*nvmlGpmSampleGet)(Device device, nvml::GpmSample sample);
  Return (*nvmlGpmMigSampleGet)(Device device, unsigned gpu_instance, nvml::GpmSample sample);
  Return (*nvmlGpmMetricsGet)(nvml::GpmMetricsGet* metrics);

  // The newest form of each that the driver has; v2 and v3 take the same struct.
  using RunningProcesses = Return (*)(Device device, unsigned* count, nvml::ProcessInfo* processes);
  RunningProcesses compute_processes;
  RunningProcesses graphics_processes;
  RunningProcesses mps_processes;
};

// NVML, loaded and initialised for as long as this object lives. The library is
// looked up at run time only, so Divvy runs where there is no driver.
// Thread-safe where NVML is; Divvy calls it from one thread.
class NvmlLibrary {
 public:
  // Loads `path` as dlopen does: a bare name is searched for.
  //   kUnavailable       no such library, it is not NVML, or the driver does not run;
  //   kPermissionDenied  the driver's devices may not be opened.
  [[nodiscard]] static Result<std::unique_ptr<NvmlLibrary>> Open(const std::string& path);

  ~NvmlLibrary();
  NvmlLibrary(const NvmlLibrary&) = delete;
  NvmlLibrary& operator=(const NvmlLibrary&) = delete;

  const NvmlFunctions& functions() const { return functions_; }

  // True when all is there that reading and changing instances takes.
  bool has_mig() const;

 private:
  NvmlLibrary() = default;

  NvmlFunctions functions_{};
};

// NVIDIA's name for a return code without the NVML_ERROR_ prefix, e.g. "IN_USE".
[[nodiscard]] std::string_view NameOf(nvml::Return code);

// The error for a call that answered `code`: what was being done, the function,
// the code by name, and where it helps what to do about it.
[[nodiscard]] Error NvmlError(nvml::Return code, std::string_view doing, std::string_view function);

}  // namespace divvy::device
