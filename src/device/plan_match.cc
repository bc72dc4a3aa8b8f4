#include "device/plan_match.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "gpu/catalogue.h"
#include "gpu/transition.h"
#include "plan/validate.h"

namespace divvy::device {
namespace {

tl::unexpected<Error> Wrong(std::string_view file, plan::SourceLine line, std::string message) {
  return Fail(ErrorCode::kInvalidArgument,
              plan::Describe(plan::Problem{line, std::move(message)}, file));
}

const GpuState* FindGpu(const NodeState& node, const plan::GpuRef& ref) {
  const auto found = std::ranges::find_if(node.gpus, [&](const GpuState& gpu) {
    if (const auto* index = std::get_if<int>(&ref)) return static_cast<int>(gpu.index) == *index;
    return gpu.uuid == std::get<std::string>(ref);
  });
  return found == node.gpus.end() ? nullptr : &*found;
}

bool Names(const std::string& only, const GpuState& gpu) {
  return only == gpu.uuid || only == std::to_string(gpu.index);
}

// "1g.18gb at 0 and 3g.71gb at 4".
std::string Describe(const gpu::GpuModel& model, const std::vector<gpu::MigInstance>& instances) {
  std::string text;
  for (const gpu::MigInstance& instance : instances) {
    if (!text.empty()) text += ", ";
    text += gpu::Describe(model, instance);
  }
  return text.empty() ? "an empty GPU" : text;
}

std::string GpuCount(const NodeState& node) {
  if (node.gpus.empty()) return "none";
  if (node.gpus.size() == 1) return "one GPU, 0";
  return fmt::format("{} GPUs, 0 to {}", node.gpus.size(), node.gpus.size() - 1);
}

Result<void> CheckKind(const plan::PlannedGpu& planned, std::string_view file,
                       const GpuState& now) {
  const auto kind = gpu::FindGpuModel(planned.kind);
  const bool by_name = planned.kind == now.name || planned.kind == now.model.name;
  if (!kind && !by_name) return Wrong(file, planned.line, kind.error().message);
  if (!by_name && (*kind)->name != now.model.name) {
    return Wrong(file, planned.line,
                 fmt::format("the plan is for {}, but {} is {} ({})", planned.kind,
                             plan::Describe(planned.gpu), now.model.name, now.name));
  }
  if (planned.mig && !now.mig_capable) {
    return Wrong(file, planned.line,
                 fmt::format("{} ({}) cannot be cut: it or its driver has no MIG; plan it with "
                             "'mig: false'",
                             plan::Describe(planned.gpu), now.name));
  }
  if (now.mig_enabled != now.mig_pending) {
    return Fail(ErrorCode::kFailedPrecondition,
                fmt::format("GPU {}: a change of its MIG mode to '{}' is pending; reset the GPU, "
                            "or take it back with 'nvidia-smi -i {} -mig {}'",
                            now.index, now.mig_pending ? "enabled" : "disabled", now.index,
                            now.mig_enabled ? 1 : 0));
  }
  return {};
}

Result<gpu::Transition> Place(const plan::PlannedGpu& planned, const GpuState& now) {
  const auto present = PresentOf(now);
  if (!present) return Fail(present.error());
  std::vector<gpu::WantedInstance> wanted;
  for (const plan::PlannedInstance& instance : planned.instances) {
    wanted.push_back({*now.model.FindProfile(instance.profile), instance.start});
  }
  auto answer = gpu::PlanTransition(now.model, *present, wanted);
  if (auto* transition = std::get_if<gpu::Transition>(&answer)) return std::move(*transition);
  const auto& unreachable = std::get<gpu::Unreachable>(answer);
  return Fail(ErrorCode::kFailedPrecondition,
              fmt::format("GPU {}: {}; the nearest layout that can be reached is {}", now.index,
                          unreachable.why, Describe(now.model, unreachable.nearest.target)));
}

// New instances get a compute instance that fills them; those that stay keep
// what they have.
GpuTarget TargetOf(const GpuState& now, const gpu::Transition& transition) {
  GpuTarget target{now.uuid, true, {}};
  const GpuTarget present = AsItIs(now);
  for (const gpu::MigInstance& instance : transition.target) {
    const gpu::MigProfile& profile = now.model.profile(instance.profile);
    const InstanceTarget* const kept = FindTarget(present, instance.start, profile.nvml_id);
    InstanceTarget t{profile.nvml_id,       profile.name,           instance.start,
                     profile.memory_slices, profile.compute_slices, std::nullopt};
    if (kept != nullptr && !kept->compute->empty()) t.compute = kept->compute;
    target.instances.push_back(std::move(t));
  }
  return target;
}

Result<GpuChange> MatchGpu(const plan::PlannedGpu& planned, std::string_view file,
                           const GpuState& now) {
  if (auto fits = CheckKind(planned, file, now); !fits) return Fail(fits.error());
  GpuChange change{.now = now, .after = {now.uuid, false, {}}, .steps = {}};
  const auto problems = plan::ValidateGpu(planned, now.model);
  if (!problems.empty()) {
    return Wrong(file, problems.front().line,
                 fmt::format("{} (as GPU {} says)", problems.front().message, now.index));
  }
  if (planned.mig) {
    auto transition = Place(planned, now);
    if (!transition) return Fail(transition.error());
    change.after = TargetOf(now, *transition);
  }
  auto steps = StepsTowards(now, change.after);
  if (!steps) return Fail(steps.error());
  change.steps = *std::move(steps);
  return change;
}

}  // namespace

int CountSteps(const std::vector<GpuChange>& changes) {
  int count = 0;
  for (const GpuChange& change : changes) count += static_cast<int>(change.steps.size());
  return count;
}

Result<std::vector<GpuChange>> MatchPlan(const plan::Plan& plan, std::string_view file_name,
                                         const NodeState& node,
                                         const std::optional<std::string>& only) {
  std::vector<GpuChange> changes;
  for (const plan::PlannedGpu& planned : plan.gpus) {
    const GpuState* const now = FindGpu(node, planned.gpu);
    if (now == nullptr) {
      if (only) continue;
      return Wrong(file_name, planned.line,
                   fmt::format("this node has no {}; it has {}", plan::Describe(planned.gpu),
                               GpuCount(node)));
    }
    if (only && !Names(*only, *now)) continue;
    if (std::ranges::any_of(changes, [&](const GpuChange& c) { return c.now.uuid == now->uuid; })) {
      return Wrong(
          file_name, planned.line,
          fmt::format("{} is planned twice, by index and by UUID", plan::Describe(planned.gpu)));
    }
    auto change = MatchGpu(planned, file_name, *now);
    if (!change) return Fail(change.error());
    changes.push_back(*std::move(change));
  }
  if (only && changes.empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: the plan has no GPU '{}' of this node", file_name, *only));
  }
  return changes;
}

Result<std::vector<GpuChange>> MatchTargets(const std::vector<GpuTarget>& targets,
                                            const NodeState& node) {
  std::vector<GpuChange> changes;
  for (const GpuTarget& target : targets) {
    const GpuState* const now = FindGpu(node, target.uuid);
    if (now == nullptr) {
      return Fail(ErrorCode::kFailedPrecondition,
                  fmt::format("{} is no longer on this node", target.uuid));
    }
    auto steps = StepsTowards(*now, target);
    if (!steps) return Fail(steps.error());
    changes.push_back({.now = *now, .after = target, .steps = *std::move(steps)});
  }
  return changes;
}

}  // namespace divvy::device
