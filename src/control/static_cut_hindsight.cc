#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "control/static_cut.h"
#include "planner/goodput_columns.h"

// With a cut that stays, a tenant's goodput depends on its capacity alone, so every way
// to use a GPU is judged exactly and quickly. What answers are worth depends on when
// retrainings end, and their order on what is answered: one is held while the other is
// improved.

namespace divvy::control {
namespace {

using planner::Allocation;
using planner::Cuts;
using planner::Work;

constexpr int kStarts = 4;  // Where several GPUs make it matter.
constexpr int kRounds = 4;

// Goodput of one tenant by capacity.
class GoodputCurve {
 public:
  GoodputCurve(const std::vector<double>& load, const std::vector<double>& worth) {
    std::vector<std::size_t> order(load.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, {}, [&](std::size_t t) { return load[t]; });
    double below = 0;
    double above = std::accumulate(worth.begin(), worth.end(), 0.0);
    for (const std::size_t t : order) {
      loads_.push_back(load[t]);
      below_.push_back(below);
      above_.push_back(above);
      below += worth[t] * load[t];
      above -= worth[t];
    }
    all_ = below;
  }

  double At(double capacity) const {
    const auto full = std::ranges::upper_bound(loads_, capacity);
    if (full == loads_.end()) return all_;
    const auto i = static_cast<std::size_t>(full - loads_.begin());
    return below_[i] + capacity * above_[i];
  }

 private:
  std::vector<double> loads_;  // Ascending.
  std::vector<double> below_;  // Goodput of all slots with less load.
  std::vector<double> above_;  // Worth of the others.
  double all_ = 0;
};

// The estate as the planner knows it, for the ways to use a GPU.
planner::GoodputProblem ProblemOf(const Estate& estate) {
  planner::GoodputProblem problem{estate.gpu, 1, {}, {}, {}};
  problem.present.resize(static_cast<std::size_t>(estate.gpus));
  for (const EstateTenant& tenant : estate.tenants) {
    planner::Tenant& made = problem.tenants.emplace_back();
    made.name = tenant.name;
    made.load = {tenant.mean_load};
    made.worth = {1};
    planner::Retraining retraining{"any", {}, {1}};
    for (const Offer& offer : tenant.by_profile) {
      made.capacity.push_back(offer.capacity);
      const bool any = std::ranges::any_of(offer.retraining_slots, [](double s) { return s > 0; });
      retraining.slots.push_back(any ? 1 : 0);
    }
    made.retrainings.push_back(std::move(retraining));
  }
  return problem;
}

class HindsightSearch {
 public:
  HindsightSearch(const Estate& estate, Loads loads)
      : estate_(estate), loads_(loads), problem_(ProblemOf(estate)), cuts_(problem_) {
    everyone_.resize(estate.tenants.size());
    std::iota(everyone_.begin(), everyone_.end(), 0);
  }

  FixedCut Run() {
    for (const std::vector<RetrainingPlace>& places : WaysToSetAside()) {
      pins_.assign(static_cast<std::size_t>(estate_.gpus), {});
      for (const RetrainingPlace& place : places) {
        pins_[static_cast<std::size_t>(place.gpu)].push_back(place.place);
      }
      for (int start = 0; start < (estate_.gpus > 1 ? kStarts : 1); ++start) {
        Improve(places, start);
      }
    }
    return best_;
  }

 private:
  // One instance, or one on each of two GPUs. Of places that leave the same to the
  // others the first will do.
  std::vector<std::vector<RetrainingPlace>> WaysToSetAside() {
    std::vector<std::vector<RetrainingPlace>> ways = {{}};
    for (const gpu::ProfileIndex profile : cuts_.profiles()) {
      const bool any = std::ranges::any_of(problem_.tenants, [&](const planner::Tenant& tenant) {
        return tenant.retrainings.front().slots[static_cast<std::size_t>(profile)] > 0;
      });
      std::vector<std::vector<Cuts::Counts>> seen;
      for (const int start : estate_.gpu->profile(profile).starts) {
        const gpu::MigInstance place{start, profile};
        const std::vector<Cuts::Counts>& offers = cuts_.Offers({place});
        if (!any || offers.empty() || std::ranges::find(seen, offers) != seen.end()) continue;
        seen.push_back(offers);
        ways.push_back({{0, place}});
        if (estate_.gpus > 1) ways.push_back({{0, place}, {1, place}});
      }
    }
    return ways;
  }

