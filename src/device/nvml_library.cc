#include "device/nvml_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <initializer_list>

#include "device/nvml_return_names.h"

namespace divvy::device {
namespace {

using nvml::Return;

template <typename Function>
bool Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

template <typename Function>
void FindNewest(void* library, std::initializer_list<const char*> names, Function& function) {
  for (const char* name : names) {
    if (Find(library, name, function)) return;
  }
}

// False when a function is missing that every NVML has.
bool FindCore(void* library, NvmlFunctions& f) {
  return Find(library, "nvmlInit_v2", f.nvmlInit_v2) &&
         Find(library, "nvmlShutdown", f.nvmlShutdown) &&
         Find(library, "nvmlSystemGetDriverVersion", f.nvmlSystemGetDriverVersion) &&
         Find(library, "nvmlSystemGetProcessName", f.nvmlSystemGetProcessName) &&
         Find(library, "nvmlDeviceGetCount_v2", f.nvmlDeviceGetCount_v2) &&
         Find(library, "nvmlDeviceGetHandleByIndex_v2", f.nvmlDeviceGetHandleByIndex_v2) &&
         Find(library, "nvmlDeviceGetHandleByUUID", f.nvmlDeviceGetHandleByUUID) &&
         Find(library, "nvmlDeviceGetUUID", f.nvmlDeviceGetUUID) &&
         Find(library, "nvmlDeviceGetName", f.nvmlDeviceGetName) &&
         Find(library, "nvmlDeviceGetIndex", f.nvmlDeviceGetIndex) &&
         Find(library, "nvmlDeviceGetPciInfo_v3", f.nvmlDeviceGetPciInfo_v3) &&
         Find(library, "nvmlDeviceGetMemoryInfo", f.nvmlDeviceGetMemoryInfo);
}

void FindOptional(void* library, NvmlFunctions& f) {
  Find(library, "nvmlDeviceGetComputeMode", f.nvmlDeviceGetComputeMode);
  Find(library, "nvmlDeviceGetMigMode", f.nvmlDeviceGetMigMode);
  Find(library, "nvmlDeviceSetMigMode", f.nvmlDeviceSetMigMode);
  Find(library, "nvmlDeviceGetGpuInstanceProfileInfo", f.nvmlDeviceGetGpuInstanceProfileInfo);
  Find(library, "nvmlDeviceGetGpuInstanceProfileInfoV", f.nvmlDeviceGetGpuInstanceProfileInfoV);
  Find(library, "nvmlDeviceGetGpuInstancePossiblePlacements_v2",
       f.nvmlDeviceGetGpuInstancePossiblePlacements_v2);
  Find(library, "nvmlDeviceCreateGpuInstanceWithPlacement",
       f.nvmlDeviceCreateGpuInstanceWithPlacement);
  Find(library, "nvmlGpuInstanceDestroy", f.nvmlGpuInstanceDestroy);
  Find(library, "nvmlDeviceGetGpuInstances", f.nvmlDeviceGetGpuInstances);
  Find(library, "nvmlDeviceGetGpuInstanceById", f.nvmlDeviceGetGpuInstanceById);
  Find(library, "nvmlGpuInstanceGetInfo", f.nvmlGpuInstanceGetInfo);
  Find(library, "nvmlGpuInstanceGetComputeInstanceProfileInfo",
       f.nvmlGpuInstanceGetComputeInstanceProfileInfo);
  Find(library, "nvmlGpuInstanceCreateComputeInstance", f.nvmlGpuInstanceCreateComputeInstance);
  Find(library, "nvmlGpuInstanceCreateComputeInstanceWithPlacement",
       f.nvmlGpuInstanceCreateComputeInstanceWithPlacement);
  Find(library, "nvmlComputeInstanceDestroy", f.nvmlComputeInstanceDestroy);
  Find(library, "nvmlGpuInstanceGetComputeInstances", f.nvmlGpuInstanceGetComputeInstances);
  Find(library, "nvmlGpuInstanceGetComputeInstanceById", f.nvmlGpuInstanceGetComputeInstanceById);
  Find(library, "nvmlComputeInstanceGetInfo_v2", f.nvmlComputeInstanceGetInfo_v2);
  Find(library, "nvmlDeviceGetUtilizationRates", f.nvmlDeviceGetUtilizationRates);
  Find(library, "nvmlDeviceGetPowerUsage", f.nvmlDeviceGetPowerUsage);
  Find(library, "nvmlDeviceGetTotalEnergyConsumption", f.nvmlDeviceGetTotalEnergyConsumption);
  Find(library, "nvmlGpmQueryDeviceSupport", f.nvmlGpmQueryDeviceSupport);
  Find(library, "nvmlGpmSampleAlloc", f.nvmlGpmSampleAlloc);
  Find(library, "nvmlGpmSampleFree", f.nvmlGpmSampleFree);
  Find(library, "nvmlGpmSampleGet", f.nvmlGpmSampleGet);
  Find(library, "nvmlGpmMigSampleGet", f.nvmlGpmMigSampleGet);
  Find(library, "nvmlGpmMetricsGet", f.nvmlGpmMetricsGet);
  FindNewest(library,
             {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"},
             f.compute_processes);
  FindNewest(
      library,
      {"nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2"},
      f.graphics_processes);
  FindNewest(
      library,
      {"nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v2"},
      f.mps_processes);
}

struct Meaning {
  ErrorCode code;
  std::string_view advice;  // Begins with ": " or is empty.
};

Meaning MeaningOf(Return code) {
  switch (code) {
    case nvml::kNoPermission:
      return {ErrorCode::kPermissionDenied, ": run as root"};
    case nvml::kNotSupported:
    case nvml::kFunctionNotFound:
    case nvml::kArgumentVersionMismatch:
      return {ErrorCode::kUnsupported, ": this GPU or driver cannot do it"};
    case nvml::kInUse:
      return {ErrorCode::kResourceExhausted, ": something is still running there"};
    case nvml::kInsufficientResources:
      return {ErrorCode::kResourceExhausted, ""};
    case nvml::kNotFound:
    case nvml::kGpuNotFound:
      return {ErrorCode::kNotFound, ""};
    case nvml::kResetRequired:
      return {ErrorCode::kFailedPrecondition, ": reset the GPU or reboot first"};
    case nvml::kLibRmVersionMismatch:
      return {ErrorCode::kUnavailable,
              ": the driver was updated while its old version is loaded; reboot"};
    case nvml::kDriverNotLoaded:
      return {ErrorCode::kUnavailable, ": the NVIDIA driver is not running"};
    default:
      return {ErrorCode::kUnavailable, ""};
  }
}

}  // namespace

Result<std::unique_ptr<NvmlLibrary>> NvmlLibrary::Open(const std::string& path) {
  // Never closed: NVML keeps threads and exit handlers of its own.
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return Fail(ErrorCode::kUnavailable,
                fmt::format("cannot load NVML, which comes with the NVIDIA driver: {}", dlerror()));
  }
  std::unique_ptr<NvmlLibrary> library(new NvmlLibrary);
  if (!FindCore(handle, library->functions_)) {
    library->functions_.nvmlShutdown = nullptr;
    return Fail(ErrorCode::kUnavailable,
                fmt::format("'{}' is not an NVML that Divvy can use: {}", path, dlerror()));
  }
  FindOptional(handle, library->functions_);
  if (const Return code = library->functions_.nvmlInit_v2(); code != nvml::kSuccess) {
    library->functions_.nvmlShutdown = nullptr;
    return Fail(NvmlError(code, "starting NVML", "nvmlInit_v2"));
  }
  return library;
}

bool NvmlLibrary::has_mig() const {
  const NvmlFunctions& f = functions_;
  return f.nvmlDeviceGetMigMode != nullptr && f.nvmlDeviceSetMigMode != nullptr &&
         f.nvmlDeviceCreateGpuInstanceWithPlacement != nullptr &&
         f.nvmlGpuInstanceDestroy != nullptr && f.nvmlDeviceGetGpuInstances != nullptr &&
         f.nvmlDeviceGetGpuInstanceById != nullptr && f.nvmlGpuInstanceGetInfo != nullptr &&
         f.nvmlGpuInstanceGetComputeInstanceProfileInfo != nullptr &&
         f.nvmlGpuInstanceCreateComputeInstance != nullptr &&
         f.nvmlComputeInstanceDestroy != nullptr &&
         f.nvmlGpuInstanceGetComputeInstances != nullptr &&
         f.nvmlGpuInstanceGetComputeInstanceById != nullptr &&
         f.nvmlComputeInstanceGetInfo_v2 != nullptr;
}

NvmlLibrary::~NvmlLibrary() {
  if (functions_.nvmlShutdown != nullptr) functions_.nvmlShutdown();
}

std::string_view NameOf(Return code) {
  for (const nvml::ReturnName& row : nvml::kReturnNames) {
    if (row.code == code) return row.name;
  }
  return "an error NVML does not document";
}

Error NvmlError(Return code, std::string_view doing, std::string_view function) {
  const Meaning meaning = MeaningOf(code);
  return {meaning.code, fmt::format("{}: {} answered {} ({}){}", doing, function, NameOf(code),
                                    static_cast<unsigned>(code), meaning.advice)};
}

}  // namespace divvy::device
