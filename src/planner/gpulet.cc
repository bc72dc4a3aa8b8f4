#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "planner/baselines.h"
#include "planner/growth.h"
#include "planner/replicas.h"

// gpulet on MIG. The original shares a GPU between two models by MPS percentages;
// our tables know MIG sizes only, so its shares become instances here.
// docs/design/planners.md says what was kept.

namespace divvy::planner {
namespace {

using gpu::MigInstance;
using gpu::MigLayout;
using gpu::ProfileIndex;

constexpr std::size_t kPartitions = 2;  // A GPU has no more.

// A partition that is wanted.
struct Gpulet {
  ProfileIndex profile;
  std::optional<std::size_t> job;
  std::size_t model = 0;
  Option option = {};
};

// Per size the saturated batch: the largest that runs twice within the SLO.
std::vector<Option> Saturated(const Problem& problem, const ModelDemand& model) {
  constexpr InTimeRule kTwice{.safety = 1, .batching_delay = 1};
  std::vector<Option> options;
  for (const ProfileIndex size : problem.gpu->Select(gpu::ProfileSet::kBase)) {
    const workload::ProfileCurve* curve = model.profile->Find(problem.gpu->profile(size), 1);
    if (curve == nullptr) continue;
    const auto option = OptionWithin(model, *problem.gpu, kTwice, size, 1, curve->largest_batch());
    if (option && option->max_batch >= model.batches.largest()) options.push_back(*option);
  }
  std::ranges::sort(options, {}, [&](const Option& option) {
    return problem.gpu->profile(option.profile).compute_slices;
  });
  return options;
}

// The smallest size after which throughput a slice no longer grows.
std::size_t EfficientSize(const Problem& problem, const std::vector<Option>& options) {
  const auto per_slice = [&](const Option& option) {
    return option.capacity / problem.gpu->profile(option.profile).compute_slices;
  };
  std::size_t size = 0;
  while (size + 1 < options.size() && per_slice(options[size + 1]) > per_slice(options[size])) {
    ++size;
  }
  return size;
}

std::vector<Option> Choose(const Problem& problem, const std::vector<Option>& options,
                           double items) {
  const Option& efficient = options[EfficientSize(problem, options)];
  std::vector<Option> chosen;
  double rest = items;
  while (rest > items * 1e-9) {
    const auto enough = std::ranges::find_if(
        options, [&](const Option& option) { return option.capacity >= rest * (1 - 1e-9); });
    // The last partition is no larger than it must be.
    const bool smaller =
        enough != options.end() && problem.gpu->profile(enough->profile).compute_slices <=
                                       problem.gpu->profile(efficient.profile).compute_slices;
    chosen.push_back(smaller ? *enough : efficient);
    rest -= chosen.back().capacity;
  }
  return chosen;
}

// GPUs with one or two partitions each.
class Fleet {
 public:
  explicit Fleet(const Problem& problem) : problem_(problem) {}

  // Best fit: the GPU that has the least compute left afterwards, else a new one.
  void Add(const Gpulet& gpulet) {
    std::optional<std::size_t> best;
    int least = 0;
    for (std::size_t g = 0; g < gpus_.size(); ++g) {
      if (gpus_[g].size() >= kPartitions || !Fits(gpus_[g], gpulet)) continue;
      int left = problem_.gpu->compute_slices - Slices(gpulet);
      for (const Gpulet& other : gpus_[g]) left -= Slices(other);
      if (!best || left < least) std::tie(best, least) = std::pair(g, left);
    }
    if (!best) {
      best = gpus_.size();
      gpus_.emplace_back();
    }
    gpus_[*best].push_back(gpulet);
  }

  Deployment Deploy() const {
    Deployment deployment;
    for (const auto& gpu : gpus_) {
      deployment.gpus.emplace_back();
      std::vector<MigInstance> places = *PlacesFor(gpu);
      for (const Gpulet& gpulet : gpu) {
        const auto place = std::ranges::find(places, gpulet.profile, &MigInstance::profile);
        deployment.gpus.back().push_back(
            gpulet.job ? JobReplica(problem_, *place, *gpulet.job)
                       : ModelReplica(problem_, *place, gpulet.model, gpulet.option));
        places.erase(place);
      }
      std::ranges::sort(deployment.gpus.back(), {}, &Replica::instance);
    }
    return deployment;
  }

 private:
  int Slices(const Gpulet& gpulet) const {
    return problem_.gpu->profile(gpulet.profile).compute_slices;
  }

  bool Fits(std::vector<Gpulet> gpu, const Gpulet& gpulet) const {
    gpu.push_back(gpulet);
    return PlacesFor(gpu).has_value();
  }

  // A legal layout of exactly these.
  std::optional<std::vector<MigInstance>> PlacesFor(const std::vector<Gpulet>& gpu) const {
    std::vector<ProfileIndex> profiles;
    for (const Gpulet& gpulet : gpu) profiles.push_back(gpulet.profile);
    std::ranges::sort(profiles);
    return Search(MigLayout(*problem_.gpu), profiles);
  }

  static std::optional<std::vector<MigInstance>> Search(const MigLayout& layout,
                                                        std::span<const ProfileIndex> rest) {
    if (rest.empty()) return layout.instances();
    for (const int start : layout.FreeStarts(rest.front())) {
      MigLayout next = layout;
      Check(next.Place({start, rest.front()}).has_value(), "a free start takes the instance");
      if (auto found = Search(next, rest.subspan(1))) return found;
    }
    return std::nullopt;
  }

  const Problem& problem_;
  std::vector<std::vector<Gpulet>> gpus_;
};

Infeasible NoSize(const Problem& problem, std::size_t model) {
  return {.why = fmt::format(
              "{}: on no size of {} do two batches of its largest request, {} items, "
              "fit into its SLO of {:.4g} ms, which is what gpulet asks for",
              problem.models[model].name, problem.gpu->name,
              problem.models[model].batches.largest(), Milliseconds(problem.models[model].slo)),
          .model = model};
}

}  // namespace

Outcome PlanGpulet(const Problem& problem) {
  std::vector<Gpulet> gpulets;
  for (std::size_t j = 0; j < problem.jobs.size(); ++j) {
    for (int i = 0; i < problem.jobs[j].count; ++i) {
      gpulets.push_back({.profile = problem.jobs[j].instance, .job = j});
    }
  }
  for (std::size_t m = 0; m < problem.models.size(); ++m) {
    const double items = ItemsInRequestsOf(problem.models[m], 1);
    if (items <= 0) continue;
    const std::vector<Option> options = Saturated(problem, problem.models[m]);
    if (options.empty()) return NoSize(problem, m);
    for (const Option& option : Choose(problem, options, items)) {
      gpulets.push_back({.profile = option.profile, .job = {}, .model = m, .option = option});
    }
  }
  // Large ones first, as best fit likes them.
  std::stable_sort(gpulets.begin(), gpulets.end(), [&](const Gpulet& a, const Gpulet& b) {
    return problem.gpu->profile(a.profile).compute_slices >
           problem.gpu->profile(b.profile).compute_slices;
  });
  Fleet fleet(problem);
  for (const Gpulet& gpulet : gpulets) fleet.Add(gpulet);
  return FitInto(problem, fleet.Deploy(), "gpulet");
}

}  // namespace divvy::planner
