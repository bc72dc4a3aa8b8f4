#include "planner/goodput_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "planner/goodput_relaxed.h"
#include "planner/goodput_tally.h"

namespace divvy::planner {
namespace {

// Times at which instances may begin while prices are looked for; few are quick.
constexpr int kCoarseTimes = 40;

// Time grows with the cube of slots, memory with the square: beyond this many there is
// only the coarsest bound.
constexpr int kMostSlots = 400;

// Steps at full resolution, once prices are nearly right.
constexpr int kFineSteps = 3;

std::vector<int> Grid(int slots, int most) {
  const int cells = std::min(slots, most);
  std::vector<int> times;
  for (int i = 0; i <= cells; ++i) times.push_back(i * slots / cells);
  return times;
}

// If all requests were answered by the best model that there could be.
double AllAnswered(const GoodputProblem& problem) {
  double value = 0;
  for (const Tenant& tenant : problem.tenants) {
    std::vector<double> worth = tenant.worth;
    for (const Retraining& option : tenant.retrainings) {
      for (std::size_t t = 0; t < worth.size(); ++t) worth[t] = std::max(worth[t], option.worth[t]);
    }
    for (std::size_t t = 0; t < worth.size(); ++t) value += tenant.load[t] * worth[t];
    value += tenant.tail * worth.back();
  }
  return value;
}

class PriceSearch {
 public:
  PriceSearch(const GoodputProblem& problem, const GoodputSchedule& good)
      : problem_(problem), target_(Value(problem, good)) {
    const SlotTable capacity = CapacityOf(problem, good);
    const auto retrainings = RetrainingsOf(problem, good);
    for (std::size_t m = 0; m < problem.tenants.size(); ++m) {
      // A request that is not answered is worth what it would bring; one more where all
      // are is worth little.
      std::vector<double> price = WorthOf(problem, m, retrainings[m]);
      double load = 0;
      for (std::size_t t = 0; t < price.size(); ++t) {
        if (capacity[m][t] >= problem.tenants[m].load[t]) price[t] *= kSated;
        load += problem.tenants[m].load[t];
      }
      prices_.request.push_back(std::move(price));
      prices_.retraining.push_back(0);
      retraining_scale_.push_back(0.05 * (load + problem.tenants[m].tail));
    }
  }

  // Takes `steps` on `gpus`; returns the least bound seen and keeps its prices.
  double Descend(RelaxedGpus& gpus, int steps) {
    double least = std::numeric_limits<double>::infinity();
    double pace = 1;
    int stuck = 0;
    Prices best = prices_;
    for (int step = 0; step <= steps; ++step) {
      const Earnings earnings = gpus.Earn(prices_);
      const double bound = earnings.total + TenantsSide();
      if (bound < least - 1e-9 * std::abs(bound)) {
        least = bound;
        best = prices_;
        stuck = 0;
      } else if (++stuck == kPatience) {
        pace /= 2;
        stuck = 0;
        prices_ = best;
      }
      if (step < steps) Step(earnings, bound, pace);
    }
    prices_ = best;
    return least;
  }

 private:
  static constexpr double kSated = 0.1;
  static constexpr int kPatience = 4;

  // What tenants keep when they pay the prices.
  double TenantsSide() const {
    double total = 0;
    for (std::size_t m = 0; m < problem_.tenants.size(); ++m) {
      const Tenant& who = problem_.tenants[m];
      for (std::size_t t = 0; t < who.load.size(); ++t) {
        total += who.load[t] * std::max(0.0, who.worth[t] - prices_.request[m][t]);
      }
      total += TailOf(problem_, m, nullptr) + prices_.retraining[m];
    }
    return total;
  }

  // Against the slope of the bound: where capacity is offered beyond what tenants take
  // at these prices, the price falls.
  void Step(const Earnings& earnings, double bound, double pace) {
    const std::size_t tenants = problem_.tenants.size();
    SlotTable slope = earnings.capacity;
    std::vector<double> retrain_slope(tenants);
    double norm = 0;
    for (std::size_t m = 0; m < tenants; ++m) {
      const Tenant& who = problem_.tenants[m];
      for (std::size_t t = 0; t < who.load.size(); ++t) {
        const double price = prices_.request[m][t];
        const double before = who.worth[t] > price ? 1 : 0;
        double taken = before;
        for (const Stretch& use : earnings.retrain[m]) {
          if (static_cast<int>(t) < use.end) continue;
          const double after = who.retrainings[use.work.retraining].worth[t];
          taken += (std::max(after, who.worth[t]) > price ? 1 : 0) - before;
        }
        slope[m][t] -= taken * who.load[t];
        // A price that cannot move further does not count.
        if (slope[m][t] > 0 && price <= 0) slope[m][t] = 0;
        norm += slope[m][t] * slope[m][t];
      }
      retrain_slope[m] = 1 - static_cast<double>(earnings.retrain[m].size());
      if (retrain_slope[m] > 0 && prices_.retraining[m] <= 0) retrain_slope[m] = 0;
      norm += std::pow(retrain_slope[m] * retraining_scale_[m], 2);
    }
    if (norm <= 0) return;
    const double length = pace * std::max(bound - target_, 0.0) / norm;
    for (std::size_t m = 0; m < tenants; ++m) {
      for (std::size_t t = 0; t < slope[m].size(); ++t) {
        double& price = prices_.request[m][t];
        price = std::max(0.0, price - length * slope[m][t]);
      }
      double& price = prices_.retraining[m];
      price = std::max(
          0.0, price - length * retrain_slope[m] * retraining_scale_[m] * retraining_scale_[m]);
    }
  }

  const GoodputProblem& problem_;
  double target_;
  Prices prices_;
  std::vector<double> retraining_scale_;
};

}  // namespace

double GoodputBound(const GoodputProblem& problem, const GoodputSchedule& good, int steps) {
  if (steps == 0 || problem.slots > kMostSlots) return AllAnswered(problem);
  PriceSearch search(problem, good);
  if (problem.slots > kCoarseTimes) {
    RelaxedGpus coarse(problem, Grid(problem.slots, kCoarseTimes));
    (void)search.Descend(coarse, steps);
  }
  RelaxedGpus fine(problem, Grid(problem.slots, problem.slots));
  return search.Descend(fine, problem.slots > kCoarseTimes ? kFineSteps : steps);
}

}  // namespace divvy::planner
