#include "device/mig_control.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace divvy::device {
namespace {

using nvml::Return;

Result<nvml::Device> Handle(const NvmlFunctions& f, const Step& step) {
  nvml::Device device = nullptr;
  if (const Return code = f.nvmlDeviceGetHandleByUUID(step.gpu_uuid.c_str(), &device);
      code != nvml::kSuccess) {
    return Fail(
        NvmlError(code, fmt::format("opening GPU {}", step.gpu_uuid), "nvmlDeviceGetHandleByUUID"));
  }
  return device;
}

// The call succeeds while the mode does not become active: the second status
// tells. A mode that could not be activated would take effect at the next reset,
// behind everybody's back, so it is taken back.
Result<std::string> SetMigMode(const NvmlFunctions& f, const Step& step, bool enable) {
  auto device = Handle(f, step);
  if (!device) return Fail(device.error());
  const std::string doing =
      fmt::format("{} MIG mode of GPU {}", enable ? "enabling" : "disabling", step.gpu_index);
  Return activation = nvml::kSuccess;
  const unsigned mode = enable ? nvml::kMigEnable : nvml::kMigDisable;
  if (const Return code = f.nvmlDeviceSetMigMode(*device, mode, &activation);
      code != nvml::kSuccess) {
    return Fail(NvmlError(code, doing, "nvmlDeviceSetMigMode"));
  }
  if (activation == nvml::kSuccess) return "active";
  unsigned current = mode;
  unsigned pending = mode;
  if (f.nvmlDeviceGetMigMode(*device, &current, &pending) == nvml::kSuccess && current != mode) {
    Return ignored = nvml::kSuccess;
    f.nvmlDeviceSetMigMode(*device, current, &ignored);
  }
  if (activation == nvml::kInUse) {
    return Fail(ErrorCode::kFailedPrecondition,
                fmt::format("{}: the GPU is in use (activation status IN_USE); stop what holds it, "
                            "monitoring daemons included, and try again",
                            doing));
  }
  return Fail(NvmlError(activation, doing, "nvmlDeviceSetMigMode's activation status"));
}

Result<void> DestroyCompute(const NvmlFunctions& f, nvml::GpuInstance instance, unsigned id) {
  nvml::ComputeInstance compute = nullptr;
  if (const Return code = f.nvmlGpuInstanceGetComputeInstanceById(instance, id, &compute);
      code != nvml::kSuccess) {
    return Fail(NvmlError(code, fmt::format("opening compute instance {}", id),
                          "nvmlGpuInstanceGetComputeInstanceById"));
  }
  if (const Return code = f.nvmlComputeInstanceDestroy(compute); code != nvml::kSuccess) {
    return Fail(NvmlError(code, fmt::format("destroying compute instance {}", id),
                          "nvmlComputeInstanceDestroy"));
  }
  return {};
}

Result<void> CreateCompute(const NvmlFunctions& f, nvml::GpuInstance instance,
                           const ComputeSpec& spec) {
  nvml::ComputeInstance compute = nullptr;
  if (f.nvmlGpuInstanceCreateComputeInstanceWithPlacement != nullptr) {
    const nvml::Placement placement{spec.start, spec.size};
    const Return code = f.nvmlGpuInstanceCreateComputeInstanceWithPlacement(
        instance, spec.profile_id, &placement, &compute);
    if (code != nvml::kSuccess) {
      return Fail(NvmlError(code, "creating a compute instance",
                            "nvmlGpuInstanceCreateComputeInstanceWithPlacement"));
    }
    return {};
  }
  // Without it the driver takes the first place, which is the same in order.
  const Return code = f.nvmlGpuInstanceCreateComputeInstance(instance, spec.profile_id, &compute);
  if (code != nvml::kSuccess) {
    return Fail(
        NvmlError(code, "creating a compute instance", "nvmlGpuInstanceCreateComputeInstance"));
  }
  return {};
}

// Makes the compute instances of `instance` those of `target`, given those there.
Result<void> SetUpCompute(const NvmlLibrary& nvml, nvml::GpuInstance instance,
                          const std::vector<ComputeInstanceState>& have,
                          const InstanceTarget& target) {
  const NvmlFunctions& f = nvml.functions();
  if (!target.compute) {
    if (!have.empty()) return {};
    const auto profiles = ReadComputeProfiles(nvml, instance);
    if (!profiles) return Fail(profiles.error());
    // Of equals, the plain one comes first. A smaller one would waste slices.
    const auto whole = std::ranges::find(*profiles, static_cast<unsigned>(target.compute_slices),
                                         &nvml::ComputeInstanceProfileInfo::sliceCount);
    if (whole == profiles->end()) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("NVML lists no compute instance profile of {} slices for it",
                              target.compute_slices));
    }
    nvml::ComputeInstance compute = nullptr;
    if (const Return code = f.nvmlGpuInstanceCreateComputeInstance(instance, whole->id, &compute);
        code != nvml::kSuccess) {
      return Fail(
          NvmlError(code, "creating its compute instance", "nvmlGpuInstanceCreateComputeInstance"));
    }
    return {};
  }
  const auto wanted = [&](const ComputeSpec& spec) {
    return std::ranges::find(*target.compute, spec) != target.compute->end();
  };
  for (const ComputeInstanceState& state : have) {
    if (wanted(state.spec)) continue;
    if (auto gone = DestroyCompute(f, instance, state.id); !gone) return gone;
  }
  for (const ComputeSpec& spec : *target.compute) {
    if (std::ranges::find(have, spec, &ComputeInstanceState::spec) != have.end()) continue;
    if (auto made = CreateCompute(f, instance, spec); !made) return made;
  }
  return {};
}

