// NVML: compute instance profiles and compute instances.

#include <fmt/format.h>

#include <algorithm>

#include "device/simulator/c_string.h"
#include "device/simulator/handles.h"
#include "device/simulator/latency.h"
#include "device/simulator/nvml_entry_points.h"
#include "device/simulator/operations.h"
#include "device/simulator/profiles.h"
#include "device/simulator/session.h"

namespace divvy::device::simulator {
namespace {

// A GPU instance and one of its compute profiles, or why there is none.
struct ComputeTarget {
  nvml::Return code;
  Target target{};
  ComputeProfile profile{};
};

const gpu::MigProfile& ProfileOf(const Target& target) {
  return target.gpu->model->profile(target.gpu_instance->place.profile);
}

ComputeTarget Find(State& state, nvml::GpuInstance gpu_instance, unsigned profile_id) {
  const auto target = FindGpuInstance(state, gpu_instance);
  // Ids are the profiles' enumerators, so the same range is valid.
  if (!target || profile_id >= nvml::kComputeInstanceProfileCount) {
    return {nvml::kInvalidArgument};
  }
  const auto profile = FindComputeProfile(ProfileOf(*target), profile_id);
  if (!profile) return {nvml::kNotSupported};
  return {nvml::kSuccess, *target, *profile};
}

// The like for calls that need the administrator.
ComputeTarget FindPrivileged(Call& call, nvml::GpuInstance gpu_instance, unsigned profile_id) {
  if (!FindGpuInstance(call.state(), gpu_instance)) return {nvml::kInvalidArgument};
  if (!call.privileged()) return {nvml::kNoPermission};
  return Find(call.state(), gpu_instance, profile_id);
}

// What both forms of the profile info have in common.
template <typename Info>
void FillProfile(Info& info, const ComputeTarget& found) {
  const gpu::MigProfile& parent = ProfileOf(found.target);
  const gpu::Engines engines = EnginesOf(parent);
  const int sms = SmsOf(*found.target.gpu->model, parent);
  info.id = found.profile.id;
  info.sliceCount = static_cast<unsigned>(found.profile.slices);
  info.instanceCount = static_cast<unsigned>(found.profile.starts.size());
  info.multiprocessorCount =
      static_cast<unsigned>(sms * found.profile.slices / parent.compute_slices);
  info.sharedCopyEngineCount = static_cast<unsigned>(engines.copy);
  info.sharedDecoderCount = static_cast<unsigned>(engines.decoders);
  info.sharedEncoderCount = static_cast<unsigned>(engines.encoders);
  info.sharedJpegCount = static_cast<unsigned>(engines.jpeg);
  info.sharedOfaCount = static_cast<unsigned>(engines.ofa);
}

void Describe(Call& call, ChangeRecord& record, nvml::GpuInstance gpu_instance,
              unsigned profile_id) {
  record.profile = profile_id;
  const auto target = FindGpuInstance(call.state(), gpu_instance);
  if (!target) return;
  record.gpu = target->index;
  record.gpu_instance = target->gpu_instance->id;
}

nvml::Return Create(Call& call, ChangeRecord& record, const ComputeTarget& found,
                    std::optional<int> start, nvml::ComputeInstance* compute_instance) {
  if (found.code != nvml::kSuccess) return found.code;
  const auto created = CreateComputeInstance(call.state(), *found.target.gpu,
                                             *found.target.gpu_instance, found.profile, start);
  if (created.code != nvml::kSuccess) return created.code;
  record.compute_instance = created.instance->id;
  record.start = static_cast<unsigned>(created.instance->start);
  record.latency = kComputeInstanceCreationTime;
  *compute_instance = ComputeInstanceHandle(found.target.index, *created.instance);
  return nvml::kSuccess;
}

}  // namespace

extern "C" {

nvml::Return nvmlGpuInstanceGetComputeInstanceProfileInfo(
    nvml::GpuInstance gpu_instance, unsigned profile, unsigned engine_profile,
    nvml::ComputeInstanceProfileInfo* info) noexcept {
  return Query(__func__, [&](Call& call) {
    if (info == nullptr || engine_profile != nvml::kEngineProfileShared) {
      return nvml::kInvalidArgument;
    }
    const ComputeTarget found = Find(call.state(), gpu_instance, profile);
    if (found.code == nvml::kSuccess) FillProfile(*info, found);
    return found.code;
  });
}

nvml::Return nvmlGpuInstanceGetComputeInstanceProfileInfoV(
    nvml::GpuInstance gpu_instance, unsigned profile, unsigned engine_profile,
    nvml::ComputeInstanceProfileInfoV2* info) noexcept {
  return Query(__func__, [&](Call& call) {
    if (info == nullptr || engine_profile != nvml::kEngineProfileShared) {
      return nvml::kInvalidArgument;
    }
    if (info->version != nvml::StructVersion<nvml::ComputeInstanceProfileInfoV2>(2)) {
      return nvml::kArgumentVersionMismatch;
    }
    const ComputeTarget found = Find(call.state(), gpu_instance, profile);
    if (found.code != nvml::kSuccess) return found.code;
    FillProfile(*info, found);
    CopyInto(
        fmt::format("MIG {}", ComputeProfileName(ProfileOf(found.target), found.profile.slices)),
        info->name);
    return nvml::kSuccess;
  });
}

nvml::Return nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvml::GpuInstance gpu_instance,
                                                                unsigned profile_id,
                                                                unsigned* count) noexcept {
  return Query(__func__, [&](Call& call) {
    if (count == nullptr) return nvml::kInvalidArgument;
    const ComputeTarget found = FindPrivileged(call, gpu_instance, profile_id);
    if (found.code != nvml::kSuccess) return found.code;
    *count = static_cast<unsigned>(FreeStarts(*found.target.gpu_instance, found.profile).size());
    return nvml::kSuccess;
  });
}

nvml::Return nvmlGpuInstanceGetComputeInstancePossiblePlacements(nvml::GpuInstance gpu_instance,
                                                                 unsigned profile_id,
                                                                 nvml::Placement* placements,
                                                                 unsigned* count) noexcept {
  return Query(__func__, [&](Call& call) {
    if (count == nullptr) return nvml::kInvalidArgument;
    const ComputeTarget found = FindPrivileged(call, gpu_instance, profile_id);
    if (found.code != nvml::kSuccess) return found.code;
    *count = static_cast<unsigned>(found.profile.starts.size());
    if (placements == nullptr) return nvml::kSuccess;
    for (const int start : found.profile.starts) {
      *placements++ = {static_cast<unsigned>(start), static_cast<unsigned>(found.profile.slices)};
    }
    return nvml::kSuccess;
  });
}

nvml::Return nvmlGpuInstanceCreateComputeInstance(
    nvml::GpuInstance gpu_instance, unsigned profile_id,
    nvml::ComputeInstance* compute_instance) noexcept {
  const auto describe = [&](Call& call, ChangeRecord& record) {
    Describe(call, record, gpu_instance, profile_id);
  };
  return Change(__func__, describe, [&](Call& call, ChangeRecord& record) {
    if (compute_instance == nullptr) return nvml::kInvalidArgument;
    const ComputeTarget found = FindPrivileged(call, gpu_instance, profile_id);
    return Create(call, record, found, std::nullopt, compute_instance);
  });
}

nvml::Return nvmlGpuInstanceCreateComputeInstanceWithPlacement(
    nvml::GpuInstance gpu_instance, unsigned profile_id, const nvml::Placement* placement,
    nvml::ComputeInstance* compute_instance) noexcept {
  const auto describe = [&](Call& call, ChangeRecord& record) {
    Describe(call, record, gpu_instance, profile_id);
    if (placement != nullptr) record.start = placement->start;
  };
  return Change(__func__, describe, [&](Call& call, ChangeRecord& record) {
    if (placement == nullptr || compute_instance == nullptr) return nvml::kInvalidArgument;
    const ComputeTarget found = FindPrivileged(call, gpu_instance, profile_id);
    if (found.code != nvml::kSuccess) return found.code;
    if (placement->size != static_cast<unsigned>(found.profile.slices)) {
      return nvml::kInvalidArgument;
    }
    return Create(call, record, found, static_cast<int>(placement->start), compute_instance);
  });
}

nvml::Return nvmlComputeInstanceDestroy(nvml::ComputeInstance compute_instance) noexcept {
  const auto describe = [&](Call& call, ChangeRecord& record) {
    const auto target = FindComputeInstance(call.state(), compute_instance);
    if (!target) return;
    record.gpu = target->index;
    record.gpu_instance = target->gpu_instance->id;
    record.compute_instance = target->compute_instance->id;
    record.profile = ComputeProfileId(target->compute_instance->slices);
    record.start = static_cast<unsigned>(target->compute_instance->start);
    record.latency = kComputeInstanceDestructionTime;
  };
  return Change(__func__, describe, [&](Call& call, ChangeRecord&) {
    const auto target = FindComputeInstance(call.state(), compute_instance);
    if (!target) return nvml::kInvalidArgument;
    if (!call.privileged()) return nvml::kNoPermission;
    return DestroyComputeInstance(*target->gpu, *target->gpu_instance,
                                  target->compute_instance->serial);
  });
}

nvml::Return nvmlGpuInstanceGetComputeInstances(nvml::GpuInstance gpu_instance, unsigned profile_id,
                                                nvml::ComputeInstance* compute_instances,
                                                unsigned* count) noexcept {
  return Query(__func__, [&](Call& call) {
    if (compute_instances == nullptr || count == nullptr) return nvml::kInvalidArgument;
    const ComputeTarget found = FindPrivileged(call, gpu_instance, profile_id);
    if (found.code != nvml::kSuccess) return found.code;
    *count = 0;
    for (const ComputeInstance& compute : found.target.gpu_instance->compute_instances) {
      if (compute.slices != found.profile.slices) continue;
      compute_instances[(*count)++] = ComputeInstanceHandle(found.target.index, compute);
    }
    return nvml::kSuccess;
  });
}

nvml::Return nvmlGpuInstanceGetComputeInstanceById(
    nvml::GpuInstance gpu_instance, unsigned id, nvml::ComputeInstance* compute_instance) noexcept {
  return Query(__func__, [&](Call& call) {
    const auto target = FindGpuInstance(call.state(), gpu_instance);
    if (!target || compute_instance == nullptr) return nvml::kInvalidArgument;
    if (!call.privileged()) return nvml::kNoPermission;
    const auto& instances = target->gpu_instance->compute_instances;
    const auto found = std::ranges::find(instances, id, &ComputeInstance::id);
    if (found == instances.end()) return nvml::kNotFound;
    *compute_instance = ComputeInstanceHandle(target->index, *found);
    return nvml::kSuccess;
  });
}

nvml::Return nvmlComputeInstanceGetInfo_v2(nvml::ComputeInstance compute_instance,
                                           nvml::ComputeInstanceInfo* info) noexcept {
  return Query(__func__, [&](Call& call) {
    const auto target = FindComputeInstance(call.state(), compute_instance);
    if (!target || info == nullptr) return nvml::kInvalidArgument;
    const ComputeInstance& compute = *target->compute_instance;
    *info = {MigDeviceHandle(target->index, compute),
             GpuInstanceHandle(target->index, *target->gpu_instance),
             compute.id,
             ComputeProfileId(compute.slices).value_or(0),
             {static_cast<unsigned>(compute.start), static_cast<unsigned>(compute.slices)}};
    return nvml::kSuccess;
  });
}

}  // extern "C"

}  // namespace divvy::device::simulator
