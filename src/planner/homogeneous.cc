#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "gpu/enumerate.h"
#include "planner/baselines.h"
#include "planner/dealing.h"
#include "planner/growth.h"

// Cuts that do not look at the models: the same everywhere, or by lot.

namespace divvy::planner {
namespace {

using gpu::MigInstance;
using gpu::MigLayout;
using gpu::ProfileIndex;

MigLayout LayoutOf(const Problem& problem, const std::vector<Replica>& replicas) {
  std::vector<MigInstance> instances;
  for (const Replica& replica : replicas) instances.push_back(replica.instance);
  const auto layout = MigLayout::Of(*problem.gpu, instances);
  Check(layout.has_value(), "packed instances are a legal layout");
  return *layout;
}

Infeasible NoRoomForJobs(const Problem& problem) {
  return {.why = fmt::format("{} GPUs have no room for the instances of all jobs", *problem.gpus)};
}

Outcome Homogeneous(const Problem& problem, ProfileIndex size) {
  auto jobs = PlaceJobs(problem, *problem.gpus);
  if (!jobs) return NoRoomForJobs(problem);
  std::vector<FreeInstance> free;
  for (std::size_t g = 0; g < jobs->gpus.size(); ++g) {
    MigLayout layout = LayoutOf(problem, jobs->gpus[g]);
    for (const int start : problem.gpu->profile(size).starts) {
      if (layout.Place({start, size})) free.push_back({g, {start, size}});
    }
  }
  return Deal(problem, std::move(*jobs), std::move(free),
              fmt::format("every GPU cut into {}", problem.gpu->profile(size).name));
}

double HighestLoad(const Problem& problem, const Deployment& deployment) {
  double highest = 0;
  for (const ModelFigures& figures : Assess(problem, deployment)) {
    highest = std::max(highest, figures.load);
  }
  return highest;
}

// The base profiles, large ones first.
std::vector<ProfileIndex> SizesDescending(const gpu::GpuModel& gpu) {
  std::vector<ProfileIndex> sizes = gpu.Select(gpu::ProfileSet::kBase);
  std::ranges::sort(sizes, std::ranges::greater(),
                    [&](ProfileIndex size) { return gpu.profile(size).compute_slices; });
  return sizes;
}

Outcome BestHomogeneous(const Problem& problem) {
  std::optional<Outcome> best;
  double lowest = 0;
  Outcome last = Infeasible{.why = "the GPU has no profiles"};
  for (const ProfileIndex size : SizesDescending(*problem.gpu)) {
    Outcome outcome = Homogeneous(problem, size);
    if (const auto* planned = std::get_if<Planned>(&outcome)) {
      const double load = HighestLoad(problem, planned->deployment);
      if (!best || load < lowest) {
        best = std::move(outcome);
        lowest = load;
      }
    } else {
      last = std::move(outcome);
    }
  }
  return best ? std::move(*best) : std::move(last);
}

bool Contains(const MigLayout& layout, const std::vector<Replica>& replicas) {
  return std::ranges::all_of(replicas, [&](const Replica& replica) {
    return std::ranges::find(layout.instances(), replica.instance) != layout.instances().end();
  });
}

Outcome ByLot(const Problem& problem) {
  auto jobs = PlaceJobs(problem, *problem.gpus);
  if (!jobs) return NoRoomForJobs(problem);
  std::vector<ProfileIndex> profiles = problem.gpu->Select(gpu::ProfileSet::kBase);
  for (const JobDemand& job : problem.jobs) profiles.push_back(job.instance);
  const auto layouts = gpu::EnumerateMaximalLayouts(*problem.gpu, profiles);
  Random random(problem.seed);
  std::vector<FreeInstance> free;
  for (std::size_t g = 0; g < jobs->gpus.size(); ++g) {
    std::vector<const MigLayout*> possible;
    for (const MigLayout& layout : layouts) {
      if (Contains(layout, jobs->gpus[g])) possible.push_back(&layout);
    }
    Check(!possible.empty(), "a legal layout is part of a maximal one");
    for (const MigInstance& instance : possible[random.Below(possible.size())]->instances()) {
      const auto is_there = [&](const Replica& replica) { return replica.instance == instance; };
      if (std::ranges::none_of(jobs->gpus[g], is_there)) free.push_back({g, instance});
    }
  }
  return Deal(problem, std::move(*jobs), std::move(free), "cut by lot");
}

}  // namespace

Outcome PlanHomogeneous(const Problem& problem, ProfileIndex size) {
  return WithEnoughGpus(problem, [&](const Problem& sized) { return Homogeneous(sized, size); });
}

Outcome PlanBestHomogeneous(const Problem& problem) {
  return WithEnoughGpus(problem, BestHomogeneous);
}

Outcome PlanRandom(const Problem& problem) { return WithEnoughGpus(problem, ByLot); }

}  // namespace divvy::planner