// INSUFFICIENT_RESOURCES says neither "overlap" nor "already there"; the GPU's
// present state does.
Error ExplainRefusal(const NvmlLibrary& nvml, const Step& step, Return code) {
  const std::string doing = Describe(step);
  Error error = NvmlError(code, doing, "nvmlDeviceCreateGpuInstanceWithPlacement");
  if (code != nvml::kInsufficientResources) return error;
  const auto now = ReadGpu(nvml, step.gpu_uuid);
  if (!now) return error;
  const auto profile = now->model.FindProfileById(step.instance.profile_id);
  if (!profile) return error;
  const auto slices = gpu::SlicesOf(now->model.profile(*profile), step.instance.start);
  for (const GpuInstanceState& other : now->instances) {
    if ((slices &
         gpu::SlicesOf(now->model.profile(other.instance.profile), other.instance.start)) == 0) {
      continue;
    }
    error.message +=
        other.instance == gpu::MigInstance{step.instance.start, *profile}
            ? ": somebody else has just created it"
            : fmt::format(": {} is in its place", gpu::Describe(now->model, other.instance));
    return error;
  }
  error.message += ": its slices are free, so the driver lacks something else for it";
  return error;
}

// The instance's MIG UUIDs, read back: success alone proves nothing.
Result<std::string> ReadBack(const NvmlLibrary& nvml, const Step& step,
                             nvml::GpuInstance instance) {
  const auto reading = ReadInstance(nvml, instance);
  if (!reading) return Fail(reading.error());
  std::string uuids;
  for (const ComputeInstanceState& compute : reading->compute) {
    uuids += (uuids.empty() ? "" : ", ") + compute.uuid;
  }
  const bool bare = step.instance.compute && step.instance.compute->empty();
  if (uuids.empty() && bare) return "without compute instance, as it was";
  if (uuids.empty() || static_cast<int>(reading->placement.start) != step.instance.start) {
    return Fail(
        ErrorCode::kUnavailable,
        fmt::format("{}: NVML reported success, but the instance is not there", Describe(step)));
  }
  return uuids;
}

