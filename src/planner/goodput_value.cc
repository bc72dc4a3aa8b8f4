#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "planner/goodput.h"
#include "planner/goodput_tally.h"

namespace divvy::planner {
namespace {

using Fault = std::optional<std::string>;

std::string Describe(const GoodputProblem& problem, std::size_t gpu, const Stretch& stretch) {
  return fmt::format("GPU {}, {}, slots {} to {}", gpu, gpu::Describe(*problem.gpu, stretch.place),
                     stretch.begin, stretch.end);
}

bool SameRun(const Running& running, const Stretch& stretch) {
  return stretch.begin == 0 && stretch.place == running.place && stretch.work == running.work;
}

// Of one stretch by itself.
Fault FaultOf(const GoodputProblem& problem, std::size_t gpu, const Stretch& stretch) {
  const auto profile = static_cast<std::size_t>(stretch.place.profile);
  if (profile >= problem.gpu->profiles.size()) {
    return fmt::format("GPU {}, slots {} to {}: no such profile", gpu, stretch.begin, stretch.end);
  }
  const std::string where = Describe(problem, gpu, stretch);
  if (stretch.begin < 0 || stretch.end > problem.slots || stretch.begin >= stretch.end) {
    return where + ": outside the window";
  }
  if (stretch.work.tenant >= problem.tenants.size()) return where + ": no such tenant";
  const Tenant& tenant = problem.tenants[stretch.work.tenant];
  if (stretch.work.kind == Work::Kind::kServe) {
    if (tenant.capacity[profile] <= 0) return where + ": " + tenant.name + " cannot serve here";
    return std::nullopt;
  }
  const bool goes_on = std::ranges::any_of(problem.present[gpu],
                                           [&](const Running& r) { return SameRun(r, stretch); });
  if (goes_on) return std::nullopt;  // Its length is judged with the running ones.
  if (stretch.work.retraining >= tenant.retrainings.size()) return where + ": no such retraining";
  const int takes = tenant.retrainings[stretch.work.retraining].slots[profile];
  if (takes <= 0) return where + ": " + tenant.name + " cannot be retrained here";
  if (stretch.end - stretch.begin != takes) {
    return fmt::format("{}: this retraining takes {} slots", where, takes);
  }
  if (stretch.end > problem.retrain_limit()) {
    return fmt::format("{}: a retraining must end by slot {}", where, problem.retrain_limit());
  }
  return std::nullopt;
}

// That what is there at one time is a legal layout.
Fault LayoutFault(const GoodputProblem& problem, std::size_t gpu,
                  const std::vector<Stretch>& stretches, int slot) {
  gpu::MigLayout layout(*problem.gpu);
  for (const Stretch& stretch : stretches) {
    if (stretch.begin > slot || stretch.end <= slot) continue;
    const auto placed = layout.Place(stretch.place);
    if (!placed) return Describe(problem, gpu, stretch) + ": " + placed.error().message;
  }
  return std::nullopt;
}

Fault RunningFault(const GoodputProblem& problem, std::size_t gpu,
                   const std::vector<Stretch>& stretches) {
  for (const Running& running : problem.present[gpu]) {
    if (running.work.kind != Work::Kind::kRetrain) continue;
    const int end = static_cast<int>(std::ceil(running.left));
    const bool kept = std::ranges::any_of(stretches, [&](const Stretch& stretch) {
      return SameRun(running, stretch) && stretch.end == end;
    });
    if (!kept && end > 0) {
      return fmt::format("GPU {}, {}: the retraining that runs there does not go on to slot {}",
                         gpu, gpu::Describe(*problem.gpu, running.place), end);
    }
  }
  return std::nullopt;
}

}  // namespace

Fault FindFault(const GoodputProblem& problem, const GoodputSchedule& schedule) {
  if (schedule.gpus.size() != problem.present.size()) return "not as many GPUs as there are";
  std::vector<int> retrained(problem.tenants.size());
  for (std::size_t gpu = 0; gpu < schedule.gpus.size(); ++gpu) {
    for (const Stretch& stretch : schedule.gpus[gpu]) {
      if (Fault fault = FaultOf(problem, gpu, stretch)) return fault;
      if (stretch.work.kind != Work::Kind::kRetrain) continue;
      if (++retrained[stretch.work.tenant] > 1) {
        return problem.tenants[stretch.work.tenant].name + " is retrained twice";
      }
    }
    // Layouts change only where a stretch begins.
    for (const Stretch& stretch : schedule.gpus[gpu]) {
      Fault fault = LayoutFault(problem, gpu, schedule.gpus[gpu], stretch.begin);
      if (fault) return fault;
    }
    if (Fault fault = RunningFault(problem, gpu, schedule.gpus[gpu])) return fault;
  }
  return std::nullopt;
}

double RestartOf(const GoodputProblem& problem, std::size_t gpu, const Stretch& stretch) {
  for (const Running& running : problem.present[gpu]) {
    if (SameRun(running, stretch)) return running.left;
  }
  if (problem.fresh && stretch.begin == 0) return 0;
  return problem.tenants[stretch.work.tenant].restart;
}

void AddCapacity(const GoodputProblem& problem, std::size_t gpu, const Stretch& stretch,
                 double sign, SlotTable& capacity) {
  if (stretch.work.kind != Work::Kind::kServe) return;
  const std::size_t m = stretch.work.tenant;
  const double full =
      sign * problem.tenants[m].capacity[static_cast<std::size_t>(stretch.place.profile)];
  const double from = stretch.begin + RestartOf(problem, gpu, stretch);
  for (int t = std::max(stretch.begin, static_cast<int>(std::min<double>(from, stretch.end)));
       t < stretch.end; ++t) {
    capacity[m][static_cast<std::size_t>(t)] += full * std::clamp(t + 1 - from, 0.0, 1.0);
  }
}

SlotTable CapacityOf(const GoodputProblem& problem, const GoodputSchedule& schedule) {
  SlotTable capacity(problem.tenants.size(),
                     std::vector<double>(static_cast<std::size_t>(problem.slots)));
  for (std::size_t gpu = 0; gpu < schedule.gpus.size(); ++gpu) {
    for (const Stretch& stretch : schedule.gpus[gpu]) {
      AddCapacity(problem, gpu, stretch, 1, capacity);
    }
  }
  return capacity;
}

std::vector<double> WorthOf(const GoodputProblem& problem, std::size_t tenant,
                            const Stretch* retraining) {
  std::vector<double> worth = problem.tenants[tenant].worth;
  if (retraining == nullptr) return worth;
  const std::vector<double>& after =
      problem.tenants[tenant].retrainings[retraining->work.retraining].worth;
  for (auto t = static_cast<std::size_t>(retraining->end); t < worth.size(); ++t) {
    worth[t] = std::max(worth[t], after[t]);
  }
  return worth;
}

// A retraining that is done with the last slot serves the requests of the tail.
double TailOf(const GoodputProblem& problem, std::size_t tenant, const Stretch* retraining) {
  const Tenant& who = problem.tenants[tenant];
  double worth = who.worth.back();
  if (retraining != nullptr) {
    worth = std::max(worth, who.retrainings[retraining->work.retraining].worth.back());
  }
  return who.tail * worth;
}

std::vector<const Stretch*> RetrainingsOf(const GoodputProblem& problem,
                                          const GoodputSchedule& schedule) {
  std::vector<const Stretch*> retrainings(problem.tenants.size());
  for (const auto& stretches : schedule.gpus) {
    for (const Stretch& stretch : stretches) {
      if (stretch.work.kind == Work::Kind::kRetrain) retrainings[stretch.work.tenant] = &stretch;
    }
  }
  return retrainings;
}

double Value(const GoodputProblem& problem, const GoodputSchedule& schedule) {
  const SlotTable capacity = CapacityOf(problem, schedule);
  const auto retrainings = RetrainingsOf(problem, schedule);
  double value = 0;
  for (std::size_t m = 0; m < problem.tenants.size(); ++m) {
    const std::vector<double> worth = WorthOf(problem, m, retrainings[m]);
    for (std::size_t t = 0; t < worth.size(); ++t) {
      value += worth[t] * std::min(problem.tenants[m].load[t], capacity[m][t]);
    }
    value += TailOf(problem, m, retrainings[m]);
  }
  return value;
}

GoodputSchedule StayPut(const GoodputProblem& problem) {
  GoodputSchedule schedule;
  for (const auto& running : problem.present) {
    auto& stretches = schedule.gpus.emplace_back();
    for (const Running& run : running) {
      const int left = static_cast<int>(std::ceil(run.left));
      const int end = run.work.kind == Work::Kind::kServe ? problem.slots : left;
      if (end > 0) stretches.push_back({run.place, 0, end, run.work});
    }
    std::ranges::sort(stretches, {}, &Stretch::place);
  }
  return schedule;
}

}  // namespace divvy::planner
