#include "simulate_control_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "control/arrivals.h"
#include "control/policies.h"
#include "planner/goodput.h"

namespace divvy::app {
namespace {

// Requests that all threads hold at a time, about: 16 bytes each.
constexpr double kMostHeld = 200e6;

double Sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

TenantOutcome OutcomeOf(const control::TenantSeries& series, bool learns) {
  TenantOutcome tenant{Sum(series.offered), Sum(series.in_time), {}};
  if (!learns || tenant.in_time <= 0) return tenant;
  tenant.accuracy = std::inner_product(series.in_time.begin(), series.in_time.end(),
                                       series.accuracy.begin(), 0.0) /
                    tenant.in_time;
  return tenant;
}

ControlOutcome OutcomeOf(const control::Estate& estate, const ControlPlan& plan,
                         const control::ControlledRun& run, std::uint64_t seed) {
  ControlOutcome outcome;
  outcome.seed = seed;
  outcome.goodput = run.goodput / (plan.slots * Seconds(estate.slot));
  outcome.lost = run.goodput > 0 ? run.lost / run.goodput : 0;
  outcome.retrained = run.retrained;
  outcome.reconfigurations = run.reconfigurations;
  outcome.starts = run.starts;
  outcome.log = run.log;
  double offered = 0;
  double in_time = 0;
  double learning = 0;  // Answers in time of tenants that learn,
  double accurate = 0;  // and those of them that were right.
  for (std::size_t m = 0; m < run.tenants.size(); ++m) {
    const TenantOutcome& tenant = outcome.tenants.emplace_back(
        OutcomeOf(run.tenants[m], estate.tenants[m].learning.has_value()));
    offered += tenant.offered;
    in_time += tenant.in_time;
    if (!tenant.accuracy) continue;
    learning += tenant.in_time;
    accurate += tenant.in_time * *tenant.accuracy;
  }
  if (offered > 0) outcome.attainment = in_time / offered;
  if (learning > 0) outcome.accuracy = accurate / learning;
  if (!run.gaps.empty()) {
    outcome.mean_gap = Sum(run.gaps) / static_cast<double>(run.gaps.size());
    outcome.worst_gap = std::ranges::max(run.gaps);
  }
  return outcome;
}

// A policy on a seed: what became of it.
struct Trial {
  std::optional<Error> error = {};  // There is no such policy for this fleet.
  ControlOutcome outcome = {};
  control::ControlledRun run = {};  // Of the first seed alone: they are large.
  bool mig = true;
};

class StudyRunner {
 public:
  StudyRunner(const LoadedFleet& fleet, const control::Estate& estate, const ControlPlan& plan,
              RunProgress& progress)
      : fleet_(fleet),
        estate_(estate),
        plan_(plan),
        attempts_(plan.policies.size() * plan.seeds.size()),
        progress_(progress) {}

  ControlStudy Run() {
    progress_.Begin(static_cast<int>(attempts_.size()));
    progress_.Show("control");
    {
      std::vector<std::jthread> helpers;
      for (std::size_t i = 1; i < Threads(); ++i) helpers.emplace_back([this] { Work(); });
      Work();
    }
    return Collect();
  }

 private:
  // Each thread draws the arrivals of its run anew: that is little beside serving them,
  // and there is nothing to share.
  std::size_t Threads() const {
    double requests = 1;
    for (const planner::ModelDemand& model : fleet_.problem.models) {
      requests += model.rate * plan_.slots * Seconds(estate_.slot);
    }
    const auto fit = static_cast<std::size_t>(std::max(1.0, kMostHeld / requests));
    const std::size_t processors = std::max(1U, std::thread::hardware_concurrency());
    return std::min({fit, processors, attempts_.size()});
  }

  void Work() {
    for (std::size_t i = next_++; i < attempts_.size(); i = next_++) {
      // By seed first, so that a policy that takes long does not stand alone at the end.
      const std::string& policy = plan_.policies[i % plan_.policies.size()];
      const std::size_t seed = i / plan_.policies.size();
      attempts_[i] = Try(policy, seed);
      const std::lock_guard lock(progress_mutex_);
      progress_.Advance(1);
      progress_.Show(fmt::format("{} on seed {}", policy, plan_.seeds[seed]));
    }
  }

  Trial Try(const std::string& name, std::size_t seed) const {
    const auto arrivals =
        control::DrawArrivals(fleet_.sources, plan_.seeds[seed], estate_.slot * plan_.slots);
    const auto by_slot = control::CountBySlot(arrivals, estate_.slot, plan_.slots);
    const control::Solver solver =
        [](const planner::GoodputProblem& problem) -> std::optional<planner::GoodputAnswer> {
      return planner::PlanGoodput(problem);
    };
    const auto policy =
        control::MakePolicy(name, {estate_, fleet_.problem, fleet_.fleet.control, by_slot, solver});
    Trial attempt;
    if (!policy) {
      attempt.error = policy.error();
      return attempt;
    }
    attempt.mig = (*policy)->sharing() == control::Policy::Sharing::kMig;
    control::ControlledRun run = control::RunControlled(
        estate_, **policy, arrivals,
        {.seed = plan_.seeds[seed], .slots = plan_.slots, .route = plan_.route});
    attempt.outcome = OutcomeOf(estate_, plan_, run, plan_.seeds[seed]);
    if (seed == 0) attempt.run = std::move(run);
    return attempt;
  }

  ControlStudy Collect() {
    ControlStudy study;
    for (std::size_t p = 0; p < plan_.policies.size(); ++p) {
      PolicyOutcomes outcomes;
      outcomes.policy = plan_.policies[p];
      std::optional<Error> error;
      for (std::size_t seed = 0; seed < plan_.seeds.size(); ++seed) {
        Trial& attempt = attempts_[seed * plan_.policies.size() + p];
        if (attempt.error && !error) error = std::move(attempt.error);
        if (seed == 0) {
          outcomes.first = std::move(attempt.run);
          outcomes.mig = attempt.mig;
        }
        outcomes.by_seed.push_back(std::move(attempt.outcome));
      }
      if (error) {
        study.rejected.push_back({outcomes.policy, error->message});
      } else {
        study.policies.push_back(std::move(outcomes));
      }
    }
    return study;
  }

  const LoadedFleet& fleet_;
  const control::Estate& estate_;
  const ControlPlan& plan_;
  std::vector<Trial> attempts_;  // By seed, then policy; each written by one thread.
  std::atomic<std::size_t> next_ = 0;
  std::mutex progress_mutex_;
  RunProgress& progress_;  // Under progress_mutex_ while threads run.
};

}  // namespace

ControlStudy RunControlStudy(const LoadedFleet& fleet, const control::Estate& estate,
                             const ControlPlan& plan, RunProgress& progress) {
  return StudyRunner(fleet, estate, plan, progress).Run();
}

}  // namespace divvy::app
