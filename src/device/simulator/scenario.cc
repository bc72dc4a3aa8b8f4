#include "device/simulator/scenario.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/spelling.h"
#include "device/simulator/operations.h"
#include "device/simulator/profiles.h"

namespace divvy::device::simulator {
namespace {

constexpr unsigned kFirstPid = 1001;

Result<Gpu*> FindGpuAt(State& state, std::size_t index) {
  if (index < state.gpus.size()) return &state.gpus[index];
  return Fail(ErrorCode::kNotFound,
              fmt::format("there is no GPU {}; the node has {}", index, state.gpus.size()));
}

// The GPU instance that `request` names, or null when it names none.
Result<const GpuInstance*> FindInstance(const Gpu& gpu, const ProcessRequest& request) {
  if (!request.gpu_instance && !request.start) return nullptr;
  for (const GpuInstance& instance : gpu.instances) {
    const bool named = request.gpu_instance ? instance.id == *request.gpu_instance
                                            : instance.place.start == *request.start;
    if (named) return &instance;
  }
  std::string known;
  for (const GpuInstance& instance : gpu.instances) {
    known += fmt::format("{}{} ({})", known.empty() ? "" : ", ", instance.id,
                         gpu::Describe(*gpu.model, instance.place));
  }
  return Fail(
      ErrorCode::kNotFound,
      fmt::format("GPU {} has no GPU instance {} {}; it has {}", request.gpu,
                  request.gpu_instance ? "with id" : "at slice",
                  request.gpu_instance ? static_cast<int>(*request.gpu_instance) : *request.start,
                  known.empty() ? "none" : known));
}

// The id of the compute instance that `request` means on `instance`, if any.
Result<std::optional<unsigned>> FindCompute(const GpuInstance& instance,
                                            const ProcessRequest& request) {
  const auto& computes = instance.compute_instances;
  if (request.compute_instance) {
    const auto found = std::ranges::find(computes, *request.compute_instance, &ComputeInstance::id);
    if (found != computes.end()) return found->id;
    return Fail(ErrorCode::kNotFound, fmt::format("GPU instance {} has no compute instance {}",
                                                  instance.id, *request.compute_instance));
  }
  if (computes.size() > 1) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("GPU instance {} has {} compute instances; say which with --ci",
                            instance.id, computes.size()));
  }
  if (computes.empty()) return std::nullopt;
  return computes.front().id;
}

bool HasPid(const State& state, unsigned pid) {
  return std::ranges::any_of(state.gpus, [&](const Gpu& gpu) {
    return std::ranges::find(gpu.processes, pid, &Process::pid) != gpu.processes.end();
  });
}

std::string MemoryProblem(const Gpu& gpu, const GpuInstance* instance, std::uint64_t wanted) {
  std::uint64_t used = 0;
  for (const Process& process : gpu.processes) {
    if (instance == nullptr || process.gpu_instance == instance->id) used += process.memory_mib;
  }
  const std::uint64_t total = instance == nullptr
                                  ? MemoryMibOf(*gpu.model)
                                  : MemoryMibOf(gpu.model->profile(instance->place.profile));
  if (used + wanted <= total) return {};
  return fmt::format("{} MiB do not fit: {} of {} MiB are used", wanted, used, total);
}

std::string DrawProcess(const Process& process, std::string_view indent) {
  return fmt::format("{}pid {}  {}  {} MiB\n", indent, process.pid, process.name,
                     process.memory_mib);
}

std::string DrawInstance(const Gpu& gpu, const GpuInstance& instance) {
  const gpu::MigProfile& profile = gpu.model->profile(instance.place.profile);
  std::string text =
      fmt::format("  GI {:<3} {:<14} slices {}-{}\n", instance.id, profile.name,
                  instance.place.start, instance.place.start + profile.memory_slices - 1);
  for (const ComputeInstance& compute : instance.compute_instances) {
    text += fmt::format("    CI {:<2} {:<14} {}\n", compute.id,
                        ComputeProfileName(profile, compute.slices), compute.uuid);
    for (const Process& process : gpu.processes) {
      const bool here =
          process.gpu_instance == instance.id && process.compute_instance == compute.id;
      if (here) text += DrawProcess(process, "      ");
    }
  }
  for (const Process& process : gpu.processes) {
    const bool here = process.gpu_instance == instance.id && !process.compute_instance;
    if (here) text += DrawProcess(process, "    ");
  }
  return text;
}

