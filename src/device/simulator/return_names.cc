#include "device/simulator/return_names.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>

namespace divvy::device::simulator {
namespace {

struct Row {
  nvml::Return code;
  std::string_view name;
  const char* text;
};

constexpr Row kRows[] = {
    {nvml::kSuccess, "SUCCESS", "Success"},
    {nvml::kUninitialized, "UNINITIALIZED", "Not initialised"},
    {nvml::kInvalidArgument, "INVALID_ARGUMENT", "Invalid argument"},
    {nvml::kNotSupported, "NOT_SUPPORTED", "Not supported"},
    {nvml::kNoPermission, "NO_PERMISSION", "Insufficient permissions"},
    {nvml::kAlreadyInitialized, "ALREADY_INITIALIZED", "Already initialised"},
    {nvml::kNotFound, "NOT_FOUND", "Not found"},
    {nvml::kInsufficientSize, "INSUFFICIENT_SIZE", "Buffer too small"},
    {nvml::kInsufficientPower, "INSUFFICIENT_POWER", "Insufficient external power"},
    {nvml::kDriverNotLoaded, "DRIVER_NOT_LOADED", "Driver not loaded"},
    {nvml::kTimeout, "TIMEOUT", "Timed out"},
    {nvml::kIrqIssue, "IRQ_ISSUE", "Interrupt problem"},
    {nvml::kLibraryNotFound, "LIBRARY_NOT_FOUND", "Library not found"},
    {nvml::kFunctionNotFound, "FUNCTION_NOT_FOUND", "Function not found"},
    {nvml::kCorruptedInforom, "CORRUPTED_INFOROM", "Corrupted infoROM"},
    {nvml::kGpuIsLost, "GPU_IS_LOST", "GPU is lost"},
    {nvml::kResetRequired, "RESET_REQUIRED", "GPU needs a reset"},
    {nvml::kOperatingSystem, "OPERATING_SYSTEM", "Blocked by the operating system"},
    {nvml::kLibRmVersionMismatch, "LIB_RM_VERSION_MISMATCH", "Driver and library differ"},
    {nvml::kInUse, "IN_USE", "In use by another client"},
    {nvml::kMemory, "MEMORY", "Out of memory"},
    {nvml::kNoData, "NO_DATA", "No data"},
    {nvml::kVgpuEccNotSupported, "VGPU_ECC_NOT_SUPPORTED", "vGPU does not support ECC"},
    {nvml::kInsufficientResources, "INSUFFICIENT_RESOURCES", "Insufficient resources"},
    {nvml::kFreqNotSupported, "FREQ_NOT_SUPPORTED", "Frequency not supported"},
    {nvml::kArgumentVersionMismatch, "ARGUMENT_VERSION_MISMATCH", "Struct version not supported"},
    {nvml::kDeprecated, "DEPRECATED", "Deprecated"},
    {nvml::kNotReady, "NOT_READY", "Not ready"},
    {nvml::kGpuNotFound, "GPU_NOT_FOUND", "No GPU found"},
    {nvml::kInvalidState, "INVALID_STATE", "Invalid state"},
    {nvml::kUnknown, "UNKNOWN", "Unknown error"},
};

const Row* FindRow(nvml::Return code) {
  for (const Row& row : kRows) {
    if (row.code == code) return &row;
  }
  return nullptr;
}

}  // namespace

std::string ReturnName(nvml::Return code) {
  const Row* row = FindRow(code);
  return row != nullptr ? std::string(row->name) : fmt::format("{}", static_cast<unsigned>(code));
}

std::optional<nvml::Return> ParseReturn(std::string_view text) {
  std::string name(text);
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  constexpr std::string_view kPrefix = "NVML_ERROR_";
  if (name.starts_with(kPrefix)) name.erase(0, kPrefix.size());
  for (const Row& row : kRows) {
    if (row.name == name) return row.code;
  }
  unsigned number = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  const Row* row = FindRow(static_cast<nvml::Return>(number));
  if (row == nullptr) return std::nullopt;
  return row->code;
}

const char* DescribeReturn(nvml::Return code) {
  const Row* row = FindRow(code);
  return row != nullptr ? row->text : "Unknown error";
}

}  // namespace divvy::device::simulator
