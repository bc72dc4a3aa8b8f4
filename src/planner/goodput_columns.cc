#include "planner/goodput_columns.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "gpu/enumerate.h"

namespace divvy::planner {
namespace {

constexpr int kMostBins = 64;

bool Usable(const GoodputProblem& problem, std::size_t profile) {
  return std::ranges::any_of(problem.tenants, [&](const Tenant& tenant) {
    if (tenant.capacity[profile] > 0) return true;
    return std::ranges::any_of(tenant.retrainings,
                               [&](const Retraining& r) { return r.slots[profile] > 0; });
  });
}

bool Within(const Cuts::Counts& a, const Cuts::Counts& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] > b[i]) return false;
  }
  return true;
}

// Calls `each` with every way to write `total` as a sum of counts.size() numbers.
void Share(std::span<std::uint16_t> counts, int total, const std::function<void()>& each) {
  if (counts.size() == 1) {
    counts[0] = static_cast<std::uint16_t>(total);
    return each();
  }
  for (int first = 0; first <= total; ++first) {
    counts[0] = static_cast<std::uint16_t>(first);
    Share(counts.subspan(1), total - first, each);
  }
}

}  // namespace

Cuts::Cuts(const GoodputProblem& problem) : problem_(problem) {
  for (const gpu::ProfileIndex profile : problem.gpu->Select(gpu::ProfileSet::kBase)) {
    if (Usable(problem, static_cast<std::size_t>(profile))) profiles_.push_back(profile);
  }
  layouts_ = gpu::EnumerateMaximalLayouts(*problem.gpu, profiles_);
  for (const Tenant& tenant : problem.tenants) {
    const double sum = std::accumulate(tenant.load.begin(), tenant.load.end(), 0.0);
    mean_load_.push_back(std::max(sum / problem.slots, 1e-9));
  }
}

std::size_t Cuts::Position(gpu::ProfileIndex profile) const {
  return static_cast<std::size_t>(std::ranges::find(profiles_, profile) - profiles_.begin());
}

const std::vector<Cuts::Counts>& Cuts::Offers(const Pins& pins) {
  const auto [found, fresh] = offers_.try_emplace(pins);
  std::vector<Counts>& offers = found->second;
  if (!fresh) return offers;
  std::vector<Counts> all;
  for (const gpu::MigLayout& layout : layouts_) {
    if (!std::ranges::includes(layout.instances(), pins)) continue;
    Counts counts(profiles_.size());
    for (const gpu::MigInstance& instance : layout.instances()) {
      if (!std::ranges::binary_search(pins, instance)) ++counts[Position(instance.profile)];
    }
    all.push_back(std::move(counts));
  }
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  for (const Counts& counts : all) {
    const bool less = std::ranges::any_of(
        all, [&](const Counts& other) { return other != counts && Within(counts, other); });
    if (!less) offers.push_back(counts);
  }
  return offers;
}

const std::vector<Allocation>& Cuts::Allocations(const Pins& pins,
                                                 const std::vector<std::size_t>& tenants) {
  const auto [found, fresh] = allocations_.try_emplace({pins, tenants});
  std::vector<Allocation>& allocations = found->second;
  if (!fresh) return allocations;
  const std::size_t width = profiles_.size();
  Allocation allocation{std::vector<std::uint16_t>(problem_.tenants.size() * width)};
  for (const Counts& offer : Offers(pins)) {
    const std::function<void(std::size_t)> give = [&](std::size_t position) {
      if (position == width) {
        allocations.push_back(allocation);
        return;
      }
      std::vector<std::size_t> able;
      for (const std::size_t m : tenants) {
        const auto profile = static_cast<std::size_t>(profiles_[position]);
        if (problem_.tenants[m].capacity[profile] > 0) able.push_back(m);
      }
      std::vector<std::uint16_t> shares(able.size());
      if (able.empty()) return give(position + 1);
      Share(shares, offer[position], [&] {
        for (std::size_t i = 0; i < able.size(); ++i) {
          allocation.counts[able[i] * width + position] = shares[i];
        }
        give(position + 1);
      });
      for (const std::size_t m : able) allocation.counts[m * width + position] = 0;
    };
    give(0);
  }
  std::ranges::sort(allocations);
  allocations.erase(std::unique(allocations.begin(), allocations.end()), allocations.end());
  return allocations;
}

double Cuts::CapacityOf(const Allocation& allocation, std::size_t tenant) const {
  double capacity = 0;
  for (std::size_t i = 0; i < profiles_.size(); ++i) {
    capacity += allocation.counts[tenant * profiles_.size() + i] *
                problem_.tenants[tenant].capacity[static_cast<std::size_t>(profiles_[i])];
  }
  return capacity;
}

WorthTable::WorthTable(const GoodputProblem& problem, const Cuts& cuts,
                       const std::vector<Allocation>& allocations, const Residual& residual)
    : slots_(problem.slots),
      bins_(std::min(problem.slots, kMostBins)),
      size_(allocations.size()),
      prefix_(static_cast<std::size_t>(bins_ + 1) * size_) {
  // A bin's worth is computed from its slots' mean load: exact where load is steady.
  std::vector<int> first(static_cast<std::size_t>(bins_) + 1, slots_);
  for (int t = slots_ - 1; t >= 0; --t) first[static_cast<std::size_t>(BinOf(t))] = t;
  const auto bins = static_cast<std::size_t>(bins_);
  for (std::size_t m = 0; m < problem.tenants.size(); ++m) {
    std::vector<double> level(size_);
    double most = 0;
    for (std::size_t s = 0; s < size_; ++s) {
      level[s] = cuts.CapacityOf(allocations[s], m);
      most = std::max(most, level[s]);
    }
    if (most <= 0) continue;
    for (std::size_t bin = 0; bin < bins; ++bin) {
      double load = 0;
      double worth = 0;
      for (int t = first[bin]; t < first[bin + 1]; ++t) {
        load += residual.load[m][static_cast<std::size_t>(t)];
        worth += residual.worth[m][static_cast<std::size_t>(t)];
      }
      load /= first[bin + 1] - first[bin];
      if (load <= 0 || worth <= 0) continue;
      double* row = &prefix_[(bin + 1) * size_];
      for (std::size_t s = 0; s < size_; ++s) row[s] += worth * std::min(load, level[s]);
    }
  }
  for (std::size_t i = size_; i < prefix_.size(); ++i) prefix_[i] += prefix_[i - size_];
}

WorthTable::Best WorthTable::BestOver(int from, int to) const {
  const double* begin = &prefix_[static_cast<std::size_t>(from) * size_];
  const double* end = &prefix_[static_cast<std::size_t>(to) * size_];
  Best best{0, -std::numeric_limits<double>::infinity()};
  for (std::size_t s = 0; s < size_; ++s) {
    if (end[s] - begin[s] > best.worth) best = {s, end[s] - begin[s]};
  }
  return best;
}

}  // namespace divvy::planner
