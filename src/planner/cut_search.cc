#include "planner/cut_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "gpu/enumerate.h"
#include "planner/layout_columns.h"
#include "planner/replicas.h"
#include "planner/single_process.h"
#include "planner/staircase.h"

namespace divvy::planner {
namespace {

using gpu::MigInstance;
using gpu::ProfileIndex;

constexpr std::size_t kNobody = std::numeric_limits<std::size_t>::max();

// One GPU: its instances and the model that each serves, and those that jobs have.
struct CutGpu {
  std::vector<std::pair<MigInstance, std::size_t>> instances;
  std::vector<MigInstance> jobs;  // Stay where they are.

  friend bool operator==(const CutGpu&, const CutGpu&) = default;
};

// How good a cut is: first for the model that is worst off, then for all.
using Value = std::pair<double, double>;

bool Better(const Value& a, const Value& b) {
  constexpr double kGain = 1e-6;  // Less is rounding, and would make the search wander.
  if (std::abs(a.first - b.first) > kGain * (a.first + b.first)) return a.first > b.first;
  return a.second > b.second + kGain;
}

class Search {
 public:
  explicit Search(const Problem& problem) : problem_(problem) {
    std::vector<ProfileIndex> all;
    for (const ModelDemand& model : problem.models) {
      stairs_.emplace_back(model, *problem.gpu);
      for (const ProfileIndex size : stairs_.back().sizes()) {
        if (std::ranges::find(all, size) == all.end()) all.push_back(size);
      }
    }
    layouts_ = LayoutColumns(*problem.gpu, all);
    for (const JobDemand& job : problem.jobs) {
      if (std::ranges::find(all, job.instance) == all.end()) all.push_back(job.instance);
    }
    if (!problem.jobs.empty()) beside_jobs_ = gpu::EnumerateMaximalLayouts(*problem.gpu, all);
  }

  const std::vector<LayoutColumn>& layouts() const { return layouts_; }

  // Sets out from `gpus` and climbs until no single change helps.
  Value Climb(std::vector<CutGpu>& gpus) {
    Load(gpus);
    Value value = ValueOf();
    constexpr std::size_t kMostSteps = 512;
    for (std::size_t step = 0; step < std::min(kMostSteps, 8 * gpus.size() + 64); ++step) {
      const auto better = BestChange(gpus, value);
      if (!better) break;
      value = Make(gpus, *better);
    }
    return value;
  }

  // `layout` with its instances, but for those of `jobs`, given, largest first, to
  // whom they help most.
  CutGpu Dealt(const gpu::MigLayout& layout, const std::vector<MigInstance>& jobs) {
    CutGpu gpu{.instances = {}, .jobs = jobs};
    std::vector<MigInstance> instances = layout.instances();
    std::erase_if(instances, [&](const MigInstance& instance) {
      return std::ranges::find(jobs, instance) != jobs.end();
    });
    std::ranges::sort(instances, [&](const MigInstance& a, const MigInstance& b) {
      const int left = problem_.gpu->profile(a.profile).compute_slices;
      const int right = problem_.gpu->profile(b.profile).compute_slices;
      return left != right ? left > right : a.start < b.start;
    });
    for (const MigInstance& instance : instances) {
      const std::size_t model = WhoGains(instance.profile);
      Count(instance.profile, model, +1);
      gpu.instances.emplace_back(instance, model);
    }
    for (const auto& [instance, model] : gpu.instances) Count(instance.profile, model, -1);
    std::ranges::sort(gpu.instances);
    return gpu;
  }

  // Counts nothing, so that GPUs can be dealt one after the other.
  void Load(const std::vector<CutGpu>& gpus) {
    counts_.clear();
    carried_.clear();
    for (const Staircase& stairs : stairs_) counts_.emplace_back(stairs.sizes().size());
    carried_.assign(stairs_.size(), 0);
    for (const CutGpu& gpu : gpus) Take(gpu, +1);
  }