std::string DescribeMode(const Gpu& gpu) {
  const char* now = gpu.mig ? "MIG on" : "MIG off";
  if (gpu.mig == gpu.mig_pending) return now;
  return fmt::format("{} ({} pending)", now, gpu.mig_pending ? "on" : "off");
}

}  // namespace

Result<Process> StartProcess(State& state, const ProcessRequest& request) {
  const auto gpu = FindGpuAt(state, request.gpu);
  if (!gpu) return Fail(gpu.error());
  const auto instance = FindInstance(**gpu, request);
  if (!instance) return Fail(instance.error());
  Process process{0, request.name, request.memory_mib, request.kind, {}, {}};
  if (*instance == nullptr && request.compute_instance) {
    return Fail(ErrorCode::kInvalidArgument, "--ci needs --gi or --start");
  }
  if (*instance != nullptr) {
    const auto compute = FindCompute(**instance, request);
    if (!compute) return Fail(compute.error());
    process.gpu_instance = (*instance)->id;
    process.compute_instance = *compute;
  }
  process.pid = request.pid.value_or(kFirstPid);
  while (!request.pid && HasPid(state, process.pid)) ++process.pid;
  const auto& others = (*gpu)->processes;
  if (std::ranges::find(others, process.pid, &Process::pid) != others.end()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("GPU {} already has a process {}", request.gpu, process.pid));
  }
  std::string problem = MemoryProblem(**gpu, *instance, request.memory_mib);
  if (!problem.empty()) return Fail(ErrorCode::kResourceExhausted, std::move(problem));
  (*gpu)->processes.push_back(process);
  return process;
}

Result<Process> StopProcess(State& state, unsigned pid) {
  std::optional<Process> stopped;
  for (Gpu& gpu : state.gpus) {
    const auto found = std::ranges::find(gpu.processes, pid, &Process::pid);
    if (found == gpu.processes.end()) continue;
    stopped = *found;
    gpu.processes.erase(found);
  }
  if (stopped) return *stopped;
  return Fail(ErrorCode::kNotFound, fmt::format("no process {} is on these GPUs", pid));
}

Result<GpuInstance> CreateWhole(State& state, std::size_t gpu_index, std::string_view profile,
                                std::optional<int> start) {
  const auto found = FindGpuAt(state, gpu_index);
  if (!found) return Fail(found.error());
  Gpu& gpu = **found;
  const auto index = gpu.model->FindProfile(profile);
  if (!index) {
    std::vector<std::string_view> names;
    names.reserve(gpu.model->profiles.size());
    for (const gpu::MigProfile& known : gpu.model->profiles) names.push_back(known.name);
    return Fail(ErrorCode::kNotFound, fmt::format("{} has no profile '{}', only {}",
                                                  gpu.model->name, profile, OneOf(names)));
  }
  if (!gpu.mig) {
    return Fail(ErrorCode::kFailedPrecondition,
                fmt::format("GPU {} is not in MIG mode", gpu_index));
  }
  // The layout's own errors say more than NVML's codes.
  gpu::MigLayout layout = LayoutOf(gpu);
  const std::vector<int> free = layout.FreeStarts(*index);
  if (!start && !free.empty()) start = free.front();
  if (!start) {
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("GPU {} has no room for {}", gpu_index, profile));
  }
  if (const auto placed = layout.Place({*start, *index}); !placed) return Fail(placed.error());

  const Serial serial = state.next_serial;
  Check(CreateGpuInstance(state, gpu, *index, start).code == nvml::kSuccess, "a free place fits");
  const auto created = std::ranges::find(gpu.instances, serial, &GpuInstance::serial);
  const ComputeProfile whole = ComputeProfilesOf(gpu.model->profile(*index)).back();
  const auto compute = CreateComputeInstance(state, gpu, *created, whole, std::nullopt);
  Check(compute.code == nvml::kSuccess, "a new GPU instance has its slices free");
  return *created;
}

std::string Draw(const State& state) {
  std::string text = fmt::format("driver {}, faults: {}\n", state.driver_version,
                                 state.faults.empty() ? "none" : state.faults);
  for (std::size_t i = 0; i < state.gpus.size(); ++i) {
    const Gpu& gpu = state.gpus[i];
    text += fmt::format("GPU {}  {}  {}{}  {}\n", i, gpu.model->name, DescribeMode(gpu),
                        gpu.needs_reset ? ", mode changes need a reboot" : "", gpu.uuid);
    for (const GpuInstance& instance : gpu.instances) text += DrawInstance(gpu, instance);
    for (const Process& process : gpu.processes) {
      if (!process.gpu_instance) text += DrawProcess(process, "  ");
    }
  }
  return text;
}

}  // namespace divvy::device::simulator
