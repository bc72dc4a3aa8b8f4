#include "device/simulator/cuda_machine.h"

#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <utility>

#include "device/cuda_simulator/identity.h"

namespace divvy::device::simulator {
namespace {

constexpr double kIdleW = 75;
constexpr double kFullW = 600;

std::string NameOf(pid_t pid) {
  std::string name;
  std::getline(std::ifstream(fmt::format("/proc/{}/comm", pid)), name);
  return name;
}

}  // namespace

double Counters::energy_j() const {
  const auto seconds = [](cuda_simulator::Nanos span) { return static_cast<double>(span) / 1e9; };
  return kIdleW * seconds(at - activity.made) + (kFullW - kIdleW) * seconds(activity.sm_busy) / sms;
}

double Counters::power_w() const { return kIdleW + (kFullW - kIdleW) * activity.sm_share; }

std::optional<CudaGpu> CudaGpu::Find(const CudaMachine& where, const Gpu& gpu) {
  int index = 0;
  while (index < cuda_simulator::kMaxGpus && gpu.uuid != cuda_simulator::UuidText(index)) ++index;
  if (where.path.empty() || index == cuda_simulator::kMaxGpus) return std::nullopt;
  const auto spec = cuda_simulator::ParseSpec(where.spec);
  if (!spec) return std::nullopt;  // Which was said at the start.
  // A GPU is there before the first program that uses it.
  auto machine = cuda_simulator::Machine::Open(where.path, *spec);
  if (!machine) {
    static const bool said = [&] {
      std::fprintf(stderr, "divvy-nvml-sim: DIVVY_CUDA_SIM: %s\n", machine.error().message.c_str());
      return true;
    }();
    static_cast<void>(said);
    return std::nullopt;
  }
  if (index >= (*machine)->spec().gpus) return std::nullopt;
  return CudaGpu(*std::move(machine), index);
}

Counters CudaGpu::Read() const {
  const cuda_simulator::Nanos now = cuda_simulator::Now();
  return {.at = now,
          .activity = machine_->Observe(index_, now),
          .sms = static_cast<int>(machine_->spec().sms)};
}

std::vector<Process> CudaGpu::Processes() const {
  std::vector<Process> processes;
  for (const cuda_simulator::Holder& holder : machine_->Holders(index_)) {
    processes.push_back({.pid = static_cast<unsigned>(holder.pid),
                         .name = NameOf(holder.pid),
                         .memory_mib = (holder.bytes + (1U << 20U) - 1) >> 20U,
                         .kind = ProcessKind::kCompute,
                         .gpu_instance = {},
                         .compute_instance = {}});
  }
  return processes;
}

Result<void> NameAfterCuda(State& state) {
  if (state.gpus.size() > cuda_simulator::kMaxGpus) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("a machine of the simulated CUDA driver has at most {} GPUs, not {}",
                            cuda_simulator::kMaxGpus, state.gpus.size()));
  }
  for (std::size_t i = 0; i < state.gpus.size(); ++i) {
    state.gpus[i].uuid = cuda_simulator::UuidText(static_cast<int>(i));
  }
  return {};
}

std::vector<Process> ProcessesOn(const Gpu& gpu, const CudaMachine& cuda_machine) {
  std::vector<Process> processes = gpu.processes;
  if (const auto real = CudaGpu::Find(cuda_machine, gpu)) {
    for (Process& process : real->Processes()) processes.push_back(std::move(process));
  }
  return processes;
}

}  // namespace divvy::device::simulator
