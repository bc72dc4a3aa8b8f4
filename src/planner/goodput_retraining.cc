#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "planner/goodput_search.h"

namespace divvy::planner {
namespace {

// So many of the promising ways to retrain are tried out.
constexpr std::size_t kTrials = 4;
constexpr std::size_t kPairTrials = 1;

// What the others hope for at most.
double SecondBest(const std::vector<std::pair<double, std::size_t>>& hopes, std::size_t but) {
  double best = 0;
  for (const auto& [hope, m] : hopes) {
    if (m != but) best = std::max(best, hope);
  }
  return best;
}

Cuts::Pins With(Cuts::Pins pins, gpu::MigInstance place) {
  pins.insert(std::ranges::upper_bound(pins, place), place);
  return pins;
}

}  // namespace

// What `option` brings when it is done at each slot.
std::vector<double> GoodputSearch::GainsOf(std::size_t tenant, const Retraining& option) const {
  const Tenant& who = problem_.tenants[tenant];
  const auto slots = static_cast<std::size_t>(problem_.slots);
  std::vector<double> gains(slots + 1);
  gains[slots] = who.tail * std::max(0.0, option.worth.back() - who.worth.back());
  for (std::size_t t = slots; t-- > 0;) {
    double capacity = 0;
    for (const SlotTable& table : state_.capacity) capacity += table[tenant][t];
    gains[t] = gains[t + 1] +
               std::max(0.0, option.worth[t] - who.worth[t]) * std::min(who.load[t], capacity);
  }
  return gains;
}

// What a place costs while it is pinned: the best use of the GPU without the pin less
// that with it, changes being free. Places that leave the same offers are looked at once.
std::vector<GoodputSearch::PinLoss> GoodputSearch::PinLosses(std::size_t gpu) {
  const Residual residual = ResidualFor(gpu);
  const std::vector<std::size_t> tenants = TenantsFor(gpu, residual);
  const std::vector<Phase> phases = PhasesOf(gpu);
  const auto slots = static_cast<std::size_t>(problem_.slots);
  std::map<Cuts::Pins, std::vector<double>> best;  // A slot's worth, by slot.
  const auto best_with = [&](const Cuts::Pins& pins) -> const std::vector<double>& {
    const auto [found, fresh] = best.try_emplace(pins, slots);
    const auto& allocations = cuts_.Allocations(pins, tenants);
    if (!fresh || allocations.empty()) return found->second;
    const WorthTable table(problem_, cuts_, allocations, residual);
    std::vector<double> by_bin;
    for (int bin = 0; bin < table.bins(); ++bin) {
      by_bin.push_back(table.BestOver(bin, bin + 1).worth * table.bins() / problem_.slots);
    }
    for (std::size_t t = 0; t < slots; ++t) {
      found->second[t] = by_bin[static_cast<std::size_t>(table.BinOf(static_cast<int>(t)))];
    }
    return found->second;
  };
  std::vector<PinLoss> losses;
  std::set<std::pair<gpu::ProfileIndex, std::vector<std::vector<Cuts::Counts>>>> seen;
  for (const gpu::ProfileIndex profile : cuts_.profiles()) {
    for (const int start : problem_.gpu->profile(profile).starts) {
      PinLoss loss{{start, profile}, {0}, std::vector<int>(slots, problem_.slots)};
      std::vector<std::vector<Cuts::Counts>> offers;
      for (const Phase& phase : phases) {
        offers.push_back(cuts_.Offers(With(phase.pins, loss.place)));
      }
      if (!seen.emplace(profile, offers).second) continue;
      for (std::size_t i = 0; i < phases.size(); ++i) {
        const std::vector<double>& free = best_with(phases[i].pins);
        const std::vector<double>& pinned = best_with(With(phases[i].pins, loss.place));
        for (int t = phases[i].begin; t < phases[i].end; ++t) {
          const auto at = static_cast<std::size_t>(t);
          loss.before.push_back(loss.before.back() + free[at] - pinned[at]);
        }
      }
      int until = problem_.slots;
      for (std::size_t i = phases.size(); i-- > 0;) {
        for (int t = phases[i].end - 1; t >= phases[i].begin; --t) {
          if (offers[i].empty()) until = t;
          loss.possible_until[static_cast<std::size_t>(t)] = until;
        }
      }
      losses.push_back(std::move(loss));
    }
  }
  return losses;
}

// The most promising ways to retrain a tenant that has no retraining, one at most for
// each place and option.
std::vector<GoodputSearch::Trial> GoodputSearch::Trials(std::size_t tenant, std::size_t most) {
  const Tenant& who = problem_.tenants[tenant];
  std::vector<Trial> trials;
  for (std::size_t o = 0; o < who.retrainings.size(); ++o) {
    const std::vector<double> gains = GainsOf(tenant, who.retrainings[o]);
    for (std::size_t gpu = 0; gpu < problem_.present.size(); ++gpu) {
      if (!pin_losses_[gpu]) pin_losses_[gpu] = PinLosses(gpu);
      for (const PinLoss& loss : *pin_losses_[gpu]) {
        const auto profile = static_cast<std::size_t>(loss.place.profile);
        const int takes = who.retrainings[o].slots[profile];
        if (takes <= 0) continue;
        Trial best{gpu, {}, 0};
        for (int begin = 0; begin + takes <= problem_.retrain_limit(); ++begin) {
          const auto from = static_cast<std::size_t>(begin);
          const auto to = from + static_cast<std::size_t>(takes);
          if (loss.possible_until[from] < begin + takes) continue;
          const double promise = gains[to] - (loss.before[to] - loss.before[from]);
          if (promise <= best.promise) continue;
          const Work work{Work::Kind::kRetrain, tenant, o};
          best = {gpu, {loss.place, begin, begin + takes, work}, promise};
        }
        if (best.promise > 0) trials.push_back(best);
      }
    }
  }
  std::ranges::stable_sort(trials, std::greater<>(), &Trial::promise);
  if (trials.size() > most) trials.resize(most);
  return trials;
}

bool GoodputSearch::Movable(std::size_t tenant) const {
  const auto gpu = GpuThatRetrains(tenant);
  if (!gpu) return false;
  const auto& stretches = state_.schedule.gpus[*gpu];
  return std::ranges::none_of(stretches, [&](const Stretch& stretch) {
    return stretch.work.kind == Work::Kind::kRetrain && stretch.work.tenant == tenant &&
           IsRunning(*gpu, stretch);
  });
}

void GoodputSearch::RemoveRetraining(std::size_t tenant) {
  const std::size_t gpu = *GpuThatRetrains(tenant);
  std::vector<Stretch> stretches = state_.schedule.gpus[gpu];
  std::erase_if(stretches, [&](const Stretch& stretch) {
    return stretch.work.kind == Work::Kind::kRetrain && stretch.work.tenant == tenant;
  });
  Replace(gpu, std::move(stretches));
  ImproveGpu(gpu, Effort::kQuick);
  pin_losses_[gpu].reset();
}

// Gives a tenant without a retraining the best of those that promise most, or none.
void GoodputSearch::InsertBest(std::size_t tenant, std::size_t most) {
  const State without = state_;
  State best = without;
  for (const Trial& trial : Trials(tenant, most)) {
    state_ = without;
    std::vector<Stretch> stretches = without.schedule.gpus[trial.gpu];
    // Serving gives way for the moment; what is then best is found anew.
    std::erase_if(stretches,
                  [](const Stretch& stretch) { return stretch.work.kind == Work::Kind::kServe; });
    stretches.push_back(trial.stretch);
    Replace(trial.gpu, std::move(stretches));
    ImproveGpu(trial.gpu, Effort::kQuick);
    if (state_.value > best.value) best = state_;
  }
  state_ = std::move(best);
  // Where it is now, places are taken.
  if (const auto gpu = GpuThatRetrains(tenant)) pin_losses_[*gpu].reset();
}

void GoodputSearch::AddRetrainings() {
  Forget();
  // What each would bring, as far as is known: it falls as others are added, so one that
  // is still the best when looked at again is the best.
  std::vector<std::pair<double, std::size_t>> hopes;
  for (std::size_t m = 0; m < problem_.tenants.size(); ++m) {
    const bool open = !problem_.tenants[m].retrainings.empty() && !GpuThatRetrains(m);
    if (open) hopes.emplace_back(std::numeric_limits<double>::infinity(), m);
  }
  while (!hopes.empty()) {
    const auto most = std::ranges::max_element(hopes, {}, [](const auto& h) { return h.first; });
    const State before = state_;
    InsertBest(most->second, kTrials);
    const double gain = state_.value - before.value;
    const double next = SecondBest(hopes, most->second);
    if (gain > 0 && gain < next) {
      most->first = gain;
      state_ = before;
      Forget();
      continue;
    }
    hopes.erase(most);
  }
}

// Takes the retrainings of `tenants` out and puts them back in this order.
bool GoodputSearch::Reinsert(std::span<const std::size_t> tenants) {
  const State before = state_;
  for (const std::size_t m : tenants) {
    if (GpuThatRetrains(m)) RemoveRetraining(m);
  }
  for (const std::size_t m : tenants) InsertBest(m, tenants.size() == 1 ? kTrials : kPairTrials);
  if (state_.value > before.value) return true;
  state_ = before;
  Forget();
  return false;
}

bool GoodputSearch::ImproveRetrainings() {
  Forget();
  const double before = state_.value;
  std::vector<std::size_t> open;
  for (std::size_t m = 0; m < problem_.tenants.size(); ++m) {
    const bool can = !problem_.tenants[m].retrainings.empty();
    if (can && (Movable(m) || !GpuThatRetrains(m))) open.push_back(m);
  }
  for (const std::size_t m : open) Reinsert(std::array{m});
  for (const std::size_t a : open) {
    for (const std::size_t b : open) {
      // Those that are elsewhere do not stand in the way.
      const auto gpu = GpuThatRetrains(a);
      if (a == b || !gpu || (GpuThatRetrains(b) && GpuThatRetrains(b) != gpu)) continue;
      Reinsert(std::array{b, a});
    }
  }
  return state_.value > before;
}

}  // namespace divvy::planner
