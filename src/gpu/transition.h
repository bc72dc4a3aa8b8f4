#pragma once

#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "gpu/gpu_model.h"
#include "gpu/mig_layout.h"

namespace divvy::gpu {

// An instance that is there now. A busy one runs somebody's work: it may be
// neither destroyed nor moved.
struct PresentInstance {
  MigInstance instance;
  bool busy = false;
};

// An instance that shall be there afterwards; without a start, anywhere.
struct WantedInstance {
  ProfileIndex profile;
  std::optional<int> start;
};

struct TransitionStep {
  enum class Kind { kDestroy, kCreate };
  Kind kind;
  MigInstance instance;

  friend bool operator==(const TransitionStep&, const TransitionStep&) = default;
};

// A way from the present instances to the wanted ones.
//
// Its steps touch no busy instance, pass through legal layouts only, and destroy
// as few idle instances as any way could. What can be created in free space is
// created before anything is destroyed, and what must be destroyed is destroyed
// as late as possible, so a failure early on costs nobody anything. No instance is
// touched twice.
struct Transition {
  std::vector<MigInstance> target;    // All instances afterwards, by start.
  std::vector<int> starts;            // Where each wanted instance ends up, in their order;
                                      // alike ones without a start by ascending start.
  std::vector<TransitionStep> steps;  // Empty when everything wanted is there already.
  int destroyed = 0;                  // Idle instances that go.
};

// There is no way to exactly what was wanted.
struct Unreachable {
  std::string why;                      // One sentence, with the instances in the way.
  std::vector<WantedInstance> missing;  // Wanted, but not part of `nearest`.
  // The reachable layout that grants most of what was wanted: busy instances
  // stay, wanted ones or not; of the wanted ones it has the most compute slices,
  // then the most instances, then the fewest destroyed; then ties as in
  // PlanTransition. Nothing else is in it: idle instances that are not wanted go,
  // as they would have. Its `starts` hold -1 for those missing.
  Transition nearest;
};

using TransitionAnswer = std::variant<Transition, Unreachable>;

// Finds the way with the least disruption. Exact: no other way destroys fewer
// idle instances; among those that destroy equally few, the one that leaves the
// least fragmented free space by OpenSpace::Score, then the lexicographically
// smallest target. The same question always gets the same answer.
// REQUIRES: `present` is a legal layout of `model`, and the profiles are its own.
[[nodiscard]] TransitionAnswer PlanTransition(const GpuModel& model,
                                              std::span<const PresentInstance> present,
                                              std::span<const WantedInstance> wanted);

// An instance that must be drained and created again elsewhere.
struct Move {
  ProfileIndex profile;
  int from;
  int to;

  friend bool operator==(const Move&, const Move&) = default;
};

// Room for one more instance, made by moving others.
struct Defragmentation {
  std::vector<Move> moves;  // As few as any way needs; empty when there is room.
  int start;                // Where the new instance will fit.
  Transition transition;    // The moves and the creation as steps; its `starts` follow
                            // `present`, with that of the new instance at the end.
};

// Finds the fewest moves that let one `wanted` instance be created while all
// present ones continue to exist somewhere. Busy instances do not move; pass
// busy = false for those that may be drained. Ties as in PlanTransition. When
// there is no such way, `missing` is the wanted instance and `nearest` the present
// layout, untouched: making room is not worth losing an instance.
// REQUIRES: `present` is a legal layout of `model`.
[[nodiscard]] std::variant<Defragmentation, Unreachable> PlanDefragmentation(
    const GpuModel& model, std::span<const PresentInstance> present, ProfileIndex wanted);

}  // namespace divvy::gpu
