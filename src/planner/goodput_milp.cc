#include "planner/goodput_milp.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "planner/goodput_tally.h"

namespace divvy::planner {
namespace {

using gpu::MigInstance;
using gpu::MigProfile;
using gpu::ProfileIndex;

constexpr int kNone = -1;  // No such column.

std::size_t Position(ProfileIndex profile) { return static_cast<std::size_t>(profile); }

// An instance that may serve a tenant, by slot.
struct Serving {
  std::size_t gpu;
  MigInstance place;
  std::size_t tenant;
  const Running* run;      // What it goes on with; null: it begins anew.
  std::vector<int> on;     // Column by slot: it is there.
  std::vector<int> begin;  // Column by slot: it begins; all kNone where that costs nothing.
};

struct RetrainingStart {
  int column;
  std::size_t gpu;
  Stretch stretch;
};

// At most `most` in sum over the instances of a GPU.
struct Limit {
  std::vector<int> weight;  // By profile.
  int most;
};

// The formulation. Four things make it tighter than it first comes to mind:
// - What runs at first and goes on has columns of its own, which never rise. So the
//   time that is left to it needs no case in the rest.
// - An instance that would be gone before it answers is not begun. So within `restart`
//   slots there is one begin at most, and its loss is subtracted from `on`.
// - One instance counts for no more than the load, whatever it could do.
// - A slot's answers and the better model's part of them are shares of the load.
class GoodputMilp {
 public:
  explicit GoodputMilp(const GoodputProblem& problem) : problem_(problem) {
    held_.resize(problem.present.size() * Slots());
    pinned_.resize(held_.size());
    retraining_.resize(problem.tenants.size());
    AddRunning();
    AddServing();
    for (std::size_t m = 0; m < problem.tenants.size(); ++m) {
      if (!retraining_[m]) AddRetrainings(m);
    }
    AddAnswers();
    AddLayouts();
  }

  const Milp& milp() const { return milp_; }

  // What no decision changes.
  double constant() const { return constant_; }

  GoodputSchedule Read(const std::vector<double>& values) const;

 private:
  struct Held {
    int column;
    MigInstance place;
  };
  // A way to retrain a tenant.
  struct Option {
    std::size_t tenant;
    std::size_t option;
    std::vector<int> done;  // Column by slot, and for the tail: it was done before.
  };

  std::size_t Slots() const { return static_cast<std::size_t>(problem_.slots); }
  std::size_t At(std::size_t gpu, std::size_t slot) const { return gpu * Slots() + slot; }
  int AddWhole() { return milp_.AddColumn({.upper = 1, .integer = true}); }
  int AddShare(double worth) { return milp_.AddColumn({.objective = -worth, .upper = 1}); }

  void AddRunning();
  void AddServing();
  void AddFresh(std::size_t gpu, MigInstance place, std::size_t tenant);
  void AddRetrainings(std::size_t tenant);
  void AddOption(std::size_t tenant, std::size_t option, Milp::Row& once);
  void AddAnswers();
  void AddCapacityRow(std::size_t tenant, std::size_t slot, int answered);
  void AddLayouts();
  std::vector<Limit> Limits() const;
  bool CanBind(const Limit& limit) const;

