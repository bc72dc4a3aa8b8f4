#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "planner/baselines.h"
#include "planner/exact_milp.h"
#include "planner/growth.h"
#include "planner/packing.h"
#include "planner/replicas.h"

namespace divvy::planner {
namespace {

using gpu::ProfileIndex;

// Rates that are whole multiples of a throughput should not need one more
// instance because of how the division rounds.
constexpr double kRounding = 1e-9;

// What one instance shall run.
struct Wanted {
  ProfileIndex profile;
  std::optional<std::size_t> job;
  std::size_t model = 0;
  Option option = {};
};

int SlicesOf(const Problem& problem, const Option& option) {
  return problem.gpu->profile(option.profile).compute_slices;
}

// The smallest instance that carries `items`, the fastest of that size; null if none does.
const Option* SmallestFor(const Problem& problem, const std::vector<Option>& options,
                          double items) {
  const Option* smallest = nullptr;
  for (const Option& option : options) {
    if (option.capacity < items * (1 - kRounding)) continue;
    const auto rank = [&](const Option& o) { return std::pair(SlicesOf(problem, o), -o.capacity); };
    if (smallest == nullptr || rank(option) < rank(*smallest)) smallest = &option;
  }
  return smallest;
}

// Options for one model; all of them take its largest request.
std::vector<Option> Choose(const Problem& problem, const std::vector<Option>& options,
                           double items) {
  const Option& best = *std::ranges::max_element(options, {}, [&](const Option& option) {
    return option.capacity / SlicesOf(problem, option);
  });
  const double copies = std::floor(items / best.capacity + kRounding);
  std::vector<Option> chosen(static_cast<std::size_t>(copies), best);
  const double rest = items - copies * best.capacity;
  if (rest <= items * kRounding) return chosen;
  const Option* last = SmallestFor(problem, options, rest);
  chosen.push_back(last == nullptr ? best : *last);
  return chosen;
}

}  // namespace

Outcome PlanParvaGpu(const Problem& problem) {
  auto sides = ModelSides(problem);
  if (auto* infeasible = std::get_if<Infeasible>(&sides)) return std::move(*infeasible);
  std::vector<Wanted> wanted;
  for (std::size_t j = 0; j < problem.jobs.size(); ++j) {
    for (int i = 0; i < problem.jobs[j].count; ++i) {
      wanted.push_back({.profile = problem.jobs[j].instance, .job = j});
    }
  }
  for (const ModelSide& side : std::get<std::vector<ModelSide>>(sides)) {
    const ModelDemand& model = problem.models[side.model];
    std::vector<Option> options = side.options;
    std::erase_if(options, [&](const Option& o) { return o.max_batch < model.batches.largest(); });
    for (const Option& option : Choose(problem, options, ItemsInRequestsOf(model, 1))) {
      wanted.push_back(
          {.profile = option.profile, .job = {}, .model = side.model, .option = option});
    }
  }

  std::vector<ProfileIndex> profiles;
  for (const Wanted& w : wanted) profiles.push_back(w.profile);
  const auto packed = Pack(*problem.gpu, static_cast<int>(wanted.size()), profiles);
  Deployment deployment;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto gpu = static_cast<std::size_t>(packed[i]->gpu);
    if (deployment.gpus.size() <= gpu) deployment.gpus.resize(gpu + 1);
    deployment.gpus[gpu].push_back(
        wanted[i].job
            ? JobReplica(problem, packed[i]->instance, *wanted[i].job)
            : ModelReplica(problem, packed[i]->instance, wanted[i].model, wanted[i].option));
  }
  return FitInto(problem, std::move(deployment), "ParvaGPU's greedy");
}

}  // namespace divvy::planner
