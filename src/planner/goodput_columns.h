#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "planner/goodput.h"
#include "planner/goodput_tally.h"

namespace divvy::planner {

// What is left for one GPU to answer when the others have done their part, by tenant
// and slot, and what answers are worth.
struct Residual {
  SlotTable load;
  SlotTable worth;
};

// One way to use a GPU: how many instances of each profile serve each tenant, wherever
// they are.
struct Allocation {
  std::vector<std::uint16_t> counts;  // By tenant, then position in Cuts::profiles().

  friend auto operator<=>(const Allocation&, const Allocation&) = default;
};

// The ways to cut the GPUs of a problem, around instances that must stay ("pins").
// Remembers what it enumerated; not thread-safe.
class Cuts {
 public:
  explicit Cuts(const GoodputProblem& problem);

  // Profiles that some tenant can use, and the layouts of them to which nothing can be
  // added.
  const std::vector<gpu::ProfileIndex>& profiles() const { return profiles_; }
  const std::vector<gpu::MigLayout>& layouts() const { return layouts_; }
  std::size_t Position(gpu::ProfileIndex profile) const;

  using Pins = std::vector<gpu::MigInstance>;  // Sorted.
  using Counts = std::vector<std::uint16_t>;   // By position of the profile.

  // What layouts with these pins offer beside them; none offers less of all than another.
  const std::vector<Counts>& Offers(const Pins& pins);

  // Every way to give the instances of the offers to `tenants`. Instances that none of
  // them can use are left out.
  const std::vector<Allocation>& Allocations(const Pins& pins,
                                             const std::vector<std::size_t>& tenants);

  // Requests a slot that a tenant has on average; above 0.
  double MeanLoad(std::size_t tenant) const { return mean_load_[tenant]; }

  // Requests a slot that an allocation answers for a tenant.
  [[nodiscard]] double CapacityOf(const Allocation& allocation, std::size_t tenant) const;

 private:
  const GoodputProblem& problem_;
  std::vector<gpu::ProfileIndex> profiles_;
  std::vector<gpu::MigLayout> layouts_;
  std::vector<double> mean_load_;
  std::map<Pins, std::vector<Counts>> offers_;
  std::map<std::pair<Pins, std::vector<std::size_t>>, std::vector<Allocation>> allocations_;
};

// The worth of every allocation in stretches of time. Slots are joined in bins to keep
// it small.
class WorthTable {
 public:
  // REQUIRES: `cuts` and `allocations` outlive the table.
  WorthTable(const GoodputProblem& problem, const Cuts& cuts,
             const std::vector<Allocation>& allocations, const Residual& residual);

  int bins() const { return bins_; }
  int BinOf(int slot) const { return slot * bins_ / slots_; }

  // The allocation that is worth most from bin `from` to before bin `to`, and its worth.
  struct Best {
    std::size_t index;
    double worth;
  };
  [[nodiscard]] Best BestOver(int from, int to) const;

 private:
  int slots_;
  int bins_;
  std::size_t size_;
  std::vector<double> prefix_;  // By bin, then allocation: all before that bin.
};

}  // namespace divvy::planner