  const GoodputProblem& problem_;
  Milp milp_;
  double constant_ = 0;
  std::vector<Serving> serving_;
  std::vector<RetrainingStart> starts_;
  std::vector<Option> options_;
  std::vector<std::vector<Held>> held_;             // By GPU and slot.
  std::vector<std::vector<MigInstance>> pinned_;    // The same: by retrainings that run.
  std::vector<std::optional<Stretch>> retraining_;  // By tenant: the one that runs.
};

// Share of slot begin + `after` that is lost to a restart.
double Loss(double restart, std::size_t after) {
  return std::clamp(restart - static_cast<double>(after), 0.0, 1.0);
}

// Slots that an instance must be there to answer anything.
std::size_t Least(double restart) { return static_cast<std::size_t>(std::floor(restart)) + 1; }

void GoodputMilp::AddRunning() {
  for (std::size_t g = 0; g < problem_.present.size(); ++g) {
    for (const Running& run : problem_.present[g]) {
      const std::size_t m = run.work.tenant;
      if (run.work.kind == Work::Kind::kRetrain) {
        const int end = static_cast<int>(std::ceil(run.left));
        if (end > 0) retraining_[m] = {run.place, 0, end, run.work};
        for (int t = 0; t < end; ++t) {
          pinned_[At(g, static_cast<std::size_t>(t))].push_back(run.place);
        }
        continue;
      }
      if (problem_.tenants[m].capacity[Position(run.place.profile)] <= 0) continue;
      Serving serving{g, run.place, m, &run, {}, std::vector<int>(Slots(), kNone)};
      for (std::size_t t = 0; t < Slots(); ++t) {
        serving.on.push_back(AddWhole());
        held_[At(g, t)].push_back({serving.on[t], run.place});
        if (t > 0) {
          milp_.AddRow({.lower = 0, .entries = {{serving.on[t - 1], 1}, {serving.on[t], -1}}});
        }
      }
      serving_.push_back(std::move(serving));
    }
  }
}

void GoodputMilp::AddServing() {
  for (std::size_t g = 0; g < problem_.present.size(); ++g) {
    for (std::size_t p = 0; p < problem_.gpu->profiles.size(); ++p) {
      for (const int start : problem_.gpu->profiles[p].starts) {
        for (std::size_t m = 0; m < problem_.tenants.size(); ++m) {
          if (problem_.tenants[m].capacity[p] <= 0) continue;
          AddFresh(g, {start, static_cast<ProfileIndex>(p)}, m);
        }
      }
    }
  }
}

void GoodputMilp::AddFresh(std::size_t gpu, MigInstance place, std::size_t tenant) {
  const double restart = problem_.tenants[tenant].restart;
  if (restart >= problem_.slots) return;
  const std::size_t least = Least(restart);
  // In the first slot, the same work in the same place goes on; it cannot begin anew.
  const Work work{Work::Kind::kServe, tenant, 0};
  const bool runs = std::ranges::any_of(problem_.present[gpu], [&](const Running& run) {
    return run.place == place && run.work == work;
  });
  Serving serving{gpu, place, tenant, nullptr, {}, std::vector<int>(Slots(), kNone)};
  for (std::size_t t = 0; t < Slots(); ++t) {
    serving.on.push_back(t == 0 && runs ? kNone : AddWhole());
    if (serving.on[t] != kNone) held_[At(gpu, t)].push_back({serving.on[t], place});
    if (restart <= 0 || serving.on[t] == kNone) continue;
    if (t + least <= Slots()) serving.begin[t] = AddShare(0);
    Milp::Row rise{.upper = 0, .entries = {{serving.on[t], 1}}};
    if (t > 0 && serving.on[t - 1] != kNone) rise.entries.emplace_back(serving.on[t - 1], -1);
    if (serving.begin[t] != kNone) rise.entries.emplace_back(serving.begin[t], -1);
    milp_.AddRow(std::move(rise));
    Milp::Row stay{.lower = 0, .entries = {{serving.on[t], 1}}};
    for (std::size_t s = t + 1 >= least ? t + 1 - least : 0; s <= t; ++s) {
      if (serving.begin[s] != kNone) stay.entries.emplace_back(serving.begin[s], -1);
    }
    milp_.AddRow(std::move(stay));
  }
  serving_.push_back(std::move(serving));
}

void GoodputMilp::AddRetrainings(std::size_t tenant) {
  Milp::Row once{.upper = 1, .entries = {}};
  for (std::size_t o = 0; o < problem_.tenants[tenant].retrainings.size(); ++o) {
    AddOption(tenant, o, once);
  }
  if (!once.entries.empty()) milp_.AddRow(std::move(once));
}

void GoodputMilp::AddOption(std::size_t tenant, std::size_t option, Milp::Row& once) {
  const Tenant& who = problem_.tenants[tenant];
  const Retraining& retraining = who.retrainings[option];
  std::vector<std::vector<int>> ends(Slots() + 1);
  for (std::size_t g = 0; g < problem_.present.size(); ++g) {
    for (std::size_t p = 0; p < problem_.gpu->profiles.size(); ++p) {
      const int takes = retraining.slots[p];
      if (takes <= 0) continue;
      for (const int start : problem_.gpu->profiles[p].starts) {
        const MigInstance place{start, static_cast<ProfileIndex>(p)};
        for (int s = 0; s + takes <= problem_.retrain_limit(); ++s) {
          const int column = AddWhole();
          const Work work{Work::Kind::kRetrain, tenant, option};
          starts_.push_back({column, g, {place, s, s + takes, work}});
          once.entries.emplace_back(column, 1);
          ends[static_cast<std::size_t>(s) + static_cast<std::size_t>(takes)].push_back(column);
          for (int t = s; t < s + takes; ++t) {
            held_[At(g, static_cast<std::size_t>(t))].push_back({column, place});
          }
        }
      }
    }
  }
  Option sums{tenant, option, {kNone}};
  const double tail = who.tail * std::max(0.0, retraining.worth.back() - who.worth.back());
  for (std::size_t t = 1; t <= Slots(); ++t) {
    sums.done.push_back(AddShare(t == Slots() ? tail : 0));
    Milp::Row sum{.lower = 0, .upper = 0, .entries = {{sums.done[t], -1}}};
    if (t > 1) sum.entries.emplace_back(sums.done[t - 1], 1);
    for (const int column : ends[t]) sum.entries.emplace_back(column, 1);
    milp_.AddRow(std::move(sum));
  }
  options_.push_back(std::move(sums));
}

void GoodputMilp::AddCapacityRow(std::size_t tenant, std::size_t slot, int answered) {
  const Tenant& who = problem_.tenants[tenant];
  Milp::Row row{.upper = 0, .entries = {{answered, 1}}};
  for (const Serving& serving : serving_) {
    if (serving.tenant != tenant || serving.on[slot] == kNone) continue;
    const double ratio = who.capacity[Position(serving.place.profile)] / who.load[slot];
    const auto counts = [&](double lost) { return std::min(1.0, ratio * (1 - lost)); };
    const double lost = serving.run == nullptr ? 0 : Loss(serving.run->left, slot);
    row.entries.emplace_back(serving.on[slot], -counts(lost));
    for (std::size_t after = 0; after <= slot && Loss(who.restart, after) > 0; ++after) {
      const int begin = serving.begin[slot - after];
      const double less = counts(0) - counts(Loss(who.restart, after));
      if (begin != kNone && less > 0) row.entries.emplace_back(begin, less);
    }
  }
  milp_.AddRow(std::move(row));
}

void GoodputMilp::AddAnswers() {
  for (std::size_t m = 0; m < problem_.tenants.size(); ++m) {
    const Tenant& who = problem_.tenants[m];
    const Stretch* running = retraining_[m] ? &*retraining_[m] : nullptr;
    const std::vector<double> worth = WorthOf(problem_, m, running);
    constant_ += TailOf(problem_, m, running);
    for (std::size_t t = 0; t < Slots(); ++t) {
      if (who.load[t] <= 0) continue;
      const int answered = AddShare(worth[t] * who.load[t]);
      AddCapacityRow(m, t, answered);
      Milp::Row parts{.lower = 0, .entries = {{answered, 1}}};
      for (const Option& option : options_) {
        if (option.tenant != m || option.done[t] == kNone) continue;
        const double gain = who.retrainings[option.option].worth[t] - worth[t];
        if (gain <= 0) continue;
        const int better = AddShare(gain * who.load[t]);
        milp_.AddRow({.lower = 0, .entries = {{option.done[t], 1}, {better, -1}}});
        parts.entries.emplace_back(better, -1);
      }
      if (parts.entries.size() > 1) milp_.AddRow(std::move(parts));
    }
  }
}

// The most that instances which share no slice weigh together.
bool GoodputMilp::CanBind(const Limit& limit) const {
  std::vector<int> most(static_cast<std::size_t>(problem_.gpu->memory_slices) + 1);
  for (std::size_t end = 1; end < most.size(); ++end) {
    most[end] = most[end - 1];
    for (std::size_t p = 0; p < limit.weight.size(); ++p) {
      const auto size = static_cast<std::size_t>(problem_.gpu->profiles[p].memory_slices);
      if (size > end) continue;
      const int start = static_cast<int>(end - size);
      if (!std::ranges::binary_search(problem_.gpu->profiles[p].starts, start)) continue;
      most[end] = std::max(most[end], most[end - size] + limit.weight[p]);
    }
  }
  return most.back() > limit.most;
}

// What MIG limits besides slices, as far as slices do not imply it.
std::vector<Limit> GoodputMilp::Limits() const {
  const auto& profiles = problem_.gpu->profiles;
  std::vector<bool> used(profiles.size());
  for (const auto& slot : held_) {
    for (const Held& held : slot) used[Position(held.place.profile)] = true;
  }
  for (const auto& slot : pinned_) {
    for (const MigInstance& place : slot) used[Position(place.profile)] = true;
  }
  std::vector<Limit> limits;
  for (std::size_t p = 0; p < profiles.size(); ++p) {
    limits.push_back({std::vector<int>(profiles.size()), profiles[p].max_instances});
    limits.back().weight[p] = used[p] ? 1 : 0;
  }
  if (problem_.gpu->engines) {
    for (int gpu::Engines::* engine : {&gpu::Engines::decoders, &gpu::Engines::encoders,
                                       &gpu::Engines::jpeg, &gpu::Engines::ofa}) {
      Limit limit{{}, *problem_.gpu->engines.*engine};
      for (std::size_t p = 0; p < profiles.size(); ++p) {
        limit.weight.push_back(used[p] && profiles[p].engines ? *profiles[p].engines.*engine : 0);
      }
      limits.push_back(std::move(limit));
    }
  }
  std::erase_if(limits, [&](const Limit& limit) { return !CanBind(limit); });
  return limits;
}

void GoodputMilp::AddLayouts() {
  const std::vector<Limit> limits = Limits();
  const auto covers = [&](MigInstance place, int slice) {
    return (gpu::SlicesOf(problem_.gpu->profile(place.profile), place.start) >> slice & 1) != 0;
  };
  for (std::size_t i = 0; i < held_.size(); ++i) {
    for (int slice = 0; slice < problem_.gpu->memory_slices; ++slice) {
      Milp::Row row{.upper = 1, .entries = {}};
      for (const MigInstance& pin : pinned_[i]) row.upper -= covers(pin, slice) ? 1 : 0;
      for (const auto& [column, place] : held_[i]) {
        if (covers(place, slice)) row.entries.emplace_back(column, 1);
      }
      if (!row.entries.empty()) milp_.AddRow(std::move(row));
    }
    for (const Limit& limit : limits) {
      Milp::Row row{.upper = static_cast<double>(limit.most), .entries = {}};
      for (const MigInstance& pin : pinned_[i]) row.upper -= limit.weight[Position(pin.profile)];
      for (const auto& [column, place] : held_[i]) {
        const int weight = limit.weight[Position(place.profile)];
        if (weight > 0) row.entries.emplace_back(column, weight);
      }
      if (!row.entries.empty()) milp_.AddRow(std::move(row));
    }
  }
}

GoodputSchedule GoodputMilp::Read(const std::vector<double>& values) const {
  const auto set = [&](int column) {
    return column != kNone && values[static_cast<std::size_t>(column)] > 0.5;
  };
  GoodputSchedule schedule;
  schedule.gpus.resize(problem_.present.size());
  for (std::size_t g = 0; g < problem_.present.size(); ++g) {
    for (const Running& run : problem_.present[g]) {
      const int end = static_cast<int>(std::ceil(run.left));
      if (run.work.kind != Work::Kind::kRetrain || end <= 0) continue;
      schedule.gpus[g].push_back({run.place, 0, end, run.work});
    }
  }
  for (const RetrainingStart& start : starts_) {
    if (set(start.column)) schedule.gpus[start.gpu].push_back(start.stretch);
  }
  for (const Serving& serving : serving_) {
    const Work work{Work::Kind::kServe, serving.tenant, 0};
    for (int t = 0; t < problem_.slots; ++t) {
      if (!set(serving.on[static_cast<std::size_t>(t)])) continue;
      const int begin = t;
      while (t < problem_.slots && set(serving.on[static_cast<std::size_t>(t)])) ++t;
      schedule.gpus[serving.gpu].push_back({serving.place, begin, t, work});
    }
  }
  for (auto& stretches : schedule.gpus) {
    std::ranges::sort(stretches, {}, [](const Stretch& stretch) {
      return std::pair(stretch.begin, stretch.place);
    });
  }
  return schedule;
}

}  // namespace

GoodputReference SolveGoodputByMilp(const GoodputProblem& problem, const MilpOptions& options) {
  const GoodputMilp formulation(problem);
  const MilpSolution solution = Solve(formulation.milp(), options);
  GoodputReference reference;
  reference.bound = formulation.constant() - solution.bound;
  if (solution.values.empty()) return reference;
  reference.schedule = formulation.Read(solution.values);
  reference.value = formulation.constant() - solution.objective;
  reference.optimal = solution.status == MilpSolution::Status::kOptimal;
  return reference;
}

}  // namespace divvy::planner