Result<std::string> Create(const NvmlLibrary& nvml, const Step& step) {
  const NvmlFunctions& f = nvml.functions();
  auto device = Handle(f, step);
  if (!device) return Fail(device.error());
  const nvml::Placement placement{static_cast<unsigned>(step.instance.start),
                                  static_cast<unsigned>(step.instance.size)};
  nvml::GpuInstance instance = nullptr;
  if (const Return code = f.nvmlDeviceCreateGpuInstanceWithPlacement(
          *device, static_cast<unsigned>(step.instance.profile_id), &placement, &instance);
      code != nvml::kSuccess) {
    return Fail(ExplainRefusal(nvml, step, code));
  }
  if (auto made = SetUpCompute(nvml, instance, {}, step.instance); !made) {
    return Fail(ErrorCode::kAborted, fmt::format("{}: {}", Describe(step), made.error().message));
  }
  return ReadBack(nvml, step, instance);
}

struct OpenInstance {
  nvml::GpuInstance handle;
  InstanceReading state;
};

// The instance as it is now, if it is still the one the step means.
Result<OpenInstance> Reopen(const NvmlLibrary& nvml, const Step& step) {
  const NvmlFunctions& f = nvml.functions();
  auto device = Handle(f, step);
  if (!device) return Fail(device.error());
  nvml::GpuInstance handle = nullptr;
  if (const Return code = f.nvmlDeviceGetGpuInstanceById(*device, step.gpu_instance_id, &handle);
      code != nvml::kSuccess) {
    return Fail(NvmlError(code, Describe(step), "nvmlDeviceGetGpuInstanceById"));
  }
  auto state = ReadInstance(nvml, handle);
  if (!state) return Fail(state.error());
  if (static_cast<int>(state->placement.start) != step.instance.start ||
      static_cast<int>(state->profile_id) != step.instance.profile_id) {
    return Fail(ErrorCode::kFailedPrecondition,
                fmt::format("{}: somebody else has changed this GPU meanwhile", Describe(step)));
  }
  return OpenInstance{handle, *std::move(state)};
}

Result<std::string> Destroy(const NvmlLibrary& nvml, const Step& step) {
  const NvmlFunctions& f = nvml.functions();
  auto instance = Reopen(nvml, step);
  if (!instance) return Fail(instance.error());
  if (instance->state.busy()) {
    return Fail(ErrorCode::kFailedPrecondition,
                instance->state.processes.empty()
                    ? fmt::format("{}: NVML will not say whether it is idle", Describe(step))
                    : fmt::format("{}: process {} has started on it", Describe(step),
                                  instance->state.processes.front().pid));
  }
  for (const ComputeInstanceState& compute : instance->state.compute) {
    if (auto gone = DestroyCompute(f, instance->handle, compute.id); !gone) {
      return Fail(gone.error());
    }
  }
  if (const Return code = f.nvmlGpuInstanceDestroy(instance->handle); code != nvml::kSuccess) {
    return Fail(NvmlError(code, Describe(step), "nvmlGpuInstanceDestroy"));
  }
  return "gone";
}

Result<std::string> Complete(const NvmlLibrary& nvml, const Step& step) {
  auto instance = Reopen(nvml, step);
  if (!instance) return Fail(instance.error());
  if (instance->state.busy() && LosesCompute(instance->state.compute, step.instance)) {
    return Fail(ErrorCode::kFailedPrecondition,
                fmt::format("{}: something has started on it", Describe(step)));
  }
  if (auto made = SetUpCompute(nvml, instance->handle, instance->state.compute, step.instance);
      !made) {
    return Fail({made.error().code, fmt::format("{}: {}", Describe(step), made.error().message)});
  }
  return ReadBack(nvml, step, instance->handle);
}

}  // namespace

Result<std::string> CarryOut(const NvmlLibrary& nvml, const Step& step) {
  if (!nvml.has_mig()) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{}: this driver's NVML lacks calls for MIG; R470 or newer has them",
                            Describe(step)));
  }
  switch (step.kind) {
    case Step::Kind::kEnableMig:
      return SetMigMode(nvml.functions(), step, true);
    case Step::Kind::kDisableMig:
      return SetMigMode(nvml.functions(), step, false);
    case Step::Kind::kDestroy:
      return Destroy(nvml, step);
    case Step::Kind::kCreate:
      return Create(nvml, step);
    case Step::Kind::kComplete:
      return Complete(nvml, step);
  }
  return Fail(ErrorCode::kInvalidArgument, "no such step");
}

}  // namespace divvy::device
