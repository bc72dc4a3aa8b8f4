#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/time.h"
#include "gpu/gpu_model.h"
#include "planner/problem.h"
#include "serving/setup.h"
#include "workload/fleet.h"
#include "workload/learning.h"
#include "workload/training_file.h"

namespace divvy::control {

// What a tenant does with a part of a GPU.
struct Offer {
  double capacity = 0;  // Requests a slot that it answers in time; 0: cannot serve there.
  int processes = 1;
  std::optional<serving::LatencyTable> table = {};  // Of a batch in one process.
  std::vector<double> retraining_slots = {};        // By option, without a restart; 0: not there.
};

// A model that serves, and may learn.
struct EstateTenant {
  std::string name;
  double weight = 1;
  Duration slo{};
  double mean_load = 0;  // Requests a slot, as the fleet says.
  std::optional<workload::Learning> learning = {};
  std::vector<Offer> by_profile;  // By ProfileIndex: on a MIG instance.
  std::vector<Offer> by_tenths;   // 0 to 10 tenths of a GPU, under MPS.
};

// What a controller has to share out, and by which rules. Fixed while it runs.
struct Estate {
  const gpu::GpuModel* gpu;  // Of every GPU.
  int gpus = 1;
  Duration slot = std::chrono::seconds(1);
  int window = 200;    // Slots; new data to learn from comes at the start of each.
  int every = 5;       // Slots between decisions.
  double restart = 0;  // Slots until a fresh instance answers.
  std::vector<EstateTenant> tenants;

  // Worth of an answer of `tenant` by a model of this accuracy. A tenant that does not
  // learn answers as it should.
  [[nodiscard]] double Worth(std::size_t tenant, double accuracy) const {
    return tenants[tenant].weight * (tenants[tenant].learning ? accuracy : 1);
  }
};

// The share of an instance's full-batch throughput that is planned with: beyond it,
// requests that come at random begin to be late.
inline constexpr double kUsable = 0.9;

// How long a fresh instance takes until it answers, in seconds: the change of the
// layout, and what preparing could not hide of starting the model.
[[nodiscard]] Duration RestartTime(const workload::FleetControl& control);

// The estate of a fleet. `problem` has its models in the fleet's order, `training` the
// speeds of those that learn (null for others). Profiles of MIG instances speak for
// MPS shares too: between measured sizes speed is linear in the share of the GPU, below
// the smallest proportional to it. That is kind to shares: no interference.
[[nodiscard]] Estate MakeEstate(const workload::Fleet& fleet, const planner::Problem& problem,
                                int gpus,
                                std::span<const workload::TrainingSpeeds* const> training);

}  // namespace divvy::control
