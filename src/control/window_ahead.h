#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "control/policy.h"

// What is left of a window, as policies without a forecast see it.

namespace divvy::control {

// Requests a slot of the last `slots` slots on average; before anything came, the
// fleet's mean. REQUIRES: slots > 0.
[[nodiscard]] double RecentRate(const Estate& estate, const View& view, std::size_t tenant,
                                int slots);

// Whole slots from now until the retraining in `cell` is done; nothing where it cannot
// run. One of the same tenant and option that runs goes on from where it is: at once
// if the cell stays as it is, after a restart under MPS if it does not.
[[nodiscard]] std::optional<int> SlotsToRetrain(const Estate& estate, const View& view,
                                                const Cell& cell);

// What a tenant's answers in the coming slots are worth, by the model that gives them.
class WorthAhead {
 public:
  // `answers` are of each slot from view.slot on, as far as is looked ahead.
  WorthAhead(const Estate& estate, const View& view, std::size_t tenant,
             std::span<const double> answers);

  int slots() const { return static_cast<int>(present_.size()) - 1; }

  // By the present model, in slots [from, to) from now.
  [[nodiscard]] double Present(int from, int to) const;

  // By the better of the present model and the one that `option` gives.
  [[nodiscard]] double Retrained(std::size_t option, int from, int to) const;

  // What is gained by having `option` from slot `end` on; 0 if that lies beyond.
  [[nodiscard]] double Gain(std::size_t option, int end) const;

  // Worth of one answer in a slot, by the present model.
  [[nodiscard]] double At(int slot) const { return worth_[static_cast<std::size_t>(slot)]; }

  std::size_t options() const { return retrained_.size(); }

 private:
  std::vector<double> worth_;
  std::vector<double> present_;                 // Sum of the slots before.
  std::vector<std::vector<double>> retrained_;  // The same, by option.
};

struct BestRetraining {
  std::size_t option = 0;
  int end = 0;  // Slots from now.
  double gain = 0;
};

// The option that gains most when it runs where `cell` is (its option is not looked at)
// and ends while `ahead` looks; nothing when none gains.
[[nodiscard]] std::optional<BestRetraining> BestOption(const Estate& estate, const View& view,
                                                       const WorthAhead& ahead, Cell cell);

// True when a retraining of `tenant` may run in this window.
[[nodiscard]] bool MayRetrain(const Estate& estate, const View& view, std::size_t tenant);

// The cell in which `tenant` is being retrained, or null.
[[nodiscard]] const CellState* FindRetraining(const View& view, std::size_t tenant);

// True when these are the cells that are there, in any order.
[[nodiscard]] bool SameCells(const View& view, std::span<const Cell> cells);

}  // namespace divvy::control
