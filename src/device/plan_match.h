#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/change.h"
#include "device/node.h"
#include "plan/plan.h"

namespace divvy::device {

// One GPU of a plan, matched with the node's.
struct GpuChange {
  GpuState now;
  GpuTarget after;
  std::vector<Step> steps;  // Empty when the GPU is as planned already.
};

// All their steps.
[[nodiscard]] int CountSteps(const std::vector<GpuChange>& changes);

// Finds the plan's GPUs on the node and the way from what is there to what is
// wanted, with the least disruption. Checks each GPU against what NVML says it
// can be cut into. `only` limits it to one GPU of the plan, by index or UUID;
// `file_name` is for messages.
//   kInvalidArgument     the plan does not fit this node (another kind of GPU, no
//                        such GPU, an illegal layout); "FILE:LINE: ...";
//   kFailedPrecondition  busy instances or a pending mode are in the way; the
//                        message says which, and what could be had instead.
[[nodiscard]] Result<std::vector<GpuChange>> MatchPlan(const plan::Plan& plan,
                                                       std::string_view file_name,
                                                       const NodeState& node,
                                                       const std::optional<std::string>& only);

// The same for targets that say everything, e.g. of an earlier change.
[[nodiscard]] Result<std::vector<GpuChange>> MatchTargets(const std::vector<GpuTarget>& targets,
                                                          const NodeState& node);

}  // namespace divvy::device
