#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "planner/problem.h"
#include "serving/from_plan.h"
#include "sim/simulation.h"
#include "workload/fleet.h"
#include "workload/profile_file.h"
#include "workload/trace_file.h"
#include "workload/training_file.h"

namespace divvy::app {

// A fleet file with everything it names, in the forms that planner, dispatcher and
// simulator take. Parts point into one another, so it stays where it was made.
struct LoadedFleet {
  LoadedFleet() = default;
  LoadedFleet(const LoadedFleet&) = delete;
  LoadedFleet& operator=(const LoadedFleet&) = delete;

  workload::Fleet fleet;
  std::deque<workload::ProfileFile> profile_files;
  std::deque<workload::Trace> traces;
  std::deque<workload::TrainingFile> training_files;
  planner::Problem problem;  // Rates are means, of a trace or a shape; batches as they occur.
  std::vector<serving::ServedModel> served;               // By model, as fleet.models.
  std::vector<sim::Source> sources;                       // By model.
  std::vector<const workload::TrainingSpeeds*> training;  // By model; null if it does not learn.
  std::vector<std::string> notes;  // What a person should know: where profiles come from,
                                   // another kind of GPU than they were measured on,
                                   // how many findings a profile file has.
};

// Reads a fleet and the files it names, relative to its folder ("-": standard
// input, relative to the present folder). Errors name file and line: those of the
// parsers, a model that its profile or training file lacks (with the nearest name), a
// batch distribution beyond every measured batch, a model whose training was measured
// on no instance of the kind, an unknown MIG profile of a job.
[[nodiscard]] Result<std::unique_ptr<LoadedFleet>> LoadFleet(const std::string& path);

}  // namespace divvy::app
