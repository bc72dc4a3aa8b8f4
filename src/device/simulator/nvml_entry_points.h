#pragma once

#include "device/nvml_abi.h"
#include "device/simulator/nvml_structs.h"

// The library's entry points, with NVML's own names and signatures. What they
// do is in NVML's manual; docs/design/nvml-simulator.md says where the simulator
// is narrower. All of them may be called from any thread.

namespace divvy::device::simulator {

extern "C" {

// Initialisation, errors, the system.
nvml::Return nvmlInit() noexcept;
nvml::Return nvmlInit_v2() noexcept;
nvml::Return nvmlInitWithFlags(unsigned flags) noexcept;
nvml::Return nvmlShutdown() noexcept;
const char* nvmlErrorString(nvml::Return result) noexcept;
nvml::Return nvmlSystemGetDriverVersion(char* version, unsigned length) noexcept;
nvml::Return nvmlSystemGetNVMLVersion(char* version, unsigned length) noexcept;
nvml::Return nvmlSystemGetCudaDriverVersion(int* version) noexcept;
nvml::Return nvmlSystemGetCudaDriverVersion_v2(int* version) noexcept;
nvml::Return nvmlSystemGetProcessName(unsigned pid, char* name, unsigned length) noexcept;

// GPUs and MIG devices.
nvml::Return nvmlDeviceGetCount(unsigned* count) noexcept;
nvml::Return nvmlDeviceGetCount_v2(unsigned* count) noexcept;
nvml::Return nvmlDeviceGetHandleByIndex(unsigned index, nvml::Device* device) noexcept;
nvml::Return nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml::Device* device) noexcept;
nvml::Return nvmlDeviceGetHandleByPciBusId(const char* bus_id, nvml::Device* device) noexcept;
nvml::Return nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, nvml::Device* device) noexcept;
nvml::Return nvmlDeviceGetHandleByUUID(const char* uuid, nvml::Device* device) noexcept;
nvml::Return nvmlDeviceGetUUID(nvml::Device device, char* uuid, unsigned length) noexcept;
nvml::Return nvmlDeviceGetName(nvml::Device device, char* name, unsigned length) noexcept;
nvml::Return nvmlDeviceGetIndex(nvml::Device device, unsigned* index) noexcept;
nvml::Return nvmlDeviceGetComputeMode(nvml::Device device, nvml::ComputeMode* mode) noexcept;
nvml::Return nvmlDeviceGetMinorNumber(nvml::Device device, unsigned* minor) noexcept;
nvml::Return nvmlDeviceGetPciInfo_v3(nvml::Device device, nvml::PciInfo* pci) noexcept;
nvml::Return nvmlDeviceGetMemoryInfo(nvml::Device device, nvml::Memory* memory) noexcept;
nvml::Return nvmlDeviceGetMemoryInfo_v2(nvml::Device device, MemoryV2* memory) noexcept;
nvml::Return nvmlDeviceGetAttributes_v2(nvml::Device device,
                                        nvml::DeviceAttributes* attributes) noexcept;
nvml::Return nvmlDeviceIsMigDeviceHandle(nvml::Device device, unsigned* is_mig) noexcept;
nvml::Return nvmlDeviceGetGpuInstanceId(nvml::Device device, unsigned* id) noexcept;
nvml::Return nvmlDeviceGetComputeInstanceId(nvml::Device device, unsigned* id) noexcept;
nvml::Return nvmlDeviceGetMaxMigDeviceCount(nvml::Device device, unsigned* count) noexcept;
nvml::Return nvmlDeviceGetMigDeviceHandleByIndex(nvml::Device device, unsigned index,
                                                 nvml::Device* mig_device) noexcept;
nvml::Return nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvml::Device mig_device,
                                                          nvml::Device* device) noexcept;

// Processes.
nvml::Return nvmlDeviceGetComputeRunningProcesses(nvml::Device device, unsigned* count,
                                                  ProcessInfoV1* infos) noexcept;
nvml::Return nvmlDeviceGetComputeRunningProcesses_v2(nvml::Device device, unsigned* count,
                                                     nvml::ProcessInfo* infos) noexcept;
nvml::Return nvmlDeviceGetComputeRunningProcesses_v3(nvml::Device device, unsigned* count,
                                                     nvml::ProcessInfo* infos) noexcept;
nvml::Return nvmlDeviceGetGraphicsRunningProcesses_v3(nvml::Device device, unsigned* count,
                                                      nvml::ProcessInfo* infos) noexcept;
nvml::Return nvmlDeviceGetMPSComputeRunningProcesses_v3(nvml::Device device, unsigned* count,
                                                        nvml::ProcessInfo* infos) noexcept;

// What GPUs do meanwhile.
nvml::Return nvmlDeviceGetUtilizationRates(nvml::Device device,
                                           nvml::Utilization* utilization) noexcept;
nvml::Return nvmlDeviceGetPowerUsage(nvml::Device device, unsigned* milliwatts) noexcept;
nvml::Return nvmlDeviceGetTotalEnergyConsumption(nvml::Device device,
                                                 unsigned long long* millijoules) noexcept;
