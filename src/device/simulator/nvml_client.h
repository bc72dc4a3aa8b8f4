#pragma once

#include <functional>
#include <string>

#include "device/simulator/nvml_entry_points.h"
#include "device/simulator/state.h"

// For tests: programs that use the built library as any other program does.

namespace divvy::device::simulator {

// The library's entry points, looked up by name in the shared object at `path`
// (the simulator's own by default). Null where the library has no such function.
// The object stays loaded: it keeps its memory for the life of the process.
struct NvmlClient {
  explicit NvmlClient(const std::string& path = LibraryPath());

  static std::string LibraryPath();
  static std::string OldLibraryPath();

  decltype(&nvmlInit) init_v1;
  decltype(&nvmlInit_v2) init;
  decltype(&nvmlInitWithFlags) init_with_flags;
  decltype(&nvmlShutdown) shutdown;
  decltype(&nvmlErrorString) error_string;
  decltype(&nvmlSystemGetDriverVersion) driver_version;
  decltype(&nvmlSystemGetNVMLVersion) nvml_version;
  decltype(&nvmlSystemGetCudaDriverVersion_v2) cuda_version;
  decltype(&nvmlSystemGetProcessName) process_name;
  decltype(&nvmlDeviceGetCount_v2) device_count;
  decltype(&nvmlDeviceGetHandleByIndex_v2) handle_by_index;
  decltype(&nvmlDeviceGetHandleByUUID) handle_by_uuid;
  decltype(&nvmlDeviceGetHandleByPciBusId_v2) handle_by_pci_bus_id;
  decltype(&nvmlDeviceGetUUID) uuid;
  decltype(&nvmlDeviceGetName) name;
  decltype(&nvmlDeviceGetIndex) index;
  decltype(&nvmlDeviceGetComputeMode) compute_mode;
  decltype(&nvmlDeviceGetMinorNumber) minor_number;
  decltype(&nvmlDeviceGetPciInfo_v3) pci_info;
  decltype(&nvmlDeviceGetMemoryInfo) memory;
  decltype(&nvmlDeviceGetMemoryInfo_v2) memory_v2;
  decltype(&nvmlDeviceGetAttributes_v2) attributes;
  decltype(&nvmlDeviceGetMigMode) mig_mode;
  decltype(&nvmlDeviceSetMigMode) set_mig_mode;
  decltype(&nvmlDeviceGetGpuInstanceProfileInfo) gi_profile;
  decltype(&nvmlDeviceGetGpuInstanceProfileInfoV) gi_profile_v;
  decltype(&nvmlDeviceGetGpuInstancePossiblePlacements_v2) gi_placements;
  decltype(&nvmlDeviceGetGpuInstanceRemainingCapacity) gi_capacity;
  decltype(&nvmlDeviceCreateGpuInstance) create_gi;
  decltype(&nvmlDeviceCreateGpuInstanceWithPlacement) create_gi_at;
  decltype(&nvmlGpuInstanceDestroy) destroy_gi;
  decltype(&nvmlDeviceGetGpuInstances) gpu_instances;
  decltype(&nvmlDeviceGetGpuInstanceById) gi_by_id;
  decltype(&nvmlGpuInstanceGetInfo) gi_info;
  decltype(&nvmlGpuInstanceGetComputeInstanceProfileInfo) ci_profile;
  decltype(&nvmlGpuInstanceGetComputeInstanceProfileInfoV) ci_profile_v;
  decltype(&nvmlGpuInstanceGetComputeInstanceRemainingCapacity) ci_capacity;
  decltype(&nvmlGpuInstanceGetComputeInstancePossiblePlacements) ci_placements;
  decltype(&nvmlGpuInstanceCreateComputeInstance) create_ci;
  decltype(&nvmlGpuInstanceCreateComputeInstanceWithPlacement) create_ci_at;
  decltype(&nvmlComputeInstanceDestroy) destroy_ci;
  decltype(&nvmlGpuInstanceGetComputeInstances) compute_instances;
  decltype(&nvmlGpuInstanceGetComputeInstanceById) ci_by_id;
  decltype(&nvmlComputeInstanceGetInfo_v2) ci_info;
  decltype(&nvmlDeviceIsMigDeviceHandle) is_mig_device;
  decltype(&nvmlDeviceGetGpuInstanceId) gi_id;
  decltype(&nvmlDeviceGetComputeInstanceId) ci_id;
  decltype(&nvmlDeviceGetMaxMigDeviceCount) max_mig_devices;
  decltype(&nvmlDeviceGetMigDeviceHandleByIndex) mig_device_by_index;
  decltype(&nvmlDeviceGetDeviceHandleFromMigDeviceHandle) parent_device;
  decltype(&nvmlDeviceGetComputeRunningProcesses) compute_processes_v1;
  decltype(&nvmlDeviceGetComputeRunningProcesses_v2) compute_processes_v2;
  decltype(&nvmlDeviceGetComputeRunningProcesses_v3) compute_processes;
  decltype(&nvmlDeviceGetGraphicsRunningProcesses_v3) graphics_processes;
  decltype(&nvmlDeviceGetMPSComputeRunningProcesses_v3) mps_processes;
  decltype(&nvmlDeviceGetUtilizationRates) utilization;
  decltype(&nvmlDeviceGetPowerUsage) power;
  decltype(&nvmlDeviceGetTotalEnergyConsumption) energy;
  decltype(&nvmlGpmQueryDeviceSupport) gpm_support;
  decltype(&nvmlGpmSampleAlloc) gpm_alloc;
  decltype(&nvmlGpmSampleFree) gpm_free;
  decltype(&nvmlGpmSampleGet) gpm_sample;
  decltype(&nvmlGpmMigSampleGet) gpm_mig_sample;
  decltype(&nvmlGpmMetricsGet) gpm_metrics;
};

// A folder that is gone with the object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// The text of a file; empty if there is none.
[[nodiscard]] std::string ReadFile(const std::string& path);

// Runs `body` in a forked child and gives its wait status; the child's exit
// status is 0 unless `body` had a failed expectation.
[[nodiscard]] int RunInChild(const std::function<void()>& body);

// Sets a variable for the life of the object; it is unset afterwards.
class ScopedEnvironment {
 public:
  ScopedEnvironment(const char* name, const std::string& value);
  ~ScopedEnvironment();
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;

 private:
  const char* name_;
};

}  // namespace divvy::device::simulator
