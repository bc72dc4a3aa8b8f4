#include "collocate_meters.h"

#include <cstdlib>
#include <utility>

#include "device/node.h"
#include "run_gpu.h"

namespace divvy::app {

bool IsWanted(const device::GpuState& gpu, const std::string& wanted) {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string word = wanted.empty() && visible != nullptr ? visible : wanted;
  if (word.empty()) return gpu.index == 0;
  return word == std::to_string(gpu.index) || gpu.uuid.starts_with(word);
}

Meters FindMeters(const std::string& wanted, const std::string& nvml) {
  Meters meters;
  auto library = device::NvmlLibrary::Open(nvml);
  if (!library) {
    meters.why_none = library.error().message;
    return meters;
  }
  meters.nvml = *std::move(library);
  const auto choice = ChooseGpu(wanted, std::getenv("CUDA_VISIBLE_DEVICES"), nvml);
  const bool whole = choice && choice->gpu && choice->gpu->has_uuid();
  if (const auto node = device::ReadNode(*meters.nvml)) {
    meters.driver = node->driver_version;
    for (const device::GpuState& gpu : node->gpus) {
      if (whole ? gpu.uuid != choice->gpu->id : !IsWanted(gpu, wanted)) continue;
      meters.gpu = gpu.model.name;
      meters.uuid = gpu.uuid;
    }
  }
  if (!whole) {
    meters.why_none = choice ? choice->why_none : choice.error().message;
    return meters;
  }
  auto watch = device::UsageWatch::Of(*meters.nvml, choice->gpu->id, "", {});
  if (watch) {
    meters.watch.emplace(*std::move(watch));
  } else {
    meters.why_none = watch.error().message;
  }
  return meters;
}

}  // namespace divvy::app
