#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/result.h"
#include "control/estate.h"
#include "control/loop.h"
#include "control/policy.h"
#include "gpu/catalogue.h"

// Estates by formulas, and a plant that only says yes. For tests.

namespace divvy::control::testing {

// Speeds grow with size ^ bend, where a whole GPU is 1.
struct TenantRecipe {
  double capacity = 100;  // Requests a slot of a whole GPU.
  double bend = 1;
  double load = 30;
  double weight = 1;
  double training = 0;                         // Slots of the first option on a whole GPU;
                                               // 0: does not learn.
  double accuracy = 0.6;                       // Of the model at the start.
  std::vector<double> reached = {0.75, 0.85};  // By option; each takes twice the one before.
  double drift_per_minute = 0.02;
  double smallest = 0;  // Smaller parts cannot serve.
};

inline Offer OfferFor(const TenantRecipe& recipe, double size) {
  Offer offer;
  if (size <= 0) return offer;
  if (size >= recipe.smallest) offer.capacity = recipe.capacity * std::pow(size, recipe.bend);
  if (offer.capacity > 0) {
    // Batches of up to four, such that full ones give the capacity.
    std::vector<Duration> times;
    for (int items = 1; items <= 4; ++items) {
      times.push_back(FromSeconds((0.2 + 0.2 * items) * 4 * kUsable / offer.capacity));
    }
    offer.table = serving::LatencyTable(times);
  }
  double takes = recipe.training / std::pow(size, 0.8);
  for (std::size_t i = 0; recipe.training > 0 && i < recipe.reached.size(); ++i, takes *= 2) {
    offer.retraining_slots.push_back(takes);
  }
  return offer;
}

// Windows of 100 slots, decisions every 5.
inline Estate MakeTestEstate(int gpus, const std::vector<TenantRecipe>& recipes,
                             double restart = 1.3) {
  const gpu::GpuModel& gpu = **gpu::FindGpuModel("a100-80gb");
  Estate estate{&gpu, gpus, std::chrono::seconds(1), 100, 5, restart, {}};
  const auto base = gpu.Select(gpu::ProfileSet::kBase);
  for (const TenantRecipe& recipe : recipes) {
    EstateTenant tenant;
    tenant.name = "tenant-" + std::to_string(estate.tenants.size());
    tenant.weight = recipe.weight;
    tenant.slo = FromSeconds(1);
    tenant.mean_load = recipe.load;
    if (recipe.training > 0) {
      workload::Learning& learning = tenant.learning.emplace();
      learning.accuracy = recipe.accuracy;
      learning.drift_per_minute = recipe.drift_per_minute;
      learning.floor = recipe.accuracy / 2;
      for (const double reached : recipe.reached) {
        const std::string name = "option-" + std::to_string(learning.options.size());
        learning.options.push_back({name, 1000, reached});
      }
    }
    for (std::size_t k = 0; k < gpu.profiles.size(); ++k) {
      const bool used = std::ranges::find(base, static_cast<gpu::ProfileIndex>(k)) != base.end();
      const double size = gpu.profiles[k].compute_slices / static_cast<double>(gpu.compute_slices);
      tenant.by_profile.push_back(OfferFor(recipe, used ? size : 0));
    }
    for (int tenths = 0; tenths <= 10; ++tenths) {
      tenant.by_tenths.push_back(OfferFor(recipe, tenths / 10.0));
    }
    estate.tenants.push_back(std::move(tenant));
  }
  return estate;
}

// Demand between a half and one and a half of what the GPUs can do.
inline Estate RandomEstate(int gpus, int tenants, Random& random) {
  std::vector<TenantRecipe> recipes;
  for (int m = 0; m < tenants; ++m) {
    TenantRecipe recipe;
    recipe.capacity = 50 * std::exp(2 * random.Uniform());
    recipe.bend = 0.6 + 0.4 * random.Uniform();
    recipe.load = recipe.capacity * gpus / tenants * (0.5 + random.Uniform());
    recipe.weight = 0.5 + random.Uniform();
    recipe.training = random.Uniform() < 0.7 ? 5 + 20 * random.Uniform() : 0;
    recipe.accuracy = 0.5 + 0.2 * random.Uniform();
    recipe.smallest = random.Uniform() < 0.3 ? 0.25 : 0;
    recipes.push_back(recipe);
  }
  constexpr double kRestarts[] = {0, 0.3, 1.3, 6};
  return MakeTestEstate(gpus, recipes, kRestarts[random.Below(4)]);
}

// The view before the first slot.
inline View FirstView(const Estate& estate) {
  View view;
  for (const EstateTenant& tenant : estate.tenants) {
    TenantState& state = view.tenants.emplace_back();
    if (tenant.learning) state.accuracy = state.trained = tenant.learning->accuracy;
  }
  return view;
}

// `cells` as they are when they have been running for a while.
inline std::vector<CellState> Running(const std::vector<Cell>& cells, double progress = 0) {
  std::vector<CellState> states;
  for (const Cell& cell : cells) {
    const bool retrains = cell.work.kind == planner::Work::Kind::kRetrain;
    states.push_back({cell, 0, retrains ? progress : 0});
  }
  return states;
}

// Carries everything out, but for a share of changes by lot.
class TestPlant final : public Plant {
 public:
  TestPlant(const Estate& estate, double refuses, std::uint64_t seed)
      : estate_(estate), refuses_(refuses), random_(seed) {}

  [[nodiscard]] Result<void> Change(int, std::span<const CellState>,
                                    std::span<const Cell>) override {
    if (random_.Uniform() < refuses_) return Fail(ErrorCode::kUnavailable, kRefused);
    return {};
  }

  double Outcome(const planner::Work& work, int) override {
    return estate_.tenants[work.tenant].learning->options[work.retraining].accuracy;
  }

  static constexpr const char* kRefused = "refused by lot";

 private:
  const Estate& estate_;
  double refuses_;
  Random random_;
};

// Load by slot around the tenant's mean: a level that now and then steps.
inline std::vector<std::vector<double>> RandomLoads(const Estate& estate, int slots,
                                                    Random& random) {
  std::vector<std::vector<double>> loads;
  for (const EstateTenant& tenant : estate.tenants) {
    std::vector<double>& load = loads.emplace_back();
    double level = 1;
    for (int t = 0; t < slots; ++t) {
      if (random.Uniform() < 0.03) level = 0.3 + 1.5 * random.Uniform();
      load.push_back(std::max(0.0, tenant.mean_load * level * (1 + 0.1 * random.Normal())));
    }
  }
  return loads;
}

// What a loop told while `policy` decided over `loads`.
struct Drive {
  std::vector<LoopEvent> events;
  std::vector<std::vector<Cell>> cells;  // By slot.
};
inline Drive DriveLoop(const Estate& estate, Policy& policy,
                       const std::vector<std::vector<double>>& loads, double refuses = 0) {
  Drive drive;
  TestPlant plant(estate, refuses, 7);
  Loop loop(estate, policy, plant, [&](const LoopEvent& event) { drive.events.push_back(event); });
  for (int slot = 0; slot < static_cast<int>(loads.front().size()); ++slot) {
    std::vector<double> arrivals;
    for (const auto& load : loads) {
      arrivals.push_back(slot == 0 ? 0 : load[static_cast<std::size_t>(slot) - 1]);
    }
    loop.Begin(slot, arrivals);
    std::vector<Cell>& cells = drive.cells.emplace_back();
    for (const CellState& state : loop.view().cells) cells.push_back(state.cell);
  }
  return drive;
}

}  // namespace divvy::control::testing
