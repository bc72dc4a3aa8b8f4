#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "gpu/open_space.h"
#include "planner/cut_search.h"
#include "planner/growth.h"
#include "planner/packing.h"
#include "planner/paris.h"
#include "planner/replicas.h"
#include "planner/single_process.h"

// PARIS beyond the paper: several models, whole instances, legal layouts.

namespace divvy::planner {
namespace {

using gpu::MigInstance;
using gpu::MigLayout;
using gpu::ProfileIndex;

using Counts = std::vector<std::vector<int>>;  // [model][size].

// What PARIS would like, before it meets whole numbers and layouts.
struct Wish {
  std::vector<ParisSteps> steps;                // By model; counts share the fleet's budget.
  std::vector<std::optional<std::size_t>> top;  // Largest size with requests to own.
};

int Largest(const ParisSteps& steps) {
  for (std::size_t k = steps.demand.size(); k > 0; --k) {
    if (steps.demand[k - 1] > 0) return static_cast<int>(k - 1);
  }
  return -1;
}

// The budget is what the jobs leave. A model's part of it is the slice-time that
// its rate needs, so that all models' instances are equally busy.
Wish WishOf(const Problem& problem) {
  Wish wish;
  double total = 0;
  std::vector<double> needs;
  for (const ModelDemand& model : problem.models) {
    wish.steps.push_back(RunParis(model, *problem.gpu, 1));
    const ParisSteps& steps = wish.steps.back();
    double per_query = 0;
    for (std::size_t k = 0; k < steps.sizes.size(); ++k) {
      per_query += steps.demand[k] * steps.weights[k];
    }
    needs.push_back(model.rate * per_query);
    total += needs.back();
    const int top = Largest(steps);
    wish.top.push_back(top < 0 ? std::nullopt : std::optional(static_cast<std::size_t>(top)));
  }
  double budget = static_cast<double>(*problem.gpus) * problem.gpu->compute_slices;
  for (const JobDemand& job : problem.jobs) {
    budget -= job.count * problem.gpu->profile(job.instance).compute_slices;
  }
  for (std::size_t m = 0; m < needs.size(); ++m) {
    const double part = total > 0 ? std::max(budget, 0.0) * needs[m] / total : 0;
    for (double& count : wish.steps[m].counts) count *= part;
  }
  return wish;
}

// Whole numbers for `scale` times the wish: rounded down, but the largest requests
// of every model have an instance of their size or larger. What rounding down
// leaves is filled later, when it is known what fits.
Counts RoundDown(const Wish& wish, double scale) {
  Counts counts;
  for (std::size_t m = 0; m < wish.steps.size(); ++m) {
    counts.emplace_back();
    for (const double count : wish.steps[m].counts) {
      counts.back().push_back(static_cast<int>(std::floor(count * scale + 1e-9)));
    }
    if (!wish.top[m]) continue;
    const auto from = counts.back().begin() + static_cast<std::ptrdiff_t>(*wish.top[m]);
    if (std::all_of(from, counts.back().end(), [](int count) { return count == 0; })) *from = 1;
  }
  return counts;
}

// A replica to be: a model's (with its size) or a job's.
struct Guest {
  ProfileIndex profile;
  std::optional<std::size_t> job;
  std::size_t model = 0;
  std::size_t size = 0;
};

std::vector<Guest> GuestsOf(const Problem& problem, const Wish& wish, const Counts& counts) {
  std::vector<Guest> guests;
  for (std::size_t j = 0; j < problem.jobs.size(); ++j) {
    for (int i = 0; i < problem.jobs[j].count; ++i) {
      guests.push_back({.profile = problem.jobs[j].instance, .job = j});
    }
  }
  for (std::size_t m = 0; m < counts.size(); ++m) {
    for (std::size_t k = 0; k < counts[m].size(); ++k) {
      for (int i = 0; i < counts[m][k]; ++i) {
        guests.push_back({.profile = wish.steps[m].sizes[k], .job = {}, .model = m, .size = k});
      }
    }
  }
  return guests;
}

struct Seat {
  Guest guest;
  Packed place;
};

// Where everybody sits; nothing when somebody has to stand.
std::optional<std::vector<Seat>> Place(const Problem& problem, const Wish& wish,
                                       const Counts& counts) {
  const std::vector<Guest> guests = GuestsOf(problem, wish, counts);
  std::vector<ProfileIndex> wanted;
  for (const Guest& guest : guests) wanted.push_back(guest.profile);
  const auto packed = Pack(*problem.gpu, *problem.gpus, wanted);
  std::vector<Seat> seats;
  for (std::size_t i = 0; i < guests.size(); ++i) {
    if (!packed[i]) return std::nullopt;
    seats.push_back({guests[i], *packed[i]});
  }
  return seats;
}

// True when the next size below a model's top was measured with its largest requests.
bool CanLower(const Problem& problem, const Wish& wish, std::size_t m) {
  if (!wish.top[m] || *wish.top[m] == 0) return false;
  const ModelDemand& model = problem.models[m];
  const auto& sizes = wish.steps[m].sizes;
  const auto smaller = SingleProcess(model, *problem.gpu, sizes[*wish.top[m] - 1]);
  const auto present = SingleProcess(model, *problem.gpu, sizes[*wish.top[m]]);
  return smaller->max_batch >= present->max_batch;
}

// On few GPUs not every model can have an instance of the size that its largest
// requests call for. Then the largest of these becomes the next smaller size, which
// still runs such requests, only slower. False when there is nothing to lower.
bool LowerATop(const Problem& problem, Wish& wish) {
  const auto weight = [&](std::size_t m) { return wish.steps[m].weights[*wish.top[m]]; };
  std::optional<std::size_t> largest;
  for (std::size_t m = 0; m < wish.top.size(); ++m) {
    if (!CanLower(problem, wish, m)) continue;
    if (!largest || weight(m) > weight(*largest)) largest = m;
  }
  if (!largest) return false;
  --*wish.top[*largest];
  return true;
}

// The largest scale, to a thousandth, at which everybody finds a seat.
std::optional<std::vector<Seat>> PlaceMost(const Problem& problem, Wish& wish) {
  if (auto all = Place(problem, wish, RoundDown(wish, 1))) return all;
  auto best = Place(problem, wish, RoundDown(wish, 0));
  while (!best) {
    if (!LowerATop(problem, wish)) return std::nullopt;
    best = Place(problem, wish, RoundDown(wish, 0));
  }
  double fits = 0;
  double too_much = 1;
  while (too_much - fits > 1e-3) {
    const double scale = (fits + too_much) / 2;
    if (auto seats = Place(problem, wish, RoundDown(wish, scale))) {
      best = std::move(seats);
      fits = scale;
    } else {
      too_much = scale;
    }
  }
  return best;
}

// Fills GPUs with what is most missing.
class Filler {
 public:
  Filler(const Problem& problem, const Wish& wish, const std::vector<Seat>& seats)
      : problem_(problem), space_(*problem.gpu) {
    for (const ParisSteps& steps : wish.steps) missing_.push_back(steps.counts);
    for (const Seat& seat : seats) {
      if (!seat.guest.job) missing_[seat.guest.model][seat.guest.size] -= 1;
    }
    for (std::size_t m = 0; m < wish.steps.size(); ++m) {
      for (std::size_t k = 0; k < wish.steps[m].sizes.size(); ++k) {
        const Guest guest{.profile = wish.steps[m].sizes[k], .job = {}, .model = m, .size = k};
        candidates_.push_back({guest, wish.steps[m].weights[k]});
      }
    }
  }