nvml::Return nvmlGpmQueryDeviceSupport(nvml::Device device, nvml::GpmSupport* support) noexcept;
nvml::Return nvmlGpmSampleAlloc(nvml::GpmSample* sample) noexcept;
nvml::Return nvmlGpmSampleFree(nvml::GpmSample sample) noexcept;
nvml::Return nvmlGpmSampleGet(nvml::Device device, nvml::GpmSample sample) noexcept;
nvml::Return nvmlGpmMigSampleGet(nvml::Device device, unsigned gpu_instance,
                                 nvml::GpmSample sample) noexcept;
nvml::Return nvmlGpmMetricsGet(nvml::GpmMetricsGet* metrics) noexcept;

// MIG mode and GPU instances.
nvml::Return nvmlDeviceGetMigMode(nvml::Device device, unsigned* current,
                                  unsigned* pending) noexcept;
nvml::Return nvmlDeviceSetMigMode(nvml::Device device, unsigned mode,
                                  nvml::Return* activation_status) noexcept;
nvml::Return nvmlDeviceGetGpuInstanceProfileInfo(nvml::Device device, unsigned profile,
                                                 nvml::GpuInstanceProfileInfo* info) noexcept;
nvml::Return nvmlDeviceGetGpuInstanceProfileInfoV(nvml::Device device, unsigned profile,
                                                  nvml::GpuInstanceProfileInfoV2* info) noexcept;
nvml::Return nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvml::Device device, unsigned profile_id,
                                                           nvml::Placement* placements,
                                                           unsigned* count) noexcept;
nvml::Return nvmlDeviceGetGpuInstanceRemainingCapacity(nvml::Device device, unsigned profile_id,
                                                       unsigned* count) noexcept;
nvml::Return nvmlDeviceCreateGpuInstance(nvml::Device device, unsigned profile_id,
                                         nvml::GpuInstance* gpu_instance) noexcept;
nvml::Return nvmlDeviceCreateGpuInstanceWithPlacement(nvml::Device device, unsigned profile_id,
                                                      const nvml::Placement* placement,
                                                      nvml::GpuInstance* gpu_instance) noexcept;
nvml::Return nvmlGpuInstanceDestroy(nvml::GpuInstance gpu_instance) noexcept;
nvml::Return nvmlDeviceGetGpuInstances(nvml::Device device, unsigned profile_id,
                                       nvml::GpuInstance* gpu_instances, unsigned* count) noexcept;
nvml::Return nvmlDeviceGetGpuInstanceById(nvml::Device device, unsigned id,
                                          nvml::GpuInstance* gpu_instance) noexcept;
nvml::Return nvmlGpuInstanceGetInfo(nvml::GpuInstance gpu_instance,
                                    nvml::GpuInstanceInfo* info) noexcept;

// Compute instances.
nvml::Return nvmlGpuInstanceGetComputeInstanceProfileInfo(
    nvml::GpuInstance gpu_instance, unsigned profile, unsigned engine_profile,
    nvml::ComputeInstanceProfileInfo* info) noexcept;
nvml::Return nvmlGpuInstanceGetComputeInstanceProfileInfoV(
    nvml::GpuInstance gpu_instance, unsigned profile, unsigned engine_profile,
    nvml::ComputeInstanceProfileInfoV2* info) noexcept;
nvml::Return nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvml::GpuInstance gpu_instance,
                                                                unsigned profile_id,
                                                                unsigned* count) noexcept;
nvml::Return nvmlGpuInstanceGetComputeInstancePossiblePlacements(nvml::GpuInstance gpu_instance,
                                                                 unsigned profile_id,
                                                                 nvml::Placement* placements,
                                                                 unsigned* count) noexcept;
nvml::Return nvmlGpuInstanceCreateComputeInstance(nvml::GpuInstance gpu_instance,
                                                  unsigned profile_id,
                                                  nvml::ComputeInstance* compute_instance) noexcept;
nvml::Return nvmlGpuInstanceCreateComputeInstanceWithPlacement(
    nvml::GpuInstance gpu_instance, unsigned profile_id, const nvml::Placement* placement,
    nvml::ComputeInstance* compute_instance) noexcept;
nvml::Return nvmlComputeInstanceDestroy(nvml::ComputeInstance compute_instance) noexcept;
nvml::Return nvmlGpuInstanceGetComputeInstances(nvml::GpuInstance gpu_instance, unsigned profile_id,
                                                nvml::ComputeInstance* compute_instances,
                                                unsigned* count) noexcept;
nvml::Return nvmlGpuInstanceGetComputeInstanceById(
    nvml::GpuInstance gpu_instance, unsigned id, nvml::ComputeInstance* compute_instance) noexcept;
nvml::Return nvmlComputeInstanceGetInfo_v2(nvml::ComputeInstance compute_instance,
                                           nvml::ComputeInstanceInfo* info) noexcept;

}  // extern "C"

}  // namespace divvy::device::simulator
