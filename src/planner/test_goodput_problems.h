#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "base/random.h"
#include "gpu/enumerate.h"
#include "gpu/mig_layout.h"
#include "planner/goodput.h"

// Windows of continuous learning by seed, for tests and benches.

namespace divvy::planner {

struct RandomWindow {
  int gpus = 1;
  int tenants = 4;
  int slots = 200;
  bool retraining = true;
};

// Load as a level with a swing, steps or bursts; demand between half and one and a half
// of what the GPUs can do; two ways to retrain.
inline Tenant RandomTenant(const gpu::GpuModel& gpu, const RandomWindow& window, Random& random) {
  Tenant tenant;
  const auto slots = static_cast<std::size_t>(window.slots);
  const double speed = 20 * std::exp(3 * random.Uniform());
  const double bend = 0.6 + 0.4 * random.Uniform();
  for (const gpu::MigProfile& profile : gpu.profiles) {
    const bool fits = gpu::Belongs(profile, gpu::ProfileSet::kBase) &&
                      (profile.compute_slices > 1 || random.Uniform() < 0.8);
    tenant.capacity.push_back(fits ? speed * std::pow(profile.compute_slices, bend) : 0);
  }
  const double whole = speed * std::pow(gpu.compute_slices, bend);
  const double level = whole * window.gpus / window.tenants * (0.5 + random.Uniform());
  const double swing = 0.9 * random.Uniform();
  const double phase = 2 * std::numbers::pi * random.Uniform();
  const double turns = 0.5 + 3 * random.Uniform();
  const bool steps = random.Uniform() < 0.4;
  double step = 1;
  for (std::size_t t = 0; t < slots; ++t) {
    if (steps && random.Uniform() < 6.0 / static_cast<double>(slots)) {
      step = 0.3 + 1.7 * random.Uniform();
    }
    const double angle =
        2 * std::numbers::pi * turns * static_cast<double>(t) / static_cast<double>(slots) + phase;
    const double mean = level * step * (1 + swing * std::sin(angle));
    tenant.load.push_back(mean * (1 + 0.1 * random.Normal()));
    tenant.load.back() = std::max(0.0, tenant.load.back());
  }
  const double accuracy = 0.5 + 0.4 * random.Uniform();
  const double drift = 0.1 * random.Uniform() / static_cast<double>(slots);
  for (std::size_t t = 0; t < slots; ++t) {
    tenant.worth.push_back(accuracy - drift * static_cast<double>(t));
  }
  constexpr double kRestarts[] = {0, 0.3, 1.3, 6, 25};
  tenant.restart = kRestarts[random.Below(5)] * (window.slots < 100 ? 0.2 : 1);
  tenant.tail = level * 0.2 * static_cast<double>(slots) * random.Uniform();
  for (int o = 0; window.retraining && o < 2; ++o) {
    Retraining option;
    option.name = o == 0 ? "quick" : "full";
    const double work = static_cast<double>(slots) * (0.15 + 0.5 * random.Uniform()) * (1 + o);
    for (const gpu::MigProfile& profile : gpu.profiles) {
      const bool fits = gpu::Belongs(profile, gpu::ProfileSet::kBase);
      const double takes = work / std::pow(profile.compute_slices, 0.8);
      option.slots.push_back(fits ? std::max(1, static_cast<int>(takes)) : 0);
    }
    const double gain = (0.02 + 0.15 * random.Uniform()) * (1 + o);
    for (std::size_t t = 0; t < slots; ++t) option.worth.push_back(tenant.worth[t] + gain);
    tenant.retrainings.push_back(std::move(option));
  }
  return tenant;
}

inline GoodputProblem RandomProblem(const gpu::GpuModel& gpu, const RandomWindow& window,
                                    std::uint64_t seed) {
  Random random(seed);
  GoodputProblem problem{&gpu, window.slots, {}, {}};
  for (int m = 0; m < window.tenants; ++m) {
    problem.tenants.push_back(RandomTenant(gpu, window, random));
    problem.tenants.back().name = "tenant-" + std::to_string(m);
  }
  const auto layouts = gpu::EnumerateMaximalLayouts(gpu, gpu.Select(gpu::ProfileSet::kBase));
  for (int g = 0; g < window.gpus; ++g) {
    auto& running = problem.present.emplace_back();
    if (random.Uniform() < 0.2) continue;
    for (const gpu::MigInstance& place : layouts[random.Below(layouts.size())].instances()) {
      const std::size_t m = random.Below(problem.tenants.size());
      const double left = random.Uniform() < 0.1 ? random.Uniform() * 3 : 0;
      if (problem.tenants[m].capacity[static_cast<std::size_t>(place.profile)] <= 0) continue;
      running.push_back({place, {Work::Kind::kServe, m, 0}, left});
    }
    // Now and then a retraining runs already.
    if (!window.retraining || running.empty() || random.Uniform() < 0.7) continue;
    Running& first = running[random.Below(running.size())];
    bool busy = false;
    for (const auto& others : problem.present) {
      for (const Running& other : others) {
        busy = busy ||
               (other.work.kind == Work::Kind::kRetrain && other.work.tenant == first.work.tenant);
      }
    }
    if (busy) continue;
    first.work.kind = Work::Kind::kRetrain;
    first.left = 1 + static_cast<double>(random.Below(static_cast<std::size_t>(window.slots) / 2));
  }
  return problem;
}

}  // namespace divvy::planner
