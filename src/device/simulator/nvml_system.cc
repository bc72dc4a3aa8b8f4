// NVML: initialisation, errors and facts about the system.

#include <algorithm>
#include <vector>

#include "device/simulator/c_string.h"
#include "device/simulator/cuda_machine.h"
#include "device/simulator/nvml_entry_points.h"
#include "device/simulator/return_names.h"
#include "device/simulator/session.h"

namespace divvy::device::simulator {
namespace {

constexpr const char* kNvmlVersion = "13.580.00-divvy-sim";
constexpr int kCudaDriverVersion = 13000;

nvml::Return CudaDriverVersion(const char* function, int* version) {
  return Query(function, [&](Call&) {
    if (version == nullptr) return nvml::kInvalidArgument;
    *version = kCudaDriverVersion;
    return nvml::kSuccess;
  });
}

}  // namespace

extern "C" {

nvml::Return nvmlInit() noexcept { return Initialise(__func__); }
nvml::Return nvmlInit_v2() noexcept { return Initialise(__func__); }
nvml::Return nvmlInitWithFlags(unsigned /*flags*/) noexcept { return Initialise(__func__); }
nvml::Return nvmlShutdown() noexcept { return Shutdown(__func__); }

const char* nvmlErrorString(nvml::Return result) noexcept { return DescribeReturn(result); }

nvml::Return nvmlSystemGetDriverVersion(char* version, unsigned length) noexcept {
  return Query(__func__,
               [&](Call& call) { return CopyOut(call.state().driver_version, version, length); });
}

nvml::Return nvmlSystemGetNVMLVersion(char* version, unsigned length) noexcept {
  return Query(__func__, [&](Call&) { return CopyOut(kNvmlVersion, version, length); });
}

nvml::Return nvmlSystemGetCudaDriverVersion(int* version) noexcept {
  return CudaDriverVersion(__func__, version);
}

nvml::Return nvmlSystemGetCudaDriverVersion_v2(int* version) noexcept {
  return CudaDriverVersion(__func__, version);
}

nvml::Return nvmlSystemGetProcessName(unsigned pid, char* name, unsigned length) noexcept {
  return Query(__func__, [&](Call& call) {
    if (name == nullptr || length == 0) return nvml::kInvalidArgument;
    for (const Gpu& gpu : call.state().gpus) {
      const std::vector<Process> processes = ProcessesOn(gpu, call.cuda_machine());
      const auto found = std::ranges::find(processes, pid, &Process::pid);
      if (found == processes.end()) continue;
      // Unlike other strings, NVML crops names to the buffer.
      return CopyOut(std::string_view(found->name).substr(0, length - 1), name, length);
    }
    return nvml::kNotFound;
  });
}

}  // extern "C"

}  // namespace divvy::device::simulator
