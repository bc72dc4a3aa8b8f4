#include "control_cutter.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "device/apply.h"
#include "device/change.h"

namespace divvy::app {
namespace {

using device::GpuChange;
using device::GpuInstanceState;
using device::GpuState;
using device::Step;

// Remembers where a change failed.
class Follower final : public device::ApplyListener {
 public:
  explicit Follower(StopSignal& stop) : stop_(stop) {}

  void OnStepBegins(const Step& step, int /*number*/, int /*count*/) override {
    if (!back_) gpu_ = step.gpu_index;
  }
  void OnStepEnds(const Step& /*step*/, const std::string& /*outcome*/) override {}
  void OnRollback(const std::string& /*why*/) override { back_ = true; }
  bool Cancelled() override { return stop_.Heard(); }

  std::optional<unsigned> gpu() const { return gpu_; }

 private:
  StopSignal& stop_;
  std::optional<unsigned> gpu_;
  bool back_ = false;
};

// As `gpu` is once the change was made.
void Imagine(GpuState& gpu, const device::GpuTarget& after) {
  gpu.mig_enabled = gpu.mig_pending = after.mig;
  std::vector<GpuInstanceState> instances;
  for (const device::InstanceTarget& target : after.instances) {
    const auto profile = gpu.model.FindProfileById(target.profile_id);
    if (!profile) continue;
    const gpu::MigInstance instance{target.start, *profile};
    const auto same = std::ranges::find(gpu.instances, instance, &GpuInstanceState::instance);
    if (same != gpu.instances.end()) {
      instances.push_back(*same);
      continue;
    }
    const auto slices = static_cast<unsigned>(target.compute_slices);
    instances.push_back({.id = static_cast<unsigned>(target.start),
                         .instance = instance,
                         .compute = {{0, {slices - 1, 0, slices}, "an imagined MIG device"}},
                         .processes = {}});
  }
  gpu.instances = std::move(instances);
}

}  // namespace

NvmlCutter::NvmlCutter(const device::NvmlLibrary& nvml, std::string state_dir,
                       std::string plan_name, StopSignal& stop)
    : nvml_(nvml),
      state_dir_(std::move(state_dir)),
      plan_name_(std::move(plan_name)),
      stop_(stop) {}

Result<std::vector<GpuChange>> NvmlCutter::Cut(const plan::Plan& plan) {
  const auto lock = device::ChangeLock::Acquire(state_dir_);
  if (!lock) return Fail(lock.error());
  if (const auto recovered = RecoverUnder(*lock); !recovered) return Fail(recovered.error());
  const auto node = Read();
  if (!node) return Fail(node.error());
  auto changes = device::MatchPlan(plan, plan_name_, *node, std::nullopt);
  if (!changes) return changes;
  Follower follower(stop_);
  const auto applied = device::Apply(nvml_, *lock, state_dir_, plan_name_, *changes, follower);
  if (applied) return changes;
  // Where the way back was blocked, the new layout is there after all.
  const auto now = Read();
  if (!now) return Fail(applied.error());
  const auto left = device::MatchPlan(plan, plan_name_, *now, std::nullopt);
  if (left && device::CountSteps(*left) == 0) return changes;
  if (!follower.gpu()) return Fail(applied.error());
  return Fail(applied.error().code,
              fmt::format("GPU {}: {}", *follower.gpu(), applied.error().message));
}

Result<device::NodeState> NvmlCutter::Read() { return device::ReadNode(nvml_); }

Result<std::optional<device::Outcome>> NvmlCutter::Recover() {
  const auto unfinished = device::ReadUnfinished(state_dir_);
  if (unfinished && !*unfinished) return std::nullopt;
  const auto lock = device::ChangeLock::Acquire(state_dir_);
  if (!lock) return Fail(lock.error());
  return RecoverUnder(*lock);
}

Result<std::optional<device::Outcome>> NvmlCutter::RecoverUnder(const device::ChangeLock& lock) {
  const auto unfinished = device::ReadUnfinished(state_dir_);
  if (!unfinished) return Fail(unfinished.error());
  if (!*unfinished) return std::nullopt;
  Follower follower(stop_);
  const auto outcome = device::Recover(nvml_, lock, state_dir_, follower);
  if (!outcome) return Fail(outcome.error());
  return *outcome;
}

Result<std::vector<GpuChange>> ImaginedCutter::Cut(const plan::Plan& plan) {
  auto changes = device::MatchPlan(plan, "the plan", node_, std::nullopt);
  if (!changes) return changes;
  for (const GpuChange& change : *changes) {
    Imagine(*std::ranges::find(node_.gpus, change.now.uuid, &GpuState::uuid), change.after);
  }
  return changes;
}

device::NodeState ImagineNode(const control::Estate& estate) {
  device::NodeState node;
  for (int i = 0; i < estate.gpus; ++i) {
    GpuState& gpu = node.gpus.emplace_back();
    gpu.index = static_cast<unsigned>(i);
    gpu.uuid = fmt::format("GPU {} of the fleet", i);
    gpu.name = estate.gpu->name;
    gpu.mig_capable = gpu.mig_enabled = gpu.mig_pending = true;
    gpu.model = *estate.gpu;
  }
  return node;
}

Result<void> CheckNode(const control::Estate& estate, const device::NodeState& node) {
  const auto wanted = static_cast<std::size_t>(estate.gpus);
  if (node.gpus.size() < wanted) {
    return Fail(ErrorCode::kFailedPrecondition,
                fmt::format("the fleet has {} GPUs and this node {}", wanted, node.gpus.size()));
  }
  for (std::size_t i = 0; i < wanted; ++i) {
    const GpuState& gpu = node.gpus[i];
    if (gpu.model.name != estate.gpu->name) {
      return Fail(ErrorCode::kFailedPrecondition,
                  fmt::format("the fleet's GPUs are {}, but GPU {} of this node is {} ({})",
                              estate.gpu->name, i, gpu.model.name, gpu.name));
    }
    if (!gpu.instances_known) {
      return Fail(ErrorCode::kPermissionDenied,
                  fmt::format("GPU {}: this user may not see its instances; run as root", i));
    }
  }
  return {};
}

}  // namespace divvy::app
