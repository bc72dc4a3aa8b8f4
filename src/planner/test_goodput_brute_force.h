#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "gpu/brute_force.h"
#include "planner/goodput.h"

// The best goodput by exhaustion, for tests: slow, obvious, and sharing no code with
// what it checks. What Value() means is written down here a second time on purpose.

namespace divvy::planner::testing {

// Tries every retraining of every tenant at every place and time and, for each of
// those, everything that can be on each place in each slot. Work that stays on its
// place goes on. For one GPU.
class GoodputByExhaustion {
 public:
  explicit GoodputByExhaustion(const GoodputProblem& problem) : problem_(problem) {
    std::vector<gpu::ProfileIndex> profiles;
    for (std::size_t p = 0; p < problem.gpu->profiles.size(); ++p) {
      bool used = false;
      for (const Tenant& tenant : problem.tenants) {
        used = used || tenant.capacity[p] > 0;
        for (const Retraining& way : tenant.retrainings) used = used || way.slots[p] > 0;
      }
      for (const Running& run : problem.present[0]) {
        used = used || static_cast<std::size_t>(run.place.profile) == p;
      }
      if (used) profiles.push_back(static_cast<gpu::ProfileIndex>(p));
    }
    places_ = gpu::brute_force::PlacesOf(*problem.gpu, profiles);
    AddStates(0, std::vector<int>(places_.size(), kFree));
  }

  double Best() {
    retrained_.assign(problem_.tenants.size(), std::nullopt);
    best_ = -1;
    for (const Running& run : problem_.present[0]) {
      if (run.work.kind != Work::Kind::kRetrain) continue;
      retrained_[run.work.tenant] = {PlaceIndex(run.place), 0, static_cast<int>(run.left),
                                     run.work.retraining};
    }
    ChooseRetraining(0);
    return best_;
  }

 private:
  static constexpr int kFree = -1;
  struct Retrained {
    std::size_t place;
    int begin;
    int end;
    std::size_t way;
  };
  // What a tenant does on a place, and until when it answers nothing.
  struct Seat {
    int tenant = kFree;
    double deaf_until = 0;
  };

  std::size_t PlaceIndex(gpu::MigInstance place) const {
    return static_cast<std::size_t>(std::ranges::find(places_, place) - places_.begin());
  }

  bool IsLegal(const std::vector<bool>& taken) const {
    std::vector<gpu::MigInstance> instances;
    for (std::size_t i = 0; i < taken.size(); ++i) {
      if (taken[i]) instances.push_back(places_[i]);
    }
    return gpu::brute_force::IsLegal(*problem_.gpu, instances);
  }

  // Every way for tenants to sit on places, legal or not together with retrainings.
  void AddStates(std::size_t place, std::vector<int> state) {
    if (place == places_.size()) {
      std::vector<bool> taken;
      for (const int tenant : state) taken.push_back(tenant != kFree);
      if (IsLegal(taken)) states_.push_back(std::move(state));
      return;
    }
    AddStates(place + 1, state);
    const auto profile = static_cast<std::size_t>(places_[place].profile);
    for (std::size_t m = 0; m < problem_.tenants.size(); ++m) {
      if (problem_.tenants[m].capacity[profile] <= 0) continue;
      state[place] = static_cast<int>(m);
      AddStates(place + 1, state);
    }
  }

  void ChooseRetraining(std::size_t m) {
    if (m == problem_.tenants.size()) return Serve();
    ChooseRetraining(m + 1);
    if (retrained_[m]) return;
    const auto& ways = problem_.tenants[m].retrainings;
    const int latest = std::min(problem_.slots, problem_.retrain_by.value_or(problem_.slots));
    for (std::size_t way = 0; way < ways.size(); ++way) {
      for (std::size_t place = 0; place < places_.size(); ++place) {
        const int takes = ways[way].slots[static_cast<std::size_t>(places_[place].profile)];
        for (int begin = 0; takes > 0 && begin + takes <= latest; ++begin) {
          retrained_[m] = {place, begin, begin + takes, way};
          ChooseRetraining(m + 1);
        }
      }
    }
    retrained_[m].reset();
  }

  double WorthAt(std::size_t m, int slot) const {
    const auto t = static_cast<std::size_t>(std::min(slot, problem_.slots - 1));
    const double before = problem_.tenants[m].worth[t];
    if (!retrained_[m] || slot < retrained_[m]->end) return before;
    return std::max(before, problem_.tenants[m].retrainings[retrained_[m]->way].worth[t]);
  }

  void Serve() {
    fitting_.assign(static_cast<std::size_t>(problem_.slots), {});
    for (int t = 0; t < problem_.slots; ++t) {
      for (const auto& state : states_) {
        std::vector<bool> taken;
        for (const int tenant : state) taken.push_back(tenant != kFree);
        bool clash = false;
        for (const auto& retrained : retrained_) {
          if (!retrained || t < retrained->begin || t >= retrained->end) continue;
          clash = clash || taken[retrained->place];
          taken[retrained->place] = true;
        }
        if (!clash && IsLegal(taken)) fitting_[static_cast<std::size_t>(t)].push_back(&state);
      }
    }
    double tails = 0;
    for (std::size_t m = 0; m < problem_.tenants.size(); ++m) {
      tails += problem_.tenants[m].tail * WorthAt(m, problem_.slots);
    }
    std::vector<Seat> seats(places_.size());
    for (const Running& run : problem_.present[0]) {
      if (run.work.kind != Work::Kind::kServe) continue;
      seats[PlaceIndex(run.place)] = {static_cast<int>(run.work.tenant), run.left};
    }
    Extend(0, seats, tails);
  }

  void Extend(int slot, const std::vector<Seat>& before, double value) {
    if (slot == problem_.slots) {
      best_ = std::max(best_, value);
      return;
    }
    const auto t = static_cast<std::size_t>(slot);
    for (const std::vector<int>* state : fitting_[t]) {
      std::vector<Seat> seats = before;
      std::vector<double> can(problem_.tenants.size());
      for (std::size_t i = 0; i < seats.size(); ++i) {
        const int tenant = (*state)[i];
        const bool begins = tenant != kFree && tenant != seats[i].tenant;
        seats[i].tenant = tenant;
        if (tenant == kFree) continue;
        const auto m = static_cast<std::size_t>(tenant);
        const Tenant& who = problem_.tenants[m];
        if (begins) seats[i].deaf_until = slot + who.restart;
        const double share = std::min(1.0, std::max(0.0, slot + 1 - seats[i].deaf_until));
        can[m] += share * who.capacity[static_cast<std::size_t>(places_[i].profile)];
      }
      double more = 0;
      for (std::size_t m = 0; m < can.size(); ++m) {
        more += WorthAt(m, slot) * std::min(can[m], problem_.tenants[m].load[t]);
      }
      Extend(slot + 1, seats, value + more);
    }
  }

  const GoodputProblem& problem_;
  std::vector<gpu::MigInstance> places_;
  std::vector<std::vector<int>> states_;                       // Tenant or kFree, by place.
  std::vector<std::vector<const std::vector<int>*>> fitting_;  // States by slot.
  std::vector<std::optional<Retrained>> retrained_;            // By tenant.
  double best_ = -1;
};

}  // namespace divvy::planner::testing
