// NVML: MIG mode, GPU instance profiles and GPU instances.

#include <fmt/format.h>

#include <algorithm>

#include "device/simulator/c_string.h"
#include "device/simulator/handles.h"
#include "device/simulator/latency.h"
#include "device/simulator/nvml_entry_points.h"
#include "device/simulator/operations.h"
#include "device/simulator/profiles.h"
#include "device/simulator/return_names.h"
#include "device/simulator/session.h"

namespace divvy::device::simulator {
namespace {

// A GPU and one of its profiles, or the code that says why there is none.
struct ProfileTarget {
  nvml::Return code;
  Target target{};
  gpu::ProfileIndex profile{};
};

ProfileTarget FindProfile(State& state, nvml::Device device, unsigned profile_id) {
  const auto target = FindGpu(state, device);
  if (!target) return {nvml::kInvalidArgument};
  const auto profile = target->gpu->model->FindProfileById(static_cast<int>(profile_id));
  if (!profile) return {nvml::kInvalidArgument};
  return {nvml::kSuccess, *target, *profile};
}

// The like for calls that need MIG mode and its administrator.
ProfileTarget FindMigProfile(Call& call, nvml::Device device, unsigned profile_id) {
  const auto target = FindGpu(call.state(), device);
  if (!target) return {nvml::kInvalidArgument};
  if (!call.privileged()) return {nvml::kNoPermission};
  if (!target->gpu->mig) return {nvml::kNotSupported};
  return FindProfile(call.state(), device, profile_id);
}

// The profile that one of NVML_GPU_INSTANCE_PROFILE_* means on a GPU.
ProfileTarget FindProfileByEnum(State& state, nvml::Device device, unsigned profile) {
  const auto target = FindGpu(state, device);
  if (!target || profile >= nvml::kGpuInstanceProfileCount) return {nvml::kInvalidArgument};
  const auto& profiles = target->gpu->model->profiles;
  const auto found =
      std::ranges::find(profiles, static_cast<int>(profile), &gpu::MigProfile::nvml_enum);
  if (found == profiles.end()) return {nvml::kNotSupported};
  return {nvml::kSuccess, *target, static_cast<gpu::ProfileIndex>(found - profiles.begin())};
}

// What both forms of the profile info have in common.
template <typename Info>
void FillProfile(Info& info, const gpu::GpuModel& model, const gpu::MigProfile& profile) {
  const gpu::Engines engines = EnginesOf(profile);
  info.id = static_cast<unsigned>(profile.nvml_id);
  info.isP2pSupported = 0;
  info.sliceCount = static_cast<unsigned>(profile.compute_slices);
  info.instanceCount = static_cast<unsigned>(profile.max_instances);
  info.multiprocessorCount = static_cast<unsigned>(SmsOf(model, profile));
  info.copyEngineCount = static_cast<unsigned>(engines.copy);
  info.decoderCount = static_cast<unsigned>(engines.decoders);
  info.encoderCount = static_cast<unsigned>(engines.encoders);
  info.jpegCount = static_cast<unsigned>(engines.jpeg);
  info.ofaCount = static_cast<unsigned>(engines.ofa);
  info.memorySizeMB = MemoryMibOf(profile);
}

void Describe(Call& call, ChangeRecord& record, nvml::Device device) {
  if (const auto target = FindGpu(call.state(), device)) record.gpu = target->index;
}

nvml::Return Create(Call& call, ChangeRecord& record, nvml::Device device, unsigned profile_id,
                    std::optional<int> start, nvml::GpuInstance* gpu_instance) {
  const ProfileTarget found = FindMigProfile(call, device, profile_id);
  if (found.code != nvml::kSuccess) return found.code;
  const auto created = CreateGpuInstance(call.state(), *found.target.gpu, found.profile, start);
  if (created.code != nvml::kSuccess) return created.code;
  record.gpu_instance = created.instance->id;
  record.start = static_cast<unsigned>(created.instance->place.start);
  record.latency =
      GpuInstanceCreationTime(found.target.gpu->model->profile(found.profile).compute_slices);
  *gpu_instance = GpuInstanceHandle(found.target.index, *created.instance);
  return nvml::kSuccess;
}

}  // namespace

extern "C" {

nvml::Return nvmlDeviceGetMigMode(nvml::Device device, unsigned* current,
                                  unsigned* pending) noexcept {
  return Query(__func__, [&](Call& call) {
    const auto target = FindGpu(call.state(), device);
    if (!target || current == nullptr || pending == nullptr) return nvml::kInvalidArgument;
    *current = target->gpu->mig ? nvml::kMigEnable : nvml::kMigDisable;
    *pending = target->gpu->mig_pending ? nvml::kMigEnable : nvml::kMigDisable;
    return nvml::kSuccess;
  });
}

nvml::Return nvmlDeviceSetMigMode(nvml::Device device, unsigned mode,
                                  nvml::Return* activation_status) noexcept {
  const auto describe = [&](Call& call, ChangeRecord& record) {
    Describe(call, record, device);
    record.detail = fmt::format("mode={}", mode);
  };
  return Change(__func__, describe, [&](Call& call, ChangeRecord& record) {
    const auto target = FindGpu(call.state(), device);
    if (!target || activation_status == nullptr || mode > nvml::kMigEnable) {
      return nvml::kInvalidArgument;
    }
    if (!call.privileged()) return nvml::kNoPermission;
    const bool was = target->gpu->mig;
    *activation_status =
        SetMigMode(*target->gpu, mode == nvml::kMigEnable, call.forced_activation());
    record.detail += fmt::format(" activation={}", ReturnName(*activation_status));
    if (target->gpu->mig != was) record.latency = kMigModeChangeTime;
    return nvml::kSuccess;
  });
}

nvml::Return nvmlDeviceGetGpuInstanceProfileInfo(nvml::Device device, unsigned profile,
                                                 nvml::GpuInstanceProfileInfo* info) noexcept {
  return Query(__func__, [&](Call& call) {
    if (info == nullptr) return nvml::kInvalidArgument;
    const ProfileTarget found = FindProfileByEnum(call.state(), device, profile);
    if (found.code != nvml::kSuccess) return found.code;
    const gpu::GpuModel& model = *found.target.gpu->model;
    FillProfile(*info, model, model.profile(found.profile));
    return nvml::kSuccess;
  });
}

nvml::Return nvmlDeviceGetGpuInstanceProfileInfoV(nvml::Device device, unsigned profile,
                                                  nvml::GpuInstanceProfileInfoV2* info) noexcept {
  return Query(__func__, [&](Call& call) {
    if (info == nullptr) return nvml::kInvalidArgument;
    if (info->version != nvml::StructVersion<nvml::GpuInstanceProfileInfoV2>(2)) {
      return nvml::kArgumentVersionMismatch;
    }
    const ProfileTarget found = FindProfileByEnum(call.state(), device, profile);
    if (found.code != nvml::kSuccess) return found.code;
    const gpu::GpuModel& model = *found.target.gpu->model;
    FillProfile(*info, model, model.profile(found.profile));
    CopyInto(fmt::format("MIG {}", model.profile(found.profile).name), info->name);
    return nvml::kSuccess;
  });
}

nvml::Return nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvml::Device device, unsigned profile_id,
                                                           nvml::Placement* placements,
                                                           unsigned* count) noexcept {
  return Query(__func__, [&](Call& call) {
    const ProfileTarget found = FindProfile(call.state(), device, profile_id);
    if (count == nullptr || found.code != nvml::kSuccess) return nvml::kInvalidArgument;
    if (!call.privileged()) return nvml::kNoPermission;
    const gpu::MigProfile& profile = found.target.gpu->model->profile(found.profile);
    *count = static_cast<unsigned>(profile.starts.size());
    if (placements == nullptr) return nvml::kSuccess;
    for (const int start : profile.starts) {
      *placements++ = {static_cast<unsigned>(start), static_cast<unsigned>(profile.memory_slices)};
    }
    return nvml::kSuccess;
  });
}

nvml::Return nvmlDeviceGetGpuInstanceRemainingCapacity(nvml::Device device, unsigned profile_id,
                                                       unsigned* count) noexcept {
  return Query(__func__, [&](Call& call) {
    if (count == nullptr) return nvml::kInvalidArgument;
    const ProfileTarget found = FindMigProfile(call, device, profile_id);
    if (found.code != nvml::kSuccess) return found.code;
    gpu::MigLayout layout = LayoutOf(*found.target.gpu);
    *count = 0;
    // Places of one profile never overlap in part, so any order gives the most.
    for (const int start : layout.FreeStarts(found.profile)) {
      if (layout.Place({start, found.profile})) ++*count;
    }
    return nvml::kSuccess;
  });
}

nvml::Return nvmlDeviceCreateGpuInstance(nvml::Device device, unsigned profile_id,
                                         nvml::GpuInstance* gpu_instance) noexcept {
  const auto describe = [&](Call& call, ChangeRecord& record) {
    Describe(call, record, device);
    record.profile = profile_id;
  };
  return Change(__func__, describe, [&](Call& call, ChangeRecord& record) {
    if (gpu_instance == nullptr) return nvml::kInvalidArgument;
    return Create(call, record, device, profile_id, std::nullopt, gpu_instance);
  });
}

nvml::Return nvmlDeviceCreateGpuInstanceWithPlacement(nvml::Device device, unsigned profile_id,
                                                      const nvml::Placement* placement,
                                                      nvml::GpuInstance* gpu_instance) noexcept {
  const auto describe = [&](Call& call, ChangeRecord& record) {
    Describe(call, record, device);
    record.profile = profile_id;
    if (placement != nullptr) record.start = placement->start;
  };
  return Change(__func__, describe, [&](Call& call, ChangeRecord& record) {
    if (placement == nullptr || gpu_instance == nullptr) return nvml::kInvalidArgument;
    const ProfileTarget found = FindMigProfile(call, device, profile_id);
    if (found.code != nvml::kSuccess) return found.code;
    const gpu::MigProfile& profile = found.target.gpu->model->profile(found.profile);
    if (placement->size != static_cast<unsigned>(profile.memory_slices)) {
      return nvml::kInvalidArgument;
    }
    return Create(call, record, device, profile_id, static_cast<int>(placement->start),
                  gpu_instance);
  });
}

nvml::Return nvmlGpuInstanceDestroy(nvml::GpuInstance gpu_instance) noexcept {
  const auto describe = [&](Call& call, ChangeRecord& record) {
    const auto target = FindGpuInstance(call.state(), gpu_instance);
    if (!target) return;
    const gpu::MigProfile& profile =
        target->gpu->model->profile(target->gpu_instance->place.profile);
    record.gpu = target->index;
    record.gpu_instance = target->gpu_instance->id;
    record.profile = static_cast<unsigned>(profile.nvml_id);
    record.start = static_cast<unsigned>(target->gpu_instance->place.start);
    record.latency = GpuInstanceDestructionTime(profile.compute_slices);
  };
  return Change(__func__, describe, [&](Call& call, ChangeRecord&) {
    const auto target = FindGpuInstance(call.state(), gpu_instance);
    if (!target) return nvml::kInvalidArgument;
    if (!call.privileged()) return nvml::kNoPermission;
    return DestroyGpuInstance(*target->gpu, target->gpu_instance->serial);
  });
}

nvml::Return nvmlDeviceGetGpuInstances(nvml::Device device, unsigned profile_id,
                                       nvml::GpuInstance* gpu_instances, unsigned* count) noexcept {
  return Query(__func__, [&](Call& call) {
    if (gpu_instances == nullptr || count == nullptr) return nvml::kInvalidArgument;
    const ProfileTarget found = FindMigProfile(call, device, profile_id);
    if (found.code != nvml::kSuccess) return found.code;
    *count = 0;
    for (const GpuInstance& instance : found.target.gpu->instances) {
      if (instance.place.profile != found.profile) continue;
      gpu_instances[(*count)++] = GpuInstanceHandle(found.target.index, instance);
    }
    return nvml::kSuccess;
  });
}

nvml::Return nvmlDeviceGetGpuInstanceById(nvml::Device device, unsigned id,
                                          nvml::GpuInstance* gpu_instance) noexcept {
  return Query(__func__, [&](Call& call) {
    const auto target = FindGpu(call.state(), device);
    if (!target || gpu_instance == nullptr) return nvml::kInvalidArgument;
    if (!call.privileged()) return nvml::kNoPermission;
    if (!target->gpu->mig) return nvml::kNotSupported;
    const auto& instances = target->gpu->instances;
    const auto found = std::ranges::find(instances, id, &GpuInstance::id);
    if (found == instances.end()) return nvml::kNotFound;
    *gpu_instance = GpuInstanceHandle(target->index, *found);
    return nvml::kSuccess;
  });
}

nvml::Return nvmlGpuInstanceGetInfo(nvml::GpuInstance gpu_instance,
                                    nvml::GpuInstanceInfo* info) noexcept {
  return Query(__func__, [&](Call& call) {
    const auto target = FindGpuInstance(call.state(), gpu_instance);
    if (!target || info == nullptr) return nvml::kInvalidArgument;
    const GpuInstance& instance = *target->gpu_instance;
    const gpu::MigProfile& profile = target->gpu->model->profile(instance.place.profile);
    *info = {GpuHandle(target->index),
             instance.id,
             static_cast<unsigned>(profile.nvml_id),
             {static_cast<unsigned>(instance.place.start),
              static_cast<unsigned>(profile.memory_slices)}};
    return nvml::kSuccess;
  });
}

}  // extern "C"

}  // namespace divvy::device::simulator
