#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/plan.h"
#include "serving/setup.h"
#include "workload/profile.h"

namespace divvy::serving {

// A model that a plan's assignments name, with its measurements.
struct ServedModel {
  std::string name;
  const workload::ModelProfile* profile;  // Never null.
};

// What a replica of a Setup is on the GPUs.
struct ReplicaPlace {
  std::size_t gpu = 0;       // Position in plan.gpus.
  std::size_t instance = 0;  // Position in its instances.
  std::string profile = {};  // "2g.20gb".
};

struct PlannedSetup {
  Setup setup;
  std::vector<ReplicaPlace> places;  // By ReplicaId.
  std::vector<double> spread;        // By table: sigma of the logarithm of a batch's time, from
                                     // p95 / mean where it was measured, else 0.
};

// The replicas of a plan: one for each model assigned to an instance, its latencies
// from the profile for that instance and number of processes, its largest batch as
// the plan says (without one, the largest measured). ModelIds follow `models`;
// jobs and instances without models serve nothing.
//
// kInvalidArgument, with the plan's line where there is one, when an instance runs a
// model that `models` lacks, when a model was not measured there, so far or with so
// many processes, or takes more memory than there is, when several models share an instance, and
// for whole GPUs, since a profile of a model alone on an instance does not speak for those.
// REQUIRES: plan::Validate finds nothing wrong.
[[nodiscard]] Result<PlannedSetup> SetupFromPlan(const plan::Plan& plan,
                                                 std::span<const ServedModel> models);

}  // namespace divvy::serving
