#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "gpu/gpu_model.h"
#include "gpu/mig_layout.h"

// Which instances serve whom, and where and when models are retrained, slot by slot
// over a window, so that most requests are answered in time by accurate models.
// docs/design/goodput.md tells how it is solved and how good the answer is.

namespace divvy::planner {

// A way to retrain a model in the window.
struct Retraining {
  std::string name;
  std::vector<int> slots;     // That it takes, by profile of the GpuModel; 0: not there.
  std::vector<double> worth;  // Of an answer once it is done, by slot.
};

// A model that serves and may be retrained. Time is cut into slots of equal length.
struct Tenant {
  std::string name;
  std::vector<double> load;             // Requests that arrive, by slot.
  std::vector<double> worth;            // Of an answer in time by the present model, by slot:
                                        // its accuracy, times what the tenant weighs.
  std::vector<double> capacity;         // Requests that an instance answers in time in one slot,
                                        // by profile of the GpuModel; 0: cannot serve there, as
                                        // on all that are not of the base set.
  double restart = 0;                   // Slots from a start to the first answer.
  std::vector<Retraining> retrainings;  // At most one of them is done; empty: none may be.
  double tail = 0;                      // Requests after the last slot that profit from the model
                                        // which is in force by then.
};

// What an instance is used for.
struct Work {
  enum class Kind { kServe, kRetrain };
  Kind kind = Kind::kServe;
  std::size_t tenant = 0;
  std::size_t retraining = 0;  // Into Tenant::retrainings, for kRetrain.

  friend bool operator==(const Work&, const Work&) = default;
};

// An instance at work before the first slot. A retraining goes on where it is to its
// end, which lies within the window.
struct Running {
  gpu::MigInstance place;
  Work work;
  double left = 0;  // Slots until it answers; whole ones until the retraining is done.

  friend bool operator==(const Running&, const Running&) = default;
};

struct GoodputProblem {
  const gpu::GpuModel* gpu;                   // Of every GPU; outlives the problem.
  int slots = 0;                              // At least 1.
  std::vector<Tenant> tenants;                // Their vectors fit `slots` and the profiles.
  std::vector<std::vector<Running>> present;  // By GPU; at least one GPU.
  std::optional<int> retrain_by = {};         // Retrainings that begin end by this slot; nothing:
                                              // within the window.

  bool fresh = false;  // What begins with slot 0 answers at once.

  [[nodiscard]] int retrain_limit() const { return std::min(slots, retrain_by.value_or(slots)); }
};

// One use of one instance, from slot `begin` to before slot `end`.
struct Stretch {
  gpu::MigInstance place;
  int begin = 0;
  int end = 0;
  Work work;

  friend bool operator==(const Stretch&, const Stretch&) = default;
};

// Stretches by GPU, in order of begin and place.
struct GoodputSchedule {
  std::vector<std::vector<Stretch>> gpus;
};

struct GoodputAnswer {
  GoodputSchedule schedule;
  double value = 0;  // Of the schedule, by Value().
  double stay = 0;   // Of changing nothing, by Value(StayPut()).
  double bound = 0;  // No schedule has more.

  // How far the answer may be from the best, as a share of the bound.
  [[nodiscard]] double gap() const { return bound <= 0 ? 0 : (bound - value) / bound; }
};

// Goodput of the window: over slots and tenants, requests answered in time (no more
// than arrive, no more than the instances can) times the worth of the model that is in
// force; and the tails. An instance that serves answers nothing for `restart` slots
// after its stretch began (not a whole number, perhaps), unless the stretch goes on
// with what was running or the start is fresh. A retraining counts from its end on, and only where
// it is worth more than what is there.
[[nodiscard]] double Value(const GoodputProblem& problem, const GoodputSchedule& schedule);

// Why `schedule` cannot be carried out, or nothing: stretches outside the window, on
// places that the GPU lacks, two on one memory slice, an illegal layout, a tenant where
// it cannot run, a retraining that is shorter than it takes, ends too late or is the
// second of its tenant, a running one that is not left to end.
[[nodiscard]] std::optional<std::string> FindFault(const GoodputProblem& problem,
                                                   const GoodputSchedule& schedule);

// What runs goes on to the end of the window, and nothing is begun.
[[nodiscard]] GoodputSchedule StayPut(const GoodputProblem& problem);

struct GoodputOptions {
  int rounds = 1;        // Over all GPUs and retrainings; more finds a little more.
  int bound_steps = 60;  // Of the search for a bound; 0: only a coarse one.
};

// A schedule of high goodput, never worse than StayPut(), and a proven bound.
// Deterministic. A hundredth of a second to a second, from one GPU and a few tenants to
// eight and eight, over 200 slots.
[[nodiscard]] GoodputAnswer PlanGoodput(const GoodputProblem& problem,
                                        const GoodputOptions& options = {});

}  // namespace divvy::planner
