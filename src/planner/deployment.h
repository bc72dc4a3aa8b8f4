#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "gpu/mig_layout.h"
#include "plan/plan.h"
#include "planner/problem.h"

namespace divvy::planner {

// An instance with what runs on it.
struct Replica {
  enum class Kind { kModel, kJob, kIdle };
  gpu::MigInstance instance;
  Kind kind = Kind::kIdle;
  std::size_t index = 0;  // Into Problem::models or ::jobs; 0 for kIdle.
  int processes = 1;
  int max_batch = 1;
  std::string why = {};  // For a person, one line: why this instance is there.
};

// What a planner decided: instances on each GPU, in order of start.
struct Deployment {
  std::vector<std::vector<Replica>> gpus;
};

// Why there is no deployment, and what would help.
struct Infeasible {
  std::string why;                          // Names the model and the figures.
  std::optional<std::size_t> model = {};    // The one that fails, if it is one.
  std::optional<int> gpus_needed = {};      // As many GPUs would do.
  std::optional<Duration> slo_needed = {};  // Or this SLO of that model.
};

// What a planner answers. `proof` says how good it is, for a person: "optimal:
// no plan uses fewer GPUs (CBC, 0.02 s)", or empty for a heuristic.
struct Planned {
  Deployment deployment;
  std::string proof = {};
};
using Outcome = std::variant<Planned, Infeasible>;

// One model under a deployment, as the rule sees it.
struct ModelFigures {
  double demand = 0;    // Items a second.
  double capacity = 0;  // Items a second, of replicas with full batches within the rule.
  double load = 0;      // The share of capacity that is used: the highest, over sizes b, of
                        // (items in requests of at least b) / (capacity of replicas that take b).
                        // Infinite when some request fits nowhere. Below 1 is carried.
  int instances = 0;
};

// Figures of each model, computed from the profile, not from what a planner says.
[[nodiscard]] std::vector<ModelFigures> Assess(const Problem& problem,
                                               const Deployment& deployment);

// True when every model's load is at most 1 (to 1e-9) and every job has its instances.
[[nodiscard]] bool Carries(const Problem& problem, const Deployment& deployment);

// The deployment as a plan for GPUs 0, 1, .. of one node. Idle instances have no
// `runs`. plan::Validate finds nothing wrong with it.
[[nodiscard]] plan::Plan ToPlan(const Problem& problem, const Deployment& deployment);

}  // namespace divvy::planner
