#pragma once

#include <memory>
#include <optional>
#include <string>

#include "device/node.h"
#include "device/nvml_library.h"
#include "device/usage.h"

namespace divvy::app {

// The GPU's meters, where NVML is.
struct Meters {
  std::unique_ptr<device::NvmlLibrary> nvml;
  std::optional<device::UsageWatch> watch;
  std::string gpu;     // Its kind,
  std::string uuid;    // and which one.
  std::string driver;  // Empty: nobody told.
  std::string why_none;
};

// Whether `wanted`, the word of --gpu, or else CUDA_VISIBLE_DEVICES means this one, cut or not.
[[nodiscard]] bool IsWanted(const device::GpuState& gpu, const std::string& wanted);

// Of the GPU that `wanted`, the word of --gpu, means; `nvml` is the library to ask.
[[nodiscard]] Meters FindMeters(const std::string& wanted, const std::string& nvml);

}  // namespace divvy::app