  // The next guest for `layout`, which is changed to hold it; nothing when it is full.
  std::optional<std::pair<Guest, MigInstance>> Next(MigLayout& layout) {
    const Candidate* most = nullptr;
    for (const Candidate& candidate : candidates_) {
      if (layout.FreeStarts(candidate.guest.profile).empty()) continue;
      if (most == nullptr || Rank(candidate) > Rank(*most)) most = &candidate;
    }
    if (most == nullptr) return std::nullopt;
    const MigInstance instance{BestStart(layout, most->guest.profile), most->guest.profile};
    Check(layout.Place(instance).has_value(), "a free start takes the instance");
    missing_[most->guest.model][most->guest.size] -= 1;
    return std::pair(most->guest, instance);
  }

 private:
  struct Candidate {
    Guest guest;
    double weight;
  };

  // Most missing first; among equals the larger.
  std::pair<double, double> Rank(const Candidate& candidate) const {
    return {missing_[candidate.guest.model][candidate.guest.size], candidate.weight};
  }

  int BestStart(const MigLayout& layout, ProfileIndex profile) const {
    int best = -1;
    int best_score = -1;
    for (const int start : layout.FreeStarts(profile)) {
      const gpu::SliceMask taken = gpu::SlicesOf(problem_.gpu->profile(profile), start);
      const int score = space_.Score(layout.free_slices() & ~taken);
      if (score > best_score) std::tie(best, best_score) = std::pair(start, score);
    }
    return best;
  }

