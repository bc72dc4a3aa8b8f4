#include "planner/growth.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "planner/exact_milp.h"

namespace divvy::planner {
namespace {

constexpr int kMostGpus = 4096;

// A model whose requests still fit none of its instances on this many GPUs does not
// get other sizes on more of them.
constexpr int kEnoughForEverySize = 64;

std::size_t WorstOff(const std::vector<ModelFigures>& figures) {
  const auto worst = std::ranges::max_element(figures, {}, &ModelFigures::load);
  return static_cast<std::size_t>(worst - figures.begin());
}

// Why no number of GPUs will do; nothing as long as more may help.
std::optional<Infeasible> Hopeless(const Problem& problem, const Outcome& outcome) {
  const auto* planned = std::get_if<Planned>(&outcome);
  const bool last = *problem.gpus >= kMostGpus;
  if (planned == nullptr) {
    return last ? std::optional(std::get<Infeasible>(outcome)) : std::nullopt;
  }
  const auto figures = Assess(problem, planned->deployment);
  if (figures.empty()) return std::nullopt;
  const std::size_t worst = WorstOff(figures);
  const bool fits_nowhere = std::isinf(figures[worst].load);
  if (!last && !(fits_nowhere && *problem.gpus >= kEnoughForEverySize)) return std::nullopt;
  return Infeasible{
      .why = fmt::format("{} {} under this policy, even on {} GPUs", problem.models[worst].name,
                         fits_nowhere ? "has requests that fit none of its instances in time"
                                      : "has more load than its instances carry",
                         *problem.gpus),
      .model = worst};
}

}  // namespace

Outcome WithEnoughGpus(const Problem& problem, const std::function<Outcome(const Problem&)>& plan) {
  if (problem.gpus) return plan(problem);
  // A request that fits no instance at all fits no fleet: say so, with the SLO.
  auto sides = ModelSides(problem);
  if (auto* infeasible = std::get_if<Infeasible>(&sides)) return std::move(*infeasible);

  Problem sized = problem;
  const auto attempt = [&](int gpus) {
    sized.gpus = gpus;
    return plan(sized);
  };
  const auto carried = [&](const Outcome& outcome) {
    const auto* planned = std::get_if<Planned>(&outcome);
    return planned != nullptr && Carries(sized, planned->deployment);
  };
  int enough = 1;
  Outcome best = attempt(enough);
  while (!carried(best)) {
    if (auto hopeless = Hopeless(sized, best)) return std::move(*hopeless);
    enough *= 2;
    best = attempt(enough);
  }
  int too_few = enough / 2;
  while (enough - too_few > 1) {
    const int middle = too_few + (enough - too_few) / 2;
    Outcome outcome = attempt(middle);
    if (carried(outcome)) {
      enough = middle;
      best = std::move(outcome);
    } else {
      too_few = middle;
    }
  }
  return best;
}

Outcome FitInto(const Problem& problem, Deployment deployment, std::string_view who) {
  if (problem.gpus) {
    const auto there = static_cast<std::size_t>(std::max(0, *problem.gpus));
    if (deployment.gpus.size() > there) {
      return Infeasible{.why = fmt::format("{} needs {} GPUs, and there are {}", who,
                                           deployment.gpus.size(), there),
                        .gpus_needed = static_cast<int>(deployment.gpus.size())};
    }
    deployment.gpus.resize(there);
  }
  for (auto& gpu : deployment.gpus) std::ranges::sort(gpu, {}, &Replica::instance);
  return Planned{std::move(deployment)};
}

}  // namespace divvy::planner
