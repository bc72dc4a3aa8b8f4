#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "control/share_packing.h"
#include "control/window_ahead.h"

namespace divvy::control {

// Ekya's estimate: the goodput of what is left of a window, by what each tenant has.
class EkyaEstimate {
 public:
  // REQUIRES: both outlive it.
  EkyaEstimate(const Estate& estate, const View& view);

  // Of one tenant with so many tenths for serving and for retraining, packed tightly.
  [[nodiscard]] double Tenant(std::size_t tenant, int serving, int retraining) const {
    const int at = serving * (kTenths + 1) + retraining;
    return table_[tenant][static_cast<std::size_t>(at)];
  }

  // Of cells as they are.
  [[nodiscard]] double Cells(std::span<const Cell> cells) const;

  // The best way to retrain with so many tenths, on the GPU where it runs if it does.
  [[nodiscard]] std::optional<BestRetraining> Retraining(std::size_t tenant, int tenths) const;

  double rate(std::size_t tenant) const { return rates_[tenant]; }

 private:
  // What serves a tenant: requests a slot, also while new cells start, and once a
  // retraining has left it its tenths.
  struct Serving {
    double at_first = 0;
    double later = 0;
    double in_the_end = 0;
  };
  [[nodiscard]] double Goodput(std::size_t tenant, const Serving& serving,
                               const std::optional<BestRetraining>& retraining) const;
  // What a service gains by the tenths beside it of a retraining that is done.
  [[nodiscard]] double TakenOver(std::span<const Cell> cells, const Cell& retraining) const;
  [[nodiscard]] double Compute(std::size_t tenant, int serving, int retraining) const;

  const Estate& estate_;
  const View& view_;
  double restart_;  // Slots; 0 before the start.
  std::vector<double> rates_;
  std::vector<WorthAhead> ahead_;           // Of one answer a slot.
  std::vector<std::vector<double>> table_;  // By tenant; serving, then retraining tenths.
};

// Tenths of all jobs.
struct Split {
  std::vector<int> serving;     // By tenant.
  std::vector<int> retraining;  // By tenant; 0 for those that have none.
  int idle = 0;

  friend bool operator==(const Split&, const Split&) = default;
};

// As many tenths for every job, as far as whole ones and ten for a retraining allow.
[[nodiscard]] Split FairSplit(const Estate& estate, const View& view);

// What jobs have now.
[[nodiscard]] Split PresentSplit(const Estate& estate, const View& view);

[[nodiscard]] double Estimate(const EkyaEstimate& estimate, const Split& split);

// The thief scheduler: never worse than `split`, by the estimate.
[[nodiscard]] Split Steal(const Estate& estate, const View& view, const EkyaEstimate& estimate,
                          Split split);

}  // namespace divvy::control
