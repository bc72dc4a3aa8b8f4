#include "planner/assemble.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "planner/replicas.h"

namespace divvy::planner {
namespace {

// Instances of the chosen layouts that nobody has yet, by profile.
class FreeInstances {
 public:
  struct Place {
    std::size_t gpu;
    gpu::MigInstance instance;
  };

  FreeInstances(const gpu::GpuModel& model, const std::vector<LayoutColumn>& layouts,
                const CutCounts& counts)
      : by_profile_(model.profiles.size()) {
    for (std::size_t c = 0; c < layouts.size(); ++c) {
      for (int i = 0; i < counts.layouts[c]; ++i, ++gpus_) {
        for (const gpu::MigInstance& instance : layouts[c].layout.instances()) {
          by_profile_[static_cast<std::size_t>(instance.profile)].push_back({gpus_, instance});
        }
      }
    }
    // Taken from the back: the first GPU's first.
    for (auto& places : by_profile_) std::ranges::reverse(places);
  }

  std::size_t gpus() const { return gpus_; }

  Place Take(gpu::ProfileIndex profile) {
    auto& places = by_profile_[static_cast<std::size_t>(profile)];
    Check(!places.empty(), "the layouts offer what the plan takes");
    const Place place = places.back();
    places.pop_back();
    return place;
  }

  // Those that are left, by compute, large ones first.
  std::vector<Place> Rest(const gpu::GpuModel& model) const {
    std::vector<Place> rest;
    for (const auto& places : by_profile_) rest.insert(rest.end(), places.rbegin(), places.rend());
    std::ranges::sort(rest, {}, [&](const Place& place) {
      return std::tuple(-model.profile(place.instance.profile).compute_slices, place.gpu,
                        place.instance.start);
    });
    return rest;
  }

 private:
  std::vector<std::vector<Place>> by_profile_;
  std::size_t gpus_ = 0;
};

// How loaded a model is, kept up to date as it is given instances.
class SideLoad {
 public:
  explicit SideLoad(const ModelSide& side) : side_(&side), carried_(side.needs.size()) {}

  void Give(const Option& option) {
    for (std::size_t i = 0; i < carried_.size(); ++i) {
      if (option.max_batch >= side_->needs[i].batch) carried_[i] += option.capacity;
    }
  }

  double load() const {
    double load = 0;
    for (std::size_t i = 0; i < carried_.size(); ++i) {
      load = std::max(load, side_->needs[i].items / carried_[i]);
    }
    return load;
  }

  // The option on `profile` that lowers the load most, or null when none does.
  const Option* BestOn(gpu::ProfileIndex profile) const {
    const Option* best = nullptr;
    double lowest = load();
    for (const Option& option : side_->options) {
      if (option.profile != profile) continue;
      SideLoad with = *this;
      with.Give(option);
      if (with.load() >= lowest) continue;
      lowest = with.load();
      best = &option;
    }
    return best;
  }

  const ModelSide& side() const { return *side_; }

 private:
  const ModelSide* side_;
  std::vector<double> carried_;  // By need.
};

// The replica for a leftover instance.
Replica ForLeftover(const Problem& problem, gpu::MigInstance instance,
                    std::vector<SideLoad>& loads) {
  std::ranges::sort(loads, [](const SideLoad& a, const SideLoad& b) {
    return std::pair(-a.load(), a.side().model) < std::pair(-b.load(), b.side().model);
  });
  for (SideLoad& load : loads) {
    const Option* option = load.BestOn(instance.profile);
    if (option == nullptr) continue;
    load.Give(*option);
    return ModelReplica(problem, instance, load.side().model, *option);
  }
  return IdleReplica(problem, instance);
}

}  // namespace

Deployment Assemble(const Problem& problem, const std::vector<ModelSide>& sides,
                    const std::vector<LayoutColumn>& layouts, const CutCounts& counts) {
  FreeInstances free(*problem.gpu, layouts, counts);
  Deployment deployment;
  deployment.gpus.resize(free.gpus());
  for (std::size_t j = 0; j < problem.jobs.size(); ++j) {
    for (int i = 0; i < problem.jobs[j].count; ++i) {
      const auto place = free.Take(problem.jobs[j].instance);
      deployment.gpus[place.gpu].push_back(JobReplica(problem, place.instance, j));
    }
  }
  std::vector<SideLoad> loads;
  for (std::size_t s = 0; s < sides.size(); ++s) {
    loads.emplace_back(sides[s]);
    for (std::size_t o = 0; o < sides[s].options.size(); ++o) {
      const Option& option = sides[s].options[o];
      for (int i = 0; i < counts.options[s][o]; ++i) {
        const auto place = free.Take(option.profile);
        deployment.gpus[place.gpu].push_back(
            ModelReplica(problem, place.instance, sides[s].model, option));
        loads.back().Give(option);
      }
    }
  }
  for (const auto& place : free.Rest(*problem.gpu)) {
    deployment.gpus[place.gpu].push_back(ForLeftover(problem, place.instance, loads));
  }
  for (auto& gpu : deployment.gpus) std::ranges::sort(gpu, {}, &Replica::instance);
  return deployment;
}

}  // namespace divvy::planner
