#include "simulate_plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>
#include <variant>

#include "gpu/catalogue.h"
#include "plan_input.h"
#include "planner/deployment.h"
#include "planning.h"

namespace divvy::app {
namespace {

using Answer = std::variant<plan::Plan, RejectedPlan>;

bool IsFile(std::string_view word) {
  return word == "-" || word.find('/') != std::string_view::npos || word.ends_with(".yaml") ||
         word.ends_with(".yml");
}

class Finder {
 public:
  Finder(const LoadedFleet& fleet, std::vector<LaterPlan> changes, const sim::ChangeCost& cost)
      : fleet_(fleet), changes_(std::move(changes)), cost_(cost) {
    std::stable_sort(changes_.begin(), changes_.end(),
                     [](const LaterPlan& a, const LaterPlan& b) { return a.at < b.at; });
  }

  [[nodiscard]] Result<Candidates> Find(const std::vector<std::string>& words) {
    for (const std::string& word : words) {
      if (auto added = Add(word); !added) return Fail(added.error());
    }
    return std::move(found_);
  }

 private:
  [[nodiscard]] Result<void> Add(const std::string& word) {
    auto candidate = std::make_unique<CandidatePlan>();
    candidate->name = word;
    std::vector<LaterPlan> stages = {{word, Duration(0)}};
    stages.insert(stages.end(), changes_.begin(), changes_.end());
    for (const LaterPlan& stage : stages) {
      auto answer = Resolve(stage.plan);
      if (!answer) return Fail(answer.error());
      if (auto* rejected = std::get_if<RejectedPlan>(&*answer)) return Reject(*rejected, word);
      const plan::Plan& plan = candidate->plans.emplace_back(std::get<plan::Plan>(*answer));
      auto planned = serving::SetupFromPlan(plan, fleet_.served);
      if (!planned) return Reject({.name = stage.plan, .why = planned.error().message}, word);
      NoteMissing(stage.plan, *planned);
      candidate->planned.push_back(std::move(*planned));
      candidate->from.push_back(TimePoint(stage.at));
    }
    std::vector<sim::PlanStage> staged;
    for (std::size_t i = 0; i < candidate->plans.size(); ++i) {
      staged.push_back({&candidate->plans[i], &candidate->planned[i], candidate->from[i]});
    }
    candidate->staged = sim::Stage(staged, cost_);
    found_.plans.push_back(std::move(candidate));
    return {};
  }

  // A later plan that fails takes down the one that leads to it, under its name.
  Result<void> Reject(RejectedPlan rejected, const std::string& word) {
    if (rejected.name != word) rejected.why = rejected.name + ": " + rejected.why;
    rejected.name = word;
    found_.rejected.push_back(std::move(rejected));
    return {};
  }

  [[nodiscard]] Result<Answer> Resolve(const std::string& word) {
    if (IsFile(word)) {
      auto plan = LoadPlan(word);
      if (!plan) return Fail(plan.error());
      if (auto suits = SuitsFleet(word, *plan); !suits) return Fail(suits.error());
      return Answer(std::move(*plan));
    }
    const auto planner = FindPlanner(word);
    if (!planner) {
      return Fail(planner.error().code,
                  planner.error().message + " (a plan file has a / in its name or ends in .yaml)");
    }
    const Attempt attempt = PlanBy(**planner, fleet_.problem);
    if (!attempt.deployment) {
      return Answer(RejectedPlan{.name = word,
                                 .why = attempt.failure.why,
                                 .gpus_needed = attempt.failure.gpus_needed,
                                 .slo_needed = attempt.failure.slo_needed});
    }
    if (!attempt.carries)
      Note(fmt::format("{} does not carry the load: {}", word, attempt.failure.why));
    return Answer(planner::ToPlan(fleet_.problem, *attempt.deployment));
  }

  // Profiles are of the fleet's kind of GPU. Another number of GPUs is worth a note.
  [[nodiscard]] Result<void> SuitsFleet(const std::string& word, const plan::Plan& plan) {
    for (const plan::PlannedGpu& gpu : plan.gpus) {
      const auto kind = gpu::FindGpuModel(gpu.kind);
      if (!kind || *kind == fleet_.problem.gpu) continue;
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format("{}:{}: {} is cut as an {}, but the fleet has {}", word, gpu.line.number,
                      plan::Describe(gpu.gpu), (*kind)->name, fleet_.problem.gpu->name));
    }
    const auto count = static_cast<int>(plan.gpus.size());
    if (fleet_.problem.gpus && *fleet_.problem.gpus != count) {
      Note(fmt::format("{} is for {} GPUs, the fleet has {}", word, count, *fleet_.problem.gpus));
    }
    return {};
  }

  void NoteMissing(const std::string& word, const serving::PlannedSetup& planned) {
    for (std::size_t i = 0; i < planned.setup.models.size(); ++i) {
      const bool served = std::ranges::any_of(planned.setup.replicas, [&](const auto& replica) {
        return static_cast<std::size_t>(replica.model) == i;
      });
      if (!served) Note(fmt::format("{} has no instance for {}", word, planned.setup.models[i]));
    }
  }

  // Once, though several candidates may lead to the same plan.
  void Note(std::string note) {
    if (noted_.insert(note).second) found_.notes.push_back(std::move(note));
  }

  const LoadedFleet& fleet_;
  std::vector<LaterPlan> changes_;
  sim::ChangeCost cost_;
  std::set<std::string> noted_;
  Candidates found_;
};

}  // namespace

std::size_t CandidatePlan::gpus() const {
  std::size_t most = 0;
  for (const plan::Plan& plan : plans) {
    const auto used = std::ranges::count_if(plan.gpus, [](const plan::PlannedGpu& gpu) {
      return !gpu.runs.empty() ||
             std::ranges::any_of(gpu.instances, [](const plan::PlannedInstance& instance) {
               return !instance.runs.empty();
             });
    });
    most = std::max(most, static_cast<std::size_t>(used));
  }
  return most;
}

const plan::PlannedGpu& CandidatePlan::GpuOf(std::size_t replica) const {
  const sim::StagedSetup::Origin& origin = staged.origins[replica];
  return plans[origin.stage].gpus[planned[origin.stage].places[origin.replica].gpu];
}

const plan::PlannedInstance& CandidatePlan::InstanceOf(std::size_t replica) const {
  const sim::StagedSetup::Origin& origin = staged.origins[replica];
  return GpuOf(replica).instances[planned[origin.stage].places[origin.replica].instance];
}

Result<Candidates> FindCandidates(const LoadedFleet& fleet, const std::vector<std::string>& plans,
                                  std::vector<LaterPlan> changes, const sim::ChangeCost& cost) {
  return Finder(fleet, std::move(changes), cost).Find(plans);
}

}  // namespace divvy::app
