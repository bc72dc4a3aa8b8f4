#pragma once

#include "device/nvml_abi.h"

namespace divvy::device::nvml {

struct ReturnName {
  Return code;
  const char* name;  // NVIDIA's, without the NVML_ERROR_ prefix.
};

inline constexpr ReturnName kReturnNames[] = {
    {kSuccess, "SUCCESS"},
    {kUninitialized, "UNINITIALIZED"},
    {kInvalidArgument, "INVALID_ARGUMENT"},
    {kNotSupported, "NOT_SUPPORTED"},
    {kNoPermission, "NO_PERMISSION"},
    {kAlreadyInitialized, "ALREADY_INITIALIZED"},
    {kNotFound, "NOT_FOUND"},
    {kInsufficientSize, "INSUFFICIENT_SIZE"},
    {kInsufficientPower, "INSUFFICIENT_POWER"},
    {kDriverNotLoaded, "DRIVER_NOT_LOADED"},
    {kTimeout, "TIMEOUT"},
    {kIrqIssue, "IRQ_ISSUE"},
    {kLibraryNotFound, "LIBRARY_NOT_FOUND"},
    {kFunctionNotFound, "FUNCTION_NOT_FOUND"},
    {kCorruptedInforom, "CORRUPTED_INFOROM"},
    {kGpuIsLost, "GPU_IS_LOST"},
    {kResetRequired, "RESET_REQUIRED"},
    {kOperatingSystem, "OPERATING_SYSTEM"},
    {kLibRmVersionMismatch, "LIB_RM_VERSION_MISMATCH"},
    {kInUse, "IN_USE"},
    {kMemory, "MEMORY"},
    {kNoData, "NO_DATA"},
    {kVgpuEccNotSupported, "VGPU_ECC_NOT_SUPPORTED"},
    {kInsufficientResources, "INSUFFICIENT_RESOURCES"},
    {kFreqNotSupported, "FREQ_NOT_SUPPORTED"},
    {kArgumentVersionMismatch, "ARGUMENT_VERSION_MISMATCH"},
    {kDeprecated, "DEPRECATED"},
    {kNotReady, "NOT_READY"},
    {kGpuNotFound, "GPU_NOT_FOUND"},
    {kInvalidState, "INVALID_STATE"},
    {kUnknown, "UNKNOWN"},
};

}  // namespace divvy::device::nvml
