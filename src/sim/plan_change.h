#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/time.h"
#include "plan/plan.h"
#include "serving/from_plan.h"
#include "sim/simulation.h"

namespace divvy::sim {

// What it costs to put one MIG instance in the place of another. The defaults lie
// within what has been published for the A100: 120 to 167 ms to destroy an
// instance, 52 to 132 ms to create one, 4 to 6 s to start a model's server on it.
struct ChangeCost {
  Duration destroy = std::chrono::milliseconds(150);
  Duration create = std::chrono::milliseconds(130);
  Duration start = std::chrono::seconds(5);

  [[nodiscard]] Duration total() const { return destroy + create + start; }
};

// A plan from the time on at which the GPUs turn to it.
struct PlanStage {
  const plan::Plan* plan;                // Never null.
  const serving::PlannedSetup* planned;  // Of that plan; never null.
  TimePoint from{};                      // Of the first stage: not looked at.
};

// Plans that follow each other as one setup, with the switches that lead from one
// to the next.
struct StagedSetup {
  // What a replica is on the GPUs.
  struct Origin {
    std::size_t stage = 0;    // The stage that brought it.
    std::size_t replica = 0;  // Its ReplicaId in that stage's setup.
    bool in_last = false;     // It is still there at the end.
  };

  serving::Setup setup;          // Replicas of later stages are down at first.
  std::vector<double> spread;    // By table.
  std::vector<Switch> switches;  // By time.
  std::vector<Origin> origins;   // By ReplicaId.
};

// At the time of each later stage, replicas that are the same in the new plan (GPU,
// profile, start, model, processes and largest batch) go on as if nothing had
// happened. The others take no more requests, and what is new takes them when the
// cost has passed: as if every instance had to be destroyed and created, all at
// once, even where a model alone changes on one. An instance whose start the new
// plan leaves open counts as the same wherever it is, since `divvy apply` leaves
// it there.
//
// REQUIRES: at least one stage, in order of time, with the same models.
[[nodiscard]] StagedSetup Stage(std::span<const PlanStage> stages, const ChangeCost& cost);

}  // namespace divvy::sim
