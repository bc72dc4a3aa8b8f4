#include "planning.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/spelling.h"
#include "base/text_safety.h"
#include "table.h"

namespace divvy::app {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Why a deployment does not carry the problem: its fullest model, or else jobs.
planner::Infeasible ShortfallOf(const planner::Problem& problem, const Attempt& attempt) {
  const auto fullest = std::ranges::max_element(attempt.figures, {}, &planner::ModelFigures::load);
  if (fullest == attempt.figures.end() || fullest->load <= 1) {
    return {.why = fmt::format("{} leaves jobs without their instances", attempt.policy)};
  }
  const auto index = static_cast<std::size_t>(fullest - attempt.figures.begin());
  const std::string& name = problem.models[index].name;
  if (fullest->instances == 0) {
    return {.why = fmt::format("{}: {} gives it no instance", name, attempt.policy),
            .model = index};
  }
  if (fullest->load == kInfinity) {
    return {.why = fmt::format("{}: requests of {} items are in time on none of the instances "
                               "that {} gives it",
                               name, problem.models[index].batches.largest(), attempt.policy),
            .model = index};
  }
  return {.why = fmt::format("{}: {} items/s arrive and the instances that {} gives it are "
                             "full at {:.3g} of that",
                             name, FourDigits(fullest->demand), attempt.policy, 1 / fullest->load),
          .model = index};
}

}  // namespace

int Attempt::gpus() const {
  if (!deployment) return 0;
  return static_cast<int>(std::ranges::count_if(
      deployment->gpus, [](const auto& instances) { return !instances.empty(); }));
}

Result<const planner::NamedPlanner*> FindPlanner(std::string_view name) {
  std::vector<std::string_view> names;
  for (const planner::NamedPlanner& planner : planner::Planners()) {
    if (planner.name == name) return &planner;
    names.push_back(planner.name);
  }
  std::string hint = DidYouMean(name, names);
  if (hint.empty()) hint = "; it is one of " + OneOf(names);
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("no planner is called {}{}", Quoted(name), hint));
}

Attempt PlanBy(const planner::NamedPlanner& planner, const planner::Problem& problem) {
  Attempt attempt{.policy = planner.name, .fullest = kInfinity};
  planner::Outcome outcome = planner.plan(problem);
  if (auto* failure = std::get_if<planner::Infeasible>(&outcome)) {
    attempt.failure = std::move(*failure);
    return attempt;
  }
  auto& planned = std::get<planner::Planned>(outcome);
  attempt.deployment = std::move(planned.deployment);
  attempt.proof = std::move(planned.proof);
  attempt.figures = planner::Assess(problem, *attempt.deployment);
  attempt.fullest = 0;
  for (const planner::ModelFigures& figures : attempt.figures) {
    attempt.fullest = std::max(attempt.fullest, figures.load);
  }
  attempt.carries = planner::Carries(problem, *attempt.deployment);
  if (!attempt.carries) attempt.failure = ShortfallOf(problem, attempt);
  return attempt;
}

std::optional<int> GpusNeeded(const planner::NamedPlanner& planner,
                              const planner::Problem& problem) {
  planner::Problem open = problem;
  open.gpus.reset();
  const Attempt attempt = PlanBy(planner, open);
  if (!attempt.carries) return std::nullopt;
  return attempt.gpus();
}

}  // namespace divvy::app
