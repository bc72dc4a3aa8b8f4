#include "planner/dealing.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "planner/packing.h"
#include "planner/replicas.h"
#include "planner/single_process.h"

namespace divvy::planner {
namespace {

// A model at the table: how many of its requests a second each size answers.
struct Player {
  std::size_t model;
  std::vector<double> answers;  // By profile; 0 where it was not measured.
  double share = 0;             // Of its rate, answered by what it was given.
  int instances = 0;
};

Player PlayerFor(const Problem& problem, std::size_t model) {
  Player player{.model = model, .answers = {}};
  for (std::size_t p = 0; p < problem.gpu->profiles.size(); ++p) {
    const auto profile = static_cast<gpu::ProfileIndex>(p);
    const bool runs = SingleProcess(problem.models[model], *problem.gpu, profile).has_value();
    player.answers.push_back(
        runs ? 1e3 / MeanLatencyMs(problem.models[model], *problem.gpu, profile) : 0);
  }
  return player;
}

double AnswersOn(const Player& player, const FreeInstance& free) {
  return player.answers[static_cast<std::size_t>(free.instance.profile)];
}

// Who needs the instance most: somebody without any, then the one with the least
// of its rate answered.
Player* Neediest(const Problem& problem, std::vector<Player>& players, const FreeInstance& free) {
  Player* neediest = nullptr;
  const auto need = [&](const Player& player) {
    // Of those without any, the one with the most to do chooses first.
    const double load = problem.models[player.model].rate / AnswersOn(player, free);
    return std::tuple(player.instances > 0, player.share, player.instances > 0 ? 0 : -load);
  };
  for (Player& player : players) {
    if (AnswersOn(player, free) <= 0) continue;
    if (neediest == nullptr || need(player) < need(*neediest)) neediest = &player;
  }
  return neediest;
}

}  // namespace

std::optional<Deployment> PlaceJobs(const Problem& problem, int gpus) {
  std::vector<gpu::ProfileIndex> wanted;
  std::vector<std::size_t> owners;
  for (std::size_t j = 0; j < problem.jobs.size(); ++j) {
    for (int i = 0; i < problem.jobs[j].count; ++i) {
      wanted.push_back(problem.jobs[j].instance);
      owners.push_back(j);
    }
  }
  Deployment deployment;
  deployment.gpus.resize(static_cast<std::size_t>(std::max(gpus, 0)));
  const auto packed = Pack(*problem.gpu, gpus, wanted);
  for (std::size_t i = 0; i < packed.size(); ++i) {
    if (!packed[i]) return std::nullopt;
    deployment.gpus[static_cast<std::size_t>(packed[i]->gpu)].push_back(
        JobReplica(problem, packed[i]->instance, owners[i]));
  }
  return deployment;
}

Outcome Deal(const Problem& problem, Deployment jobs, std::vector<FreeInstance> free,
             const std::string& why) {
  // Large ones first: what is left to even out the shares is then small.
  std::ranges::sort(free, {}, [&](const FreeInstance& f) {
    return std::tuple(-problem.gpu->profile(f.instance.profile).compute_slices, f.gpu,
                      f.instance.start);
  });
  std::vector<Player> players;
  for (std::size_t m = 0; m < problem.models.size(); ++m) {
    players.push_back(PlayerFor(problem, m));
  }
  for (const FreeInstance& f : free) {
    auto& gpu = jobs.gpus[f.gpu];
    Player* player = Neediest(problem, players, f);
    if (player == nullptr) {
      gpu.push_back(IdleReplica(problem, f.instance));
      continue;
    }
    ++player->instances;
    const double rate = problem.models[player->model].rate;
    player->share += rate > 0 ? AnswersOn(*player, f) / rate : 1;
    const ModelDemand& model = problem.models[player->model];
    const Option option = SingleReplica(model, *problem.gpu, problem.rule, f.instance.profile);
    gpu.push_back(ModelReplica(problem, f.instance, player->model, option));
    gpu.back().why = fmt::format("{}: {}, one for {} (requests up to {})",
                                 problem.gpu->profile(f.instance.profile).name, why, model.name,
                                 option.max_batch);
  }
  for (const Player& player : players) {
    if (player.instances > 0) continue;
    const ModelDemand& model = problem.models[player.model];
    const bool runs = std::ranges::any_of(free, [&](const FreeInstance& f) {
      return SingleProcess(model, *problem.gpu, f.instance.profile).has_value();
    });
    return Infeasible{
        .why = runs ? fmt::format("{} gets no instance: {} cut, models to serve {}", model.name,
                                  free.size(), players.size())
                    : fmt::format("{} was not measured with one process on any of the {} instances",
                                  model.name, free.size()),
        .model = player.model};
  }
  for (auto& gpu : jobs.gpus) std::ranges::sort(gpu, {}, &Replica::instance);
  return Planned{std::move(jobs)};
}

}  // namespace divvy::planner