  const Problem& problem_;
  gpu::OpenSpace space_;
  std::vector<std::vector<double>> missing_;  // [model][size], in instances.
  std::vector<Candidate> candidates_;
};

Replica ReplicaFor(const Problem& problem, const Wish& wish, const Guest& guest,
                   MigInstance instance) {
  if (guest.job) return JobReplica(problem, instance, *guest.job);
  const ModelDemand& model = problem.models[guest.model];
  const ParisSteps& steps = wish.steps[guest.model];
  Replica replica = ModelReplica(problem, instance, guest.model,
                                 SingleReplica(model, *problem.gpu, problem.rule, guest.profile));
  const int first = guest.size == 0 ? 1 : steps.knees[guest.size - 1] + 1;
  const int last = steps.knees[guest.size];
  replica.why =
      first > last
          ? fmt::format("{}: fills what was left over for {}, requests up to {}",
                        problem.gpu->profile(guest.profile).name, model.name, replica.max_batch)
          : fmt::format("{}: owns requests of {} to {} items of {}; {:.2f} such instances wanted",
                        problem.gpu->profile(guest.profile).name, first, last, model.name,
                        steps.counts[guest.size]);
  return replica;
}

Outcome ParisOn(const Problem& problem) {
  Wish wish = WishOf(problem);
  for (std::size_t m = 0; m < wish.steps.size(); ++m) {
    if (!wish.steps[m].sizes.empty()) continue;
    return Infeasible{
        .why = fmt::format("{} was measured on no size of {} with one process, which is what PARIS "
                           "plans with",
                           problem.models[m].name, problem.gpu->name),
        .model = m};
  }
  const auto seats = PlaceMost(problem, wish);
  if (!seats) {
    return Infeasible{.why = fmt::format("{} GPUs cannot hold one instance for each of {} models "
                                         "and all jobs",
                                         *problem.gpus, problem.models.size())};
  }
  Deployment deployment;
  deployment.gpus.resize(static_cast<std::size_t>(*problem.gpus));
  for (const Seat& seat : *seats) {
    deployment.gpus[static_cast<std::size_t>(seat.place.gpu)].push_back(
        ReplicaFor(problem, wish, seat.guest, seat.place.instance));
  }
  Filler filler(problem, wish, *seats);
  for (auto& gpu : deployment.gpus) {
    MigLayout layout(*problem.gpu);
    for (const Replica& replica : gpu) {
      Check(layout.Place(replica.instance).has_value(), "packed instances are a legal layout");
    }
    while (const auto next = filler.Next(layout)) {
      gpu.push_back(ReplicaFor(problem, wish, next->first, next->second));
    }
    std::ranges::sort(gpu, {}, &Replica::instance);
  }
  return Planned{std::move(deployment)};
}

}  // namespace

Outcome PlanParisNearest(const Problem& problem) { return WithEnoughGpus(problem, ParisOn); }

Outcome PlanParis(const Problem& problem) {
  return WithEnoughGpus(problem, [](const Problem& on) -> Outcome {
    Outcome nearest = ParisOn(on);
    const auto* planned = std::get_if<Planned>(&nearest);
    if (planned == nullptr) return nearest;
    Planned found{SearchCut(on, planned->deployment)};
    // The search values what 95 % of the requests get; a cut that keeps the rule for
    // all of them is not given up for that.
    if (Carries(on, planned->deployment) && !Carries(on, found.deployment)) return nearest;
    return found;
  });
}

}  // namespace divvy::planner