  void Take(const CutGpu& gpu, int sign) {
    for (const auto& [instance, model] : gpu.instances) Count(instance.profile, model, sign);
  }

 private:
  struct Change {
    std::size_t gpu;
    CutGpu becomes;
    Value value;
  };

  static bool Contains(const gpu::MigLayout& layout, const std::vector<MigInstance>& jobs) {
    return std::ranges::all_of(jobs, [&](const MigInstance& job) {
      return std::ranges::find(layout.instances(), job) != layout.instances().end();
    });
  }

  // Changes one GPU; in a large fleet, an eighth of its equals at a time while that is
  // no worse, since a thousand GPUs need not be looked at one by one.
  Value Make(std::vector<CutGpu>& gpus, const Change& change) {
    const CutGpu old = gpus[change.gpu];
    const auto turn = [&](std::size_t g, const CutGpu& to) {
      Take(gpus[g], -1);
      gpus[g] = to;
      Take(gpus[g], +1);
    };
    turn(change.gpu, change.becomes);
    constexpr std::size_t kLargeFleet = 64;
    if (gpus.size() <= kLargeFleet) return change.value;
    std::vector<std::size_t> equals;
    for (std::size_t g = 0; g < gpus.size(); ++g) {
      if (gpus[g] == old) equals.push_back(g);
    }
    equals.resize(equals.size() / 8);
    for (const std::size_t g : equals) turn(g, change.becomes);
    if (!Better(change.value, ValueOf())) return ValueOf();
    for (const std::size_t g : equals) turn(g, old);
    return change.value;
  }

  void Count(ProfileIndex size, std::size_t model, int sign) {
    if (model == kNobody) return;
    const auto& sizes = stairs_[model].sizes();
    const auto at = std::ranges::find(sizes, size);
    if (at == sizes.end()) return;
    counts_[model][static_cast<std::size_t>(at - sizes.begin())] += sign;
    carried_[model] = Carried(model);
  }

  // Rate carried / rate demanded, looked up where these counts were seen before.
  double Carried(std::size_t model) {
    const auto [entry, is_new] = known_.try_emplace({model, counts_[model]}, 0);
    if (is_new) {
      entry->second =
          stairs_[model].Rate(counts_[model]) / std::max(problem_.models[model].rate, 1e-9);
    }
    return entry->second;
  }

  Value ValueOf() const {
    Value value{std::numeric_limits<double>::infinity(), 0};
    for (const double carried : carried_) {
      value.first = std::min(value.first, carried);
      value.second += std::log(carried + 1e-9);
    }
    return value;
  }

  std::size_t WhoGains(ProfileIndex size) {
    std::optional<std::pair<Value, std::size_t>> best;
    for (std::size_t m = 0; m < stairs_.size(); ++m) {
      const auto& sizes = stairs_[m].sizes();
      if (std::ranges::find(sizes, size) == sizes.end()) continue;
      Count(size, m, +1);
      const Value value = ValueOf();
      Count(size, m, -1);
      if (!best || Better(value, best->first)) best = {value, m};
    }
    return best ? best->second : kNobody;
  }

