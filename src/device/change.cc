#include "device/change.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "gpu/transition.h"

namespace divvy::device {
namespace {

std::vector<ComputeSpec> SpecsOf(const GpuInstanceState& state) {
  std::vector<ComputeSpec> specs;
  for (const ComputeInstanceState& compute : state.compute) specs.push_back(compute.spec);
  std::ranges::sort(specs, {}, &ComputeSpec::start);
  return specs;
}

bool ComputeMatches(const GpuInstanceState& state, const InstanceTarget& target) {
  return target.compute ? SpecsOf(state) == *target.compute : !state.compute.empty();
}

InstanceTarget TargetOf(const gpu::GpuModel& model, const GpuInstanceState& state) {
  const gpu::MigProfile& profile = model.profile(state.instance.profile);
  return {profile.nvml_id,       profile.name,           state.instance.start,
          profile.memory_slices, profile.compute_slices, SpecsOf(state)};
}

std::string ProcessList(const std::vector<GpuProcess>& processes) {
  std::string text;
  for (const GpuProcess& p : processes) {
    if (!text.empty()) text += ", ";
    text += p.name.empty() ? fmt::format("process {}", p.pid)
                           : fmt::format("process {} ({})", p.pid, p.name);
  }
  return text.empty() ? "processes that NVML will not list" : text;
}

std::string Uuids(const GpuInstanceState& state) {
  std::string text;
  for (const ComputeInstanceState& compute : state.compute) {
    if (!text.empty()) text += ", ";
    text += compute.uuid;
  }
  return text;
}

// Changing the mode resets the GPU, so nothing at all may use it.
Result<void> CheckNothingRuns(const GpuState& now) {
  for (const GpuInstanceState& state : now.instances) {
    if (state.busy()) {
      return Fail(
          ErrorCode::kFailedPrecondition,
          fmt::format("GPU {}: its MIG mode cannot change while {} runs on {}", now.index,
                      ProcessList(state.processes), gpu::Describe(now.model, state.instance)));
    }
  }
  if (!now.processes.empty() || !now.processes_known) {
    return Fail(ErrorCode::kFailedPrecondition,
                fmt::format("GPU {}: its MIG mode cannot change while it is used by {}", now.index,
                            ProcessList(now.processes)));
  }
  return {};
}

class StepList {
 public:
  explicit StepList(const GpuState& now) : now_(now) {}

  void SetMode(bool mig) {
    const bool effective = mig != now_.mig_enabled;
    steps_.push_back({.kind = mig ? Step::Kind::kEnableMig : Step::Kind::kDisableMig,
                      .gpu_uuid = now_.uuid,
                      .gpu_index = now_.index,
                      .effect = effective ? "resets the GPU, which nothing uses"
                                          : "takes back a pending change; disturbs nobody"});
  }

  void Destroy(const GpuInstanceState& state) {
    Add(Step::Kind::kDestroy, TargetOf(now_.model, state), state.id,
        state.compute.empty() ? "it has no compute instance; disturbs nobody"
                              : fmt::format("ends {}, which is idle", Uuids(state)));
  }

  void Create(const InstanceTarget& target) {
    Add(Step::Kind::kCreate, target, 0, "in free slices; disturbs nobody");
  }

  void Complete(const GpuInstanceState& state, const InstanceTarget& target) {
    Add(Step::Kind::kComplete, target, state.id,
        LosesCompute(state.compute, target)
            ? fmt::format("the GPU instance stays; replaces {}, which are idle", Uuids(state))
            : "the GPU instance stays; disturbs nobody");
  }

  std::vector<Step> Take() { return std::move(steps_); }

 private:
  void Add(Step::Kind kind, InstanceTarget instance, unsigned id, std::string effect) {
    steps_.push_back({.kind = kind,
                      .gpu_uuid = now_.uuid,
                      .gpu_index = now_.index,
                      .instance = std::move(instance),
                      .gpu_instance_id = id,
                      .effect = std::move(effect)});
  }

  const GpuState& now_;
  std::vector<Step> steps_;
};

Result<std::vector<gpu::WantedInstance>> WantedOf(const GpuState& now, const GpuTarget& target) {
  std::vector<gpu::WantedInstance> wanted;
  for (const InstanceTarget& t : target.instances) {
    const auto profile = now.model.FindProfileById(t.profile_id);
    if (!profile) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("GPU {} ({}) has no profile {} (id {})", now.index, now.model.name,
                              t.profile, t.profile_id));
    }
    wanted.push_back({*profile, t.start});
  }
  return wanted;
}

// Compute instances of GPU instances that stay. A busy one may gain a compute
// instance but not lose one.
Result<void> AddCompletions(const GpuState& now, const GpuTarget& target, StepList& steps) {
  for (const GpuInstanceState& state : now.instances) {
    const int id = now.model.profile(state.instance.profile).nvml_id;
    const InstanceTarget* const t = FindTarget(target, state.instance.start, id);
    if (t == nullptr || ComputeMatches(state, *t)) continue;
    const auto have = SpecsOf(state);
    const bool loses = t->compute && !std::ranges::all_of(have, [&](const ComputeSpec& spec) {
                         return std::ranges::find(*t->compute, spec) != t->compute->end();
                       });
    if (loses && state.busy()) {
      return Fail(ErrorCode::kFailedPrecondition,
                  fmt::format("GPU {}: the compute instances of {} cannot change while {} runs "
                              "there",
                              now.index, gpu::Describe(now.model, state.instance),
                              ProcessList(state.processes)));
    }
    steps.Complete(state, *t);
  }
  return {};
}

}  // namespace

