#include "device/simulator/function_names.h"

namespace divvy::device::simulator {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kFunctions[] = {
    "nvmlComputeInstanceDestroy"sv,
    "nvmlComputeInstanceGetInfo_v2"sv,
    "nvmlDeviceCreateGpuInstance"sv,
    "nvmlDeviceCreateGpuInstanceWithPlacement"sv,
    "nvmlDeviceGetAttributes_v2"sv,
    "nvmlDeviceGetComputeInstanceId"sv,
    "nvmlDeviceGetComputeMode"sv,
    "nvmlDeviceGetComputeRunningProcesses"sv,
    "nvmlDeviceGetComputeRunningProcesses_v2"sv,
    "nvmlDeviceGetComputeRunningProcesses_v3"sv,
    "nvmlDeviceGetCount"sv,
    "nvmlDeviceGetCount_v2"sv,
    "nvmlDeviceGetDeviceHandleFromMigDeviceHandle"sv,
    "nvmlDeviceGetGpuInstanceById"sv,
    "nvmlDeviceGetGpuInstanceId"sv,
    "nvmlDeviceGetGpuInstancePossiblePlacements_v2"sv,
    "nvmlDeviceGetGpuInstanceProfileInfo"sv,
    "nvmlDeviceGetGpuInstanceProfileInfoV"sv,
    "nvmlDeviceGetGpuInstanceRemainingCapacity"sv,
    "nvmlDeviceGetGpuInstances"sv,
    "nvmlDeviceGetGraphicsRunningProcesses_v3"sv,
    "nvmlDeviceGetHandleByIndex"sv,
    "nvmlDeviceGetHandleByIndex_v2"sv,
    "nvmlDeviceGetHandleByPciBusId"sv,
    "nvmlDeviceGetHandleByPciBusId_v2"sv,
    "nvmlDeviceGetHandleByUUID"sv,
    "nvmlDeviceGetIndex"sv,
    "nvmlDeviceGetMPSComputeRunningProcesses_v3"sv,
    "nvmlDeviceGetMaxMigDeviceCount"sv,
    "nvmlDeviceGetMemoryInfo"sv,
    "nvmlDeviceGetMemoryInfo_v2"sv,
    "nvmlDeviceGetMigDeviceHandleByIndex"sv,
    "nvmlDeviceGetMigMode"sv,
    "nvmlDeviceGetMinorNumber"sv,
    "nvmlDeviceGetName"sv,
    "nvmlDeviceGetPciInfo_v3"sv,
    "nvmlDeviceGetPowerUsage"sv,
    "nvmlDeviceGetTotalEnergyConsumption"sv,
    "nvmlDeviceGetUUID"sv,
    "nvmlDeviceGetUtilizationRates"sv,
    "nvmlDeviceIsMigDeviceHandle"sv,
    "nvmlDeviceSetMigMode"sv,
    "nvmlErrorString"sv,
    "nvmlGpmMetricsGet"sv,
    "nvmlGpmMigSampleGet"sv,
    "nvmlGpmQueryDeviceSupport"sv,
    "nvmlGpmSampleAlloc"sv,
    "nvmlGpmSampleFree"sv,
    "nvmlGpmSampleGet"sv,
    "nvmlGpuInstanceCreateComputeInstance"sv,
    "nvmlGpuInstanceCreateComputeInstanceWithPlacement"sv,
    "nvmlGpuInstanceDestroy"sv,
    "nvmlGpuInstanceGetComputeInstanceById"sv,
    "nvmlGpuInstanceGetComputeInstancePossiblePlacements"sv,
    "nvmlGpuInstanceGetComputeInstanceProfileInfo"sv,
    "nvmlGpuInstanceGetComputeInstanceProfileInfoV"sv,
    "nvmlGpuInstanceGetComputeInstanceRemainingCapacity"sv,
    "nvmlGpuInstanceGetComputeInstances"sv,
    "nvmlGpuInstanceGetInfo"sv,
    "nvmlInit"sv,
    "nvmlInitWithFlags"sv,
    "nvmlInit_v2"sv,
    "nvmlShutdown"sv,
    "nvmlSystemGetCudaDriverVersion"sv,
    "nvmlSystemGetCudaDriverVersion_v2"sv,
    "nvmlSystemGetDriverVersion"sv,
    "nvmlSystemGetNVMLVersion"sv,
    "nvmlSystemGetProcessName"sv,
};

constexpr std::string_view kNewerFunctions[] = {
    "nvmlDeviceGetComputeRunningProcesses_v3"sv,
    "nvmlDeviceGetGpuInstanceProfileInfoV"sv,
    "nvmlDeviceGetGraphicsRunningProcesses_v3"sv,
    "nvmlDeviceGetMPSComputeRunningProcesses_v3"sv,
    "nvmlGpmMetricsGet"sv,
    "nvmlGpmMigSampleGet"sv,
    "nvmlGpmQueryDeviceSupport"sv,
    "nvmlGpmSampleAlloc"sv,
    "nvmlGpmSampleFree"sv,
    "nvmlGpmSampleGet"sv,
    "nvmlGpuInstanceGetComputeInstanceProfileInfoV"sv,
};

}  // namespace

std::span<const std::string_view> FunctionNames() { return kFunctions; }

std::span<const std::string_view> NewerFunctionNames() { return kNewerFunctions; }

}  // namespace divvy::device::simulator