  // From GPUs that are used in any way: none at first, lots later.
  void Improve(const std::vector<RetrainingPlace>& places, int start) {
    Random random(static_cast<std::uint64_t>(start));
    std::vector<Allocation> uses;
    for (const Cuts::Pins& pins : pins_) {
      const std::vector<Allocation>& all = cuts_.Allocations(pins, everyone_);
      if (all.empty()) return;
      uses.push_back(all[start == 0 ? 0 : random.Below(all.size())]);
    }
    if (start == 0) {
      for (Allocation& use : uses) use.counts.assign(use.counts.size(), 0);
    }
    CutCourse course = FollowCut(estate_, Realise(places, uses), loads_);
    for (int round = 0; round < kRounds; ++round) {
      Ascend(course.worth, uses);
      FixedCut cut = Realise(places, uses);
      CutCourse next = FollowCut(estate_, cut, loads_);
      if (!found_ || next.goodput > most_) {
        found_ = true;
        most_ = next.goodput;
        best_ = std::move(cut);
      }
      if (next.goodput <= course.goodput) break;
      course = std::move(next);
    }
  }

  // Each GPU in turn as is best beside the others, until none can do better.
  void Ascend(const std::vector<std::vector<double>>& worth, std::vector<Allocation>& uses) {
    std::vector<GoodputCurve> curves;
    std::vector<double> capacity(loads_.size());
    for (std::size_t m = 0; m < loads_.size(); ++m) {
      curves.emplace_back(loads_[m], worth[m]);
      for (const Allocation& use : uses) capacity[m] += cuts_.CapacityOf(use, m);
    }
    for (bool better = true; better;) {
      better = false;
      for (std::size_t g = 0; g < uses.size(); ++g) {
        for (const std::size_t m : everyone_) capacity[m] -= cuts_.CapacityOf(uses[g], m);
        const auto value = [&](const Allocation& use) {
          double sum = 0;
          for (const std::size_t m : everyone_) {
            sum += curves[m].At(capacity[m] + cuts_.CapacityOf(use, m));
          }
          return sum;
        };
        double most = value(uses[g]);
        const double enough = 1e-9 * (1 + most);
        for (const Allocation& use : cuts_.Allocations(pins_[g], everyone_)) {
          const double sum = value(use);
          if (sum <= most + enough) continue;
          most = sum;
          uses[g] = use;
          better = true;
        }
        for (const std::size_t m : everyone_) capacity[m] += cuts_.CapacityOf(uses[g], m);
      }
    }
  }

  FixedCut Realise(const std::vector<RetrainingPlace>& places,
                   const std::vector<Allocation>& uses) const {
    FixedCut cut{{}, places};
    for (std::size_t g = 0; g < uses.size(); ++g) Seat(g, uses[g], cut);
    return cut;
  }

  // Puts the instances of one GPU's use on the first layout that has them.
  void Seat(std::size_t g, const Allocation& use, FixedCut& cut) const {
    const std::size_t width = cuts_.profiles().size();
    for (const gpu::MigLayout& layout : cuts_.layouts()) {
      if (!std::ranges::includes(layout.instances(), pins_[g])) continue;
      auto left = use.counts;
      std::vector<Cell> cells;
      for (const gpu::MigInstance& instance : layout.instances()) {
        if (std::ranges::binary_search(pins_[g], instance)) continue;
        const std::size_t position = cuts_.Position(instance.profile);
        for (const std::size_t m : everyone_) {
          if (left[m * width + position] == 0) continue;
          --left[m * width + position];
          cells.push_back({static_cast<int>(g), instance, {Work::Kind::kServe, m, 0}});
          break;
        }
      }
      if (std::ranges::any_of(left, [](auto n) { return n > 0; })) continue;
      cut.serving.insert(cut.serving.end(), cells.begin(), cells.end());
      return;
    }
    Check(false, "every allocation fits a layout");
  }

  const Estate& estate_;
  Loads loads_;
  const planner::GoodputProblem problem_;
  Cuts cuts_;
  std::vector<std::size_t> everyone_;
  std::vector<Cuts::Pins> pins_;  // By GPU, of what is tried now.
  FixedCut best_;
  double most_ = 0;
  bool found_ = false;
};

}  // namespace

FixedCut PlanHindsightCut(const Estate& estate, Loads loads) {
  return HindsightSearch(estate, loads).Run();
}

std::unique_ptr<Policy> HindsightCut(const Estate& estate, Loads loads) {
  return std::make_unique<StaticCut>(estate, PlanHindsightCut(estate, loads), "hindsight");
}

}  // namespace divvy::control