const InstanceTarget* FindTarget(const GpuTarget& target, int start, int profile_id) {
  const auto found = std::ranges::find_if(target.instances, [&](const InstanceTarget& t) {
    return t.start == start && t.profile_id == profile_id;
  });
  return found == target.instances.end() ? nullptr : &*found;
}

bool LosesCompute(const std::vector<ComputeInstanceState>& have, const InstanceTarget& target) {
  if (!target.compute) return false;
  return std::ranges::any_of(have, [&](const ComputeInstanceState& compute) {
    return std::ranges::find(*target.compute, compute.spec) == target.compute->end();
  });
}

std::string Describe(const Step& step) {
  switch (step.kind) {
    case Step::Kind::kEnableMig:
      return "enable MIG mode";
    case Step::Kind::kDisableMig:
      return "disable MIG mode";
    case Step::Kind::kDestroy:
      return fmt::format("destroy {} at {}", step.instance.profile, step.instance.start);
    case Step::Kind::kCreate:
      return fmt::format("create {} at {}", step.instance.profile, step.instance.start);
    case Step::Kind::kComplete:
      return fmt::format("set up compute instances of {} at {}", step.instance.profile,
                         step.instance.start);
  }
  return "";
}

GpuTarget AsItIs(const GpuState& now) {
  GpuTarget target{now.uuid, now.mig_enabled, {}};
  for (const GpuInstanceState& state : now.instances) {
    target.instances.push_back(TargetOf(now.model, state));
  }
  return target;
}

bool Matches(const GpuState& now, const GpuTarget& target) {
  if (!now.instances_known || now.mig_enabled != target.mig || now.mig_pending != target.mig ||
      now.instances.size() != target.instances.size()) {
    return false;
  }
  return std::ranges::all_of(now.instances, [&](const GpuInstanceState& state) {
    const int id = now.model.profile(state.instance.profile).nvml_id;
    const InstanceTarget* const t = FindTarget(target, state.instance.start, id);
    return t != nullptr && ComputeMatches(state, *t);
  });
}

Result<std::vector<gpu::PresentInstance>> PresentOf(const GpuState& now) {
  if (!now.instances_known) {
    return Fail(ErrorCode::kPermissionDenied,
                fmt::format("GPU {}: NVML shows its MIG instances to privileged users only: run "
                            "as root",
                            now.index));
  }
  if (now.model.profiles.empty()) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("GPU {}: neither NVML nor the catalogue says what it can be cut into",
                            now.index));
  }
  std::vector<gpu::PresentInstance> present;
  gpu::MigLayout layout(now.model);
  for (const GpuInstanceState& state : now.instances) {
    if (const auto placed = layout.Place(state.instance); !placed) {
      return Fail(ErrorCode::kUnavailable,
                  fmt::format("GPU {}: NVML reports a layout that its own rules forbid: {}",
                              now.index, placed.error().message));
    }
    present.push_back({state.instance, state.busy()});
  }
  return present;
}

Result<std::vector<Step>> StepsTowards(const GpuState& now, const GpuTarget& target) {
  StepList steps(now);
  // Whatever the target: steps from a layout that cannot be would be nonsense.
  if (now.mig_enabled) {
    if (auto present = PresentOf(now); !present) return Fail(present.error());
  }
  if (now.mig_enabled != target.mig) {
    if (auto idle = CheckNothingRuns(now); !idle) return Fail(idle.error());
  }
  if (!target.mig) {
    for (const GpuInstanceState& state : now.instances) steps.Destroy(state);
    if (now.mig_enabled || now.mig_pending) steps.SetMode(false);
    return steps.Take();
  }
  if (!now.mig_enabled || !now.mig_pending) steps.SetMode(true);

  auto wanted = WantedOf(now, target);
  if (!wanted) return Fail(wanted.error());
  const auto present = PresentOf(now);
  if (!present) return Fail(present.error());
  const auto answer = gpu::PlanTransition(now.model, *present, *wanted);
  if (const auto* unreachable = std::get_if<gpu::Unreachable>(&answer)) {
    return Fail(ErrorCode::kFailedPrecondition,
                fmt::format("GPU {}: {}", now.index, unreachable->why));
  }
  if (auto completed = AddCompletions(now, target, steps); !completed) {
    return Fail(completed.error());
  }
  for (const gpu::TransitionStep& step : std::get<gpu::Transition>(answer).steps) {
    const int start = step.instance.start;
    if (step.kind == gpu::TransitionStep::Kind::kDestroy) {
      steps.Destroy(*std::ranges::find(now.instances, step.instance, &GpuInstanceState::instance));
    } else {
      steps.Create(*FindTarget(target, start, now.model.profile(step.instance.profile).nvml_id));
    }
  }
  return steps.Take();
}

}  // namespace divvy::device
