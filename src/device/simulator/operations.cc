#include "device/simulator/operations.h"

#include <algorithm>

#include "base/check.h"

namespace divvy::device::simulator {
namespace {

bool HasProcess(const Gpu& gpu, const GpuInstance& instance) {
  return std::ranges::any_of(
      gpu.processes, [&](const Process& process) { return process.gpu_instance == instance.id; });
}

bool HasProcess(const Gpu& gpu, const GpuInstance& parent, const ComputeInstance& instance) {
  return std::ranges::any_of(gpu.processes, [&](const Process& process) {
    return process.gpu_instance == parent.id && process.compute_instance == instance.id;
  });
}

bool Overlaps(int start, int size, const ComputeInstance& other) {
  return start < other.start + other.slices && other.start < start + size;
}

// The lowest number that no instance of the list bears.
unsigned FreeId(const std::vector<ComputeInstance>& instances) {
  unsigned id = 0;
  while (std::ranges::find(instances, id, &ComputeInstance::id) != instances.end()) ++id;
  return id;
}

}  // namespace

GpuInstanceCreation CreateGpuInstance(State& state, Gpu& gpu, gpu::ProfileIndex profile,
                                      std::optional<int> start) {
  Check(gpu.mig, "instances are made in MIG mode only");
  gpu::MigLayout layout = LayoutOf(gpu);
  if (!start) {
    const std::vector<int> free = layout.FreeStarts(profile);
    if (free.empty()) return {nvml::kInsufficientResources, nullptr};
    start = free.front();
  }
  const gpu::MigInstance place{*start, profile};
  if (const auto placed = layout.Place(place); !placed) {
    const bool illegal = placed.error().code == ErrorCode::kInvalidArgument;
    return {illegal ? nvml::kInvalidArgument : nvml::kInsufficientResources, nullptr};
  }
  const GpuInstance created{GpuInstanceIdAt(*gpu.model, place), state.next_serial++, place, {}};
  const auto at = std::ranges::upper_bound(gpu.instances, created.id, {}, &GpuInstance::id);
  return {nvml::kSuccess, &*gpu.instances.insert(at, created)};
}

nvml::Return DestroyGpuInstance(Gpu& gpu, Serial instance) {
  const auto found = std::ranges::find(gpu.instances, instance, &GpuInstance::serial);
  if (found == gpu.instances.end()) return nvml::kInvalidArgument;
  if (!found->compute_instances.empty() || HasProcess(gpu, *found)) return nvml::kInUse;
  gpu.instances.erase(found);
  return nvml::kSuccess;
}

std::vector<int> FreeStarts(const GpuInstance& parent, const ComputeProfile& profile) {
  std::vector<int> free;
  for (const int start : profile.starts) {
    const bool taken = std::ranges::any_of(
        parent.compute_instances,
        [&](const ComputeInstance& other) { return Overlaps(start, profile.slices, other); });
    if (!taken) free.push_back(start);
  }
  return free;
}

ComputeInstanceCreation CreateComputeInstance(State& state, Gpu& gpu, GpuInstance& parent,
                                              const ComputeProfile& profile,
                                              std::optional<int> start) {
  if (start && std::ranges::find(profile.starts, *start) == profile.starts.end()) {
    return {nvml::kInvalidArgument, nullptr};
  }
  const std::vector<int> free = FreeStarts(parent, profile);
  if (!start && !free.empty()) start = free.front();
  if (!start || std::ranges::find(free, *start) == free.end()) {
    return {nvml::kInsufficientResources, nullptr};
  }
  const Serial serial = state.next_serial++;
  auto& siblings = parent.compute_instances;
  const ComputeInstance created{FreeId(siblings), serial, profile.slices, *start,
                                MigUuid(gpu, serial)};
  const auto at = std::ranges::upper_bound(siblings, created.id, {}, &ComputeInstance::id);
  return {nvml::kSuccess, &*siblings.insert(at, created)};
}

nvml::Return DestroyComputeInstance(Gpu& gpu, GpuInstance& parent, Serial instance) {
  auto& siblings = parent.compute_instances;
  const auto found = std::ranges::find(siblings, instance, &ComputeInstance::serial);
  if (found == siblings.end()) return nvml::kInvalidArgument;
  if (HasProcess(gpu, parent, *found)) return nvml::kInUse;
  siblings.erase(found);
  return nvml::kSuccess;
}

nvml::Return SetMigMode(Gpu& gpu, bool enable, std::optional<nvml::Return> forced) {
  gpu.mig_pending = enable;
  if (forced && *forced != nvml::kSuccess) return *forced;
  if (gpu.mig == enable) return nvml::kSuccess;
  if (gpu.needs_reset) return nvml::kResetRequired;
  if (!gpu.processes.empty() || !gpu.instances.empty()) return nvml::kInUse;
  gpu.mig = enable;
  return nvml::kSuccess;
}

void Reboot(State& state) {
  for (Gpu& gpu : state.gpus) {
    gpu.mig = gpu.mig_pending;
    gpu.instances.clear();
    gpu.processes.clear();
  }
}

}  // namespace divvy::device::simulator
