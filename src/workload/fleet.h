#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "workload/learning.h"
#include "workload/load.h"

// fleet.yaml: GPUs, models, training jobs, policy, control. docs/formats/fleet.md
// describes it for its authors.

namespace divvy::workload {

// A file that a fleet names, relative to the fleet's own folder.
struct FileRef {
  std::string path;
  int line = 0;  // Of the fleet file.
};

struct FleetGpus {
  std::string kind;          // The catalogue's name, e.g. "A100-80GB".
  std::optional<int> count;  // Nothing: `auto`, as many as it takes.
  int line = 0;
};

// Load from a trace file instead of a recipe.
struct TraceLoad {
  FileRef file;
  int tokens_per_item = 128;
};

// Batch sizes taken from a trace file; the rest of the recipe stands.
struct RecipeLoad {
  Load load;
  std::optional<FileRef> batches_from = {};
};

// A model that is retrained while it serves.
struct FleetLearning {
  Learning learning;
  FileRef speed;            // Training speeds by size of partition.
  std::string speed_model;  // Its name there; that of the model unless said otherwise.
  int line = 0;
};

// A tensor that a model takes or gives, without its batch dimension.
struct FleetTensor {
  std::string name;
  std::string type = "FP32";  // As on the wire.
  std::vector<int> dims;      // -1: any.
};

// How `divvy serve` runs a model.
struct FleetServe {
  std::string engine = "synthetic";  // "torch", or the path of an engine's library.
  std::optional<FileRef> artifact = {};
  std::vector<FleetTensor> inputs = {};  // None: the engine knows, or one of a single number.
  std::vector<FleetTensor> outputs = {};
  std::string url = {};  // Of a server that runs it in our workers' place.
  int line = 0;
};

struct FleetModel {
  std::string name;
  FileRef profile;
  std::string profile_model;  // Its name in the profile file; `name` unless said otherwise.
  Duration slo = {};
  std::variant<RecipeLoad, TraceLoad> load;
  double weight = 1;  // Of its goodput against other models'.
  int priority = 0;   // 0 is served first; up to 7.
  std::optional<FleetLearning> learning = {};
  FleetServe serve = {};
  int line = 0;
};

// A training job that wants instances of its own.
struct FleetJob {
  std::string name;
  std::string instance;  // A MIG profile of the kind ("3g.40gb") or a size ("3g").
  int count = 1;
  int line = 0;
};

struct FleetPolicy {
  std::string planner = "exact";  // The names are the planner's and the router's to judge;
  int planner_line = 0;           // these lines are for their complaints.
  std::string route = "divvy";
  int route_line = 0;
  double safety = 0.9;          // Share of the SLO that a plan may use.
  double batching_delay = 1.0;  // Wait for a batch to form, in batch latencies.
  std::uint64_t seed = 1;
};

// What it takes to bring a model up on an instance that was not there before.
struct RestartCost {
  Duration change = std::chrono::milliseconds(300);  // To destroy and create the instance.
  Duration start = std::chrono::milliseconds(5700);  // To start the model on it.
  double prepared = 0.83;  // Share of `start` that is hidden when process, context and
                           // weights are made ready before.
};

// How a fleet is cut anew while it serves and learns. Times are whole numbers of slots.
struct FleetControl {
  std::string policy = "migrator";  // The names are the controller's and the forecast's to judge;
  int policy_line = 0;              // these lines are for their complaints.
  std::string forecast = "best";
  int forecast_line = 0;
  Duration slot = std::chrono::seconds(1);
  Duration window = std::chrono::seconds(200);  // New labelled data comes at its start.
  Duration every = std::chrono::seconds(5);     // Between decisions.
  Duration season{0};                           // Of the load; 0: none known.
  double quantile = 0.8;                        // Of the forecast that plans are made for.
  RestartCost restart;
  double hysteresis = 0.02;  // Share of goodput that a change must promise beyond staying.
};

struct Fleet {
  FleetGpus gpus;
  std::vector<FleetModel> models;  // At least one; names differ.
  std::vector<FleetJob> jobs;
  FleetPolicy policy;
  FleetControl control;
};

// Reads a fleet. Checks form and ranges, that names differ, that the kind is known
// and that it has the instances of the jobs; files that the fleet names are the
// caller's to open. Any bytes give a value or
// kInvalidArgument with "FILE:LINE: what is wrong, and what would be right".
[[nodiscard]] Result<Fleet> ParseFleet(std::string_view text, std::string_view file_name);

}  // namespace divvy::workload
