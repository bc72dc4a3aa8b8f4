#include "planner/deployment.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace divvy::planner {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kRounding = 1e-9;

// What the replicas of one model give, by the profile's figures.
struct Supply {
  std::vector<Option> replicas;
  int instances = 0;
};

Supply SupplyOf(const Problem& problem, const Deployment& deployment, std::size_t model) {
  Supply supply;
  for (const auto& gpu : deployment.gpus) {
    for (const Replica& replica : gpu) {
      if (replica.kind != Replica::Kind::kModel || replica.index != model) continue;
      ++supply.instances;
      const auto option =
          OptionWithin(problem.models[model], *problem.gpu, problem.rule, replica.instance.profile,
                       replica.processes, replica.max_batch);
      if (option) supply.replicas.push_back(*option);
    }
  }
  return supply;
}

double CapacityOf(const Supply& supply) {
  double capacity = 0;
  for (const Option& replica : supply.replicas) capacity += replica.capacity;
  return capacity;
}

// From the largest size down, so that what must be carried and what can carry it
// both only grow. Sizes that never occur need no look: their items are those of
// the next size that does, and at least as much can carry them.
double LoadOf(const ModelDemand& model, Supply supply) {
  std::ranges::sort(supply.replicas, std::ranges::greater(), &Option::max_batch);
  auto next = supply.replicas.begin();
  double load = 0;
  double items = 0;
  double capacity = 0;
  for (int batch = model.batches.largest(); batch > 0; --batch) {
    const double probability = model.batches.probability(batch);
    if (probability <= 0 || model.rate <= 0) continue;
    items += model.rate * probability * batch;
    for (; next != supply.replicas.end() && next->max_batch >= batch; ++next) {
      capacity += next->capacity;
    }
    load = std::max(load, capacity > 0 ? items / capacity : kInfinity);
  }
  return load;
}

plan::PlannedInstance ToPlanned(const Problem& problem, const Replica& replica) {
  plan::PlannedInstance planned{.profile = problem.gpu->profile(replica.instance.profile).name,
                                .start = replica.instance.start};
  switch (replica.kind) {
    case Replica::Kind::kModel:
      planned.runs.push_back({.kind = plan::Assignment::Kind::kModel,
                              .name = problem.models[replica.index].name,
                              .processes = replica.processes,
                              .batch = replica.max_batch});
      break;
    case Replica::Kind::kJob:
      planned.runs.push_back(
          {.kind = plan::Assignment::Kind::kJob, .name = problem.jobs[replica.index].name});
      break;
    case Replica::Kind::kIdle:
      break;
  }
  return planned;
}

}  // namespace

std::vector<ModelFigures> Assess(const Problem& problem, const Deployment& deployment) {
  std::vector<ModelFigures> figures;
  for (std::size_t i = 0; i < problem.models.size(); ++i) {
    const Supply supply = SupplyOf(problem, deployment, i);
    figures.push_back({.demand = ItemsInRequestsOf(problem.models[i], 1),
                       .capacity = CapacityOf(supply),
                       .load = LoadOf(problem.models[i], supply),
                       .instances = supply.instances});
  }
  return figures;
}

bool Carries(const Problem& problem, const Deployment& deployment) {
  for (const ModelFigures& figures : Assess(problem, deployment)) {
    if (figures.load > 1 + kRounding) return false;
  }
  std::vector<int> granted(problem.jobs.size());
  for (const auto& gpu : deployment.gpus) {
    for (const Replica& replica : gpu) {
      if (replica.kind != Replica::Kind::kJob) continue;
      Check(replica.index < problem.jobs.size(), "a replica's job exists");
      granted[replica.index] += problem.jobs[replica.index].instance == replica.instance.profile;
    }
  }
  for (std::size_t i = 0; i < problem.jobs.size(); ++i) {
    if (granted[i] < problem.jobs[i].count) return false;
  }
  return true;
}

plan::Plan ToPlan(const Problem& problem, const Deployment& deployment) {
  plan::Plan plan;
  for (std::size_t i = 0; i < deployment.gpus.size(); ++i) {
    plan::PlannedGpu gpu{.gpu = static_cast<int>(i), .kind = problem.gpu->name};
    for (const Replica& replica : deployment.gpus[i]) {
      gpu.instances.push_back(ToPlanned(problem, replica));
    }
    plan.gpus.push_back(std::move(gpu));
  }
  return plan;
}

}  // namespace divvy::planner
