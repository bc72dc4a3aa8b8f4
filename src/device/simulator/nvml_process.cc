// NVML: processes on GPUs and MIG devices.

#include <vector>

#include "device/simulator/cuda_machine.h"
#include "device/simulator/handles.h"
#include "device/simulator/nvml_entry_points.h"
#include "device/simulator/nvml_structs.h"
#include "device/simulator/session.h"

namespace divvy::device::simulator {
namespace {

constexpr unsigned long long kMib = 1ULL << 20U;

bool IsOn(const Process& process, const Target& target) {
  if (target.compute_instance == nullptr) return true;
  return process.gpu_instance == target.gpu_instance->id &&
         process.compute_instance == target.compute_instance->id;
}

void Fill(nvml::ProcessInfo& info, const Process& process) {
  info = {process.pid, process.memory_mib * kMib, process.gpu_instance.value_or(nvml::kNoInstance),
          process.compute_instance.value_or(nvml::kNoInstance)};
}

void Fill(ProcessInfoV1& info, const Process& process) {
  info = {process.pid, process.memory_mib * kMib};
}

// `count` is the room in `infos` on entry and the number of processes on return.
template <typename Info>
nvml::Return RunningProcesses(const char* function, ProcessKind kind, nvml::Device device,
                              unsigned* count, Info* infos) {
  return Query(function, [&](Call& call) {
    const auto target = FindDevice(call.state(), device);
    if (!target || count == nullptr || (*count > 0 && infos == nullptr)) {
      return nvml::kInvalidArgument;
    }
    // All instances at once are an administrator's business.
    if (target->compute_instance == nullptr && target->gpu->mig && !call.privileged()) {
      return nvml::kNoPermission;
    }
    std::vector<Process> found = ProcessesOn(*target->gpu, call.cuda_machine());
    std::erase_if(found, [&](const Process& process) {
      return process.kind != kind || !IsOn(process, *target);
    });
    const unsigned room = *count;
    *count = static_cast<unsigned>(found.size());
    if (found.size() > room) return nvml::kInsufficientSize;
    for (std::size_t i = 0; i < found.size(); ++i) Fill(infos[i], found[i]);
    return nvml::kSuccess;
  });
}

}  // namespace

extern "C" {

nvml::Return nvmlDeviceGetComputeRunningProcesses(nvml::Device device, unsigned* count,
                                                  ProcessInfoV1* infos) noexcept {
  return RunningProcesses(__func__, ProcessKind::kCompute, device, count, infos);
}

nvml::Return nvmlDeviceGetComputeRunningProcesses_v2(nvml::Device device, unsigned* count,
                                                     nvml::ProcessInfo* infos) noexcept {
  return RunningProcesses(__func__, ProcessKind::kCompute, device, count, infos);
}

nvml::Return nvmlDeviceGetComputeRunningProcesses_v3(nvml::Device device, unsigned* count,
                                                     nvml::ProcessInfo* infos) noexcept {
  return RunningProcesses(__func__, ProcessKind::kCompute, device, count, infos);
}

nvml::Return nvmlDeviceGetGraphicsRunningProcesses_v3(nvml::Device device, unsigned* count,
                                                      nvml::ProcessInfo* infos) noexcept {
  return RunningProcesses(__func__, ProcessKind::kGraphics, device, count, infos);
}

nvml::Return nvmlDeviceGetMPSComputeRunningProcesses_v3(nvml::Device device, unsigned* count,
                                                        nvml::ProcessInfo* infos) noexcept {
  return RunningProcesses(__func__, ProcessKind::kMps, device, count, infos);
}

}  // extern "C"

}  // namespace divvy::device::simulator
