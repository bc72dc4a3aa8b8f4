#include "device/simulator/nvml_client.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/check.h"

namespace divvy::device::simulator {
namespace {

template <typename Function>
void Load(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
}

void LoadDeviceFunctions(void* library, NvmlClient& nvml) {
  Load(library, "nvmlInit", nvml.init_v1);
  Load(library, "nvmlInit_v2", nvml.init);
  Load(library, "nvmlInitWithFlags", nvml.init_with_flags);
  Load(library, "nvmlShutdown", nvml.shutdown);
  Load(library, "nvmlErrorString", nvml.error_string);
  Load(library, "nvmlSystemGetDriverVersion", nvml.driver_version);
  Load(library, "nvmlSystemGetNVMLVersion", nvml.nvml_version);
  Load(library, "nvmlSystemGetCudaDriverVersion_v2", nvml.cuda_version);
  Load(library, "nvmlSystemGetProcessName", nvml.process_name);
  Load(library, "nvmlDeviceGetCount_v2", nvml.device_count);
  Load(library, "nvmlDeviceGetHandleByIndex_v2", nvml.handle_by_index);
  Load(library, "nvmlDeviceGetHandleByUUID", nvml.handle_by_uuid);
  Load(library, "nvmlDeviceGetUUID", nvml.uuid);
  Load(library, "nvmlDeviceGetName", nvml.name);
  Load(library, "nvmlDeviceGetIndex", nvml.index);
  Load(library, "nvmlDeviceGetComputeMode", nvml.compute_mode);
  Load(library, "nvmlDeviceGetMinorNumber", nvml.minor_number);
  Load(library, "nvmlDeviceGetMemoryInfo", nvml.memory);
  Load(library, "nvmlDeviceGetMemoryInfo_v2", nvml.memory_v2);
  Load(library, "nvmlDeviceGetAttributes_v2", nvml.attributes);
  Load(library, "nvmlDeviceGetMigMode", nvml.mig_mode);
  Load(library, "nvmlDeviceSetMigMode", nvml.set_mig_mode);
  Load(library, "nvmlDeviceIsMigDeviceHandle", nvml.is_mig_device);
  Load(library, "nvmlDeviceGetMaxMigDeviceCount", nvml.max_mig_devices);
  Load(library, "nvmlDeviceGetMigDeviceHandleByIndex", nvml.mig_device_by_index);
  Load(library, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", nvml.parent_device);
  Load(library, "nvmlDeviceGetComputeRunningProcesses", nvml.compute_processes_v1);
  Load(library, "nvmlDeviceGetComputeRunningProcesses_v2", nvml.compute_processes_v2);
  Load(library, "nvmlDeviceGetComputeRunningProcesses_v3", nvml.compute_processes);
  Load(library, "nvmlDeviceGetGraphicsRunningProcesses_v3", nvml.graphics_processes);
  Load(library, "nvmlDeviceGetMPSComputeRunningProcesses_v3", nvml.mps_processes);
  Load(library, "nvmlDeviceGetUtilizationRates", nvml.utilization);
  Load(library, "nvmlDeviceGetPowerUsage", nvml.power);
  Load(library, "nvmlDeviceGetTotalEnergyConsumption", nvml.energy);
  Load(library, "nvmlGpmQueryDeviceSupport", nvml.gpm_support);
  Load(library, "nvmlGpmSampleAlloc", nvml.gpm_alloc);
  Load(library, "nvmlGpmSampleFree", nvml.gpm_free);
  Load(library, "nvmlGpmSampleGet", nvml.gpm_sample);
  Load(library, "nvmlGpmMigSampleGet", nvml.gpm_mig_sample);
  Load(library, "nvmlGpmMetricsGet", nvml.gpm_metrics);
}

void LoadInstanceFunctions(void* library, NvmlClient& nvml) {
  Load(library, "nvmlDeviceGetHandleByPciBusId_v2", nvml.handle_by_pci_bus_id);
  Load(library, "nvmlDeviceGetPciInfo_v3", nvml.pci_info);
  Load(library, "nvmlDeviceGetGpuInstanceProfileInfo", nvml.gi_profile);
  Load(library, "nvmlDeviceGetGpuInstanceProfileInfoV", nvml.gi_profile_v);
  Load(library, "nvmlDeviceGetGpuInstancePossiblePlacements_v2", nvml.gi_placements);
  Load(library, "nvmlDeviceGetGpuInstanceRemainingCapacity", nvml.gi_capacity);
  Load(library, "nvmlDeviceCreateGpuInstance", nvml.create_gi);
  Load(library, "nvmlDeviceCreateGpuInstanceWithPlacement", nvml.create_gi_at);
  Load(library, "nvmlGpuInstanceDestroy", nvml.destroy_gi);
  Load(library, "nvmlDeviceGetGpuInstances", nvml.gpu_instances);
  Load(library, "nvmlDeviceGetGpuInstanceById", nvml.gi_by_id);
  Load(library, "nvmlGpuInstanceGetInfo", nvml.gi_info);
  Load(library, "nvmlGpuInstanceGetComputeInstanceProfileInfo", nvml.ci_profile);
  Load(library, "nvmlGpuInstanceGetComputeInstanceProfileInfoV", nvml.ci_profile_v);
  Load(library, "nvmlGpuInstanceGetComputeInstanceRemainingCapacity", nvml.ci_capacity);
  Load(library, "nvmlGpuInstanceGetComputeInstancePossiblePlacements", nvml.ci_placements);
  Load(library, "nvmlGpuInstanceCreateComputeInstance", nvml.create_ci);
  Load(library, "nvmlGpuInstanceCreateComputeInstanceWithPlacement", nvml.create_ci_at);
  Load(library, "nvmlComputeInstanceDestroy", nvml.destroy_ci);
  Load(library, "nvmlGpuInstanceGetComputeInstances", nvml.compute_instances);
  Load(library, "nvmlGpuInstanceGetComputeInstanceById", nvml.ci_by_id);
  Load(library, "nvmlComputeInstanceGetInfo_v2", nvml.ci_info);
  Load(library, "nvmlDeviceGetGpuInstanceId", nvml.gi_id);
  Load(library, "nvmlDeviceGetComputeInstanceId", nvml.ci_id);
}

}  // namespace

NvmlClient::NvmlClient(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  Check(library != nullptr, "the simulated library loads");
  LoadDeviceFunctions(library, *this);
  LoadInstanceFunctions(library, *this);
}

std::string NvmlClient::LibraryPath() { return DIVVY_NVML_SIM_LIBRARY; }
std::string NvmlClient::OldLibraryPath() { return DIVVY_NVML_SIM_OLD_LIBRARY; }

TemporaryFolder::TemporaryFolder() : path_(::testing::TempDir() + "/divvy-nvml-sim-XXXXXX") {
  Check(mkdtemp(path_.data()) != nullptr, "a temporary folder can be made");
}

TemporaryFolder::~TemporaryFolder() { std::filesystem::remove_all(path_); }

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

int RunInChild(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    std::fflush(nullptr);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

ScopedEnvironment::ScopedEnvironment(const char* name, const std::string& value) : name_(name) {
  setenv(name, value.c_str(), 1);
}

ScopedEnvironment::~ScopedEnvironment() { unsetenv(name_); }

}  // namespace divvy::device::simulator
