#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/node.h"
#include "gpu/transition.h"

namespace divvy::device {

// How one GPU instance shall be. Profiles are named by NVML's id, which is what
// a journal may hold: positions in a GpuModel can differ from run to run.
struct InstanceTarget {
  int profile_id;
  std::string profile;  // Its name, for people.
  int start;            // In memory slices, as is the size.
  int size;
  int compute_slices;
  // Its compute instances, by start; nothing said means one that fills it, or
  // whatever is there already.
  std::optional<std::vector<ComputeSpec>> compute;

  friend bool operator==(const InstanceTarget&, const InstanceTarget&) = default;
};

// How one GPU shall be.
struct GpuTarget {
  std::string uuid;
  bool mig;
  std::vector<InstanceTarget> instances;  // By start; none without MIG.

  friend bool operator==(const GpuTarget&, const GpuTarget&) = default;
};

// One change to a GPU that NVML makes in one go or not at all, but for the two
// calls of an instance (GPU instance and compute instance), which StepsTowards
// puts right when only one of them happened.
struct Step {
  enum class Kind {
    kEnableMig,
    kDisableMig,
    kDestroy,   // A GPU instance and its compute instances.
    kCreate,    // A GPU instance and its compute instances.
    kComplete,  // The compute instances of a GPU instance that stays.
  };
  Kind kind;
  std::string gpu_uuid;
  unsigned gpu_index;
  InstanceTarget instance{};     // For the last three.
  unsigned gpu_instance_id = 0;  // For kDestroy and kComplete.
  std::string effect;            // For people: what it does to whom.
};

// "destroy 2g.35gb at 0".
[[nodiscard]] std::string Describe(const Step& step);

// The target that leaves a GPU as it is.
[[nodiscard]] GpuTarget AsItIs(const GpuState& now);

// The target's instance of this profile at this start, or null.
[[nodiscard]] const InstanceTarget* FindTarget(const GpuTarget& target, int start, int profile_id);

// True when making the compute instances those of `target` would destroy one.
[[nodiscard]] bool LosesCompute(const std::vector<ComputeInstanceState>& have,
                                const InstanceTarget& target);

// True when nothing needs to be done.
[[nodiscard]] bool Matches(const GpuState& now, const GpuTarget& target);

// The GPU's instances as gpu/transition takes them. kUnavailable when NVML
// reports a layout that cannot be, kPermissionDenied when it will not list them.
[[nodiscard]] Result<std::vector<gpu::PresentInstance>> PresentOf(const GpuState& now);

// The steps from `now` to `target`, in an order that keeps what runs running:
// busy instances are never touched, and creation comes before destruction where
// there is room. Instances that the target does not name are destroyed.
//   kFailedPrecondition  a process is in the way; the message names it;
//   kInvalidArgument     the target is not legal on this GPU.
[[nodiscard]] Result<std::vector<Step>> StepsTowards(const GpuState& now, const GpuTarget& target);

}  // namespace divvy::device