  std::optional<Change> BestChange(const std::vector<CutGpu>& gpus, const Value& now) {
    std::optional<Change> best;
    const auto consider = [&](std::size_t g, const CutGpu& becomes) {
      Take(becomes, +1);
      const Value value = ValueOf();
      Take(becomes, -1);
      if (Better(value, best ? best->value : now)) best = Change{g, becomes, value};
    };
    std::vector<const CutGpu*> seen;
    for (std::size_t g = 0; g < gpus.size(); ++g) {
      // One of several equal GPUs speaks for all.
      if (std::ranges::any_of(seen, [&](const CutGpu* other) { return *other == gpus[g]; }))
        continue;
      seen.push_back(&gpus[g]);
      Take(gpus[g], -1);
      if (gpus[g].jobs.empty()) {
        for (const LayoutColumn& layout : layouts_) consider(g, Dealt(layout.layout, {}));
      }
      for (const gpu::MigLayout& layout : beside_jobs_) {
        if (gpus[g].jobs.empty() || !Contains(layout, gpus[g].jobs)) continue;
        consider(g, Dealt(layout, gpus[g].jobs));
      }
      for (std::size_t i = 0; i < gpus[g].instances.size() && stairs_.size() > 1; ++i) {
        for (std::size_t m = 0; m < stairs_.size(); ++m) {
          if (gpus[g].instances[i].second == m || gpus[g].instances[i].second == kNobody) continue;
          CutGpu becomes = gpus[g];
          becomes.instances[i].second = m;
          if (SingleProcess(problem_.models[m], *problem_.gpu,
                            becomes.instances[i].first.profile)) {
            consider(g, becomes);
          }
        }
      }
      Take(gpus[g], +1);
    }
    return best;
  }

  const Problem& problem_;
  std::vector<Staircase> stairs_;  // By model.
  std::vector<LayoutColumn> layouts_;
  std::vector<gpu::MigLayout> beside_jobs_;  // With places: a job's instance cannot move.
  std::vector<std::vector<int>> counts_;     // [model][size] of the cut in hand.
  std::vector<double> carried_;              // By model.
  std::map<std::pair<std::size_t, std::vector<int>>, double> known_;
};

std::vector<CutGpu> CutOf(const Deployment& deployment) {
  std::vector<CutGpu> gpus;
  for (const auto& replicas : deployment.gpus) {
    CutGpu& gpu = gpus.emplace_back();
    for (const Replica& replica : replicas) {
      if (replica.kind == Replica::Kind::kJob) {
        gpu.jobs.push_back(replica.instance);
        continue;
      }
      const bool serves = replica.kind == Replica::Kind::kModel;
      gpu.instances.emplace_back(replica.instance, serves ? replica.index : kNobody);
    }
  }
  return gpus;
}

Deployment DeploymentOf(const Problem& problem, const Deployment& start,
                        const std::vector<CutGpu>& cut) {
  Deployment deployment;
  for (std::size_t g = 0; g < cut.size(); ++g) {
    auto& replicas = deployment.gpus.emplace_back();
    for (const auto& [instance, model] : cut[g].instances) {
      replicas.push_back(model == kNobody
                             ? IdleReplica(problem, instance)
                             : ModelReplica(problem, instance, model,
                                            SingleReplica(problem.models[model], *problem.gpu,
                                                          problem.rule, instance.profile)));
    }
    for (const Replica& replica : start.gpus[g]) {
      if (replica.kind == Replica::Kind::kJob) replicas.push_back(replica);
    }
    std::ranges::sort(replicas, {}, &Replica::instance);
  }
  return deployment;
}

}  // namespace

Deployment SearchCut(const Problem& problem, const Deployment& start) {
  Search search(problem);
  std::vector<CutGpu> best = CutOf(start);
  Value best_value = search.Climb(best);
  constexpr std::size_t kFewGpus = 16;
  if (best.size() <= kFewGpus) {
    for (const LayoutColumn& layout : search.layouts()) {
      std::vector<CutGpu> gpus = CutOf(start);
      for (CutGpu& gpu : gpus) {
        if (gpu.jobs.empty()) gpu.instances.clear();
      }
      search.Load(gpus);
      for (CutGpu& gpu : gpus) {
        if (!gpu.jobs.empty()) continue;
        gpu = search.Dealt(layout.layout, {});
        search.Take(gpu, +1);
      }
      const Value value = search.Climb(gpus);
      if (!Better(value, best_value)) continue;
      best_value = value;
      best = std::move(gpus);
    }
  }
  return DeploymentOf(problem, start, best);
}

}  // namespace divvy::planner
