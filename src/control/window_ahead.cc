#include "control/window_ahead.h"

#include <algorithm>
#include <cmath>

namespace divvy::control {

using planner::Work;

double RecentRate(const Estate& estate, const View& view, std::size_t tenant, int slots) {
  if (tenant >= view.arrivals.size() || view.arrivals[tenant].empty()) {
    return estate.tenants[tenant].mean_load;
  }
  const std::vector<double>& seen = view.arrivals[tenant];
  const std::size_t count = std::min(seen.size(), static_cast<std::size_t>(slots));
  double sum = 0;
  for (std::size_t i = seen.size() - count; i < seen.size(); ++i) sum += seen[i];
  return sum / static_cast<double>(count);
}

std::optional<int> SlotsToRetrain(const Estate& estate, const View& view, const Cell& cell) {
  const Offer& offer = OfferAt(estate, cell);
  const std::size_t option = cell.work.retraining;
  if (option >= offer.retraining_slots.size() || offer.retraining_slots[option] <= 0) {
    return std::nullopt;
  }
  // What is decided before the start stands ready at once.
  double wait = view.slot == 0 && view.cells.empty() ? 0 : estate.restart;
  double left = 1;
  if (const CellState* running = FindRetraining(view, cell.work.tenant)) {
    const bool shared = std::holds_alternative<Share>(cell.where);
    if (running->cell == cell) wait = std::max(0.0, running->ready_at - view.slot);
    if (running->cell == cell || (shared && running->cell.work == cell.work)) {
      left = 1 - running->progress;
    }
  }
  return static_cast<int>(std::ceil(wait + left * offer.retraining_slots[option] - 1e-9));
}

WorthAhead::WorthAhead(const Estate& estate, const View& view, std::size_t tenant,
                       std::span<const double> answers)
    : present_(1) {
  const auto& learning = estate.tenants[tenant].learning;
  retrained_.assign(learning ? learning->options.size() : 0, {0.0});
  for (std::size_t t = 0; t < answers.size(); ++t) {
    const int slot = view.slot + static_cast<int>(t);
    const double worth = estate.Worth(tenant, AccuracyAt(estate, view, tenant, slot));
    worth_.push_back(worth);
    present_.push_back(present_.back() + answers[t] * worth);
    for (std::size_t option = 0; option < retrained_.size(); ++option) {
      const double after = estate.Worth(tenant, AccuracyAfter(estate, view, tenant, option, slot));
      std::vector<double>& sums = retrained_[option];
      sums.push_back(sums.back() + answers[t] * std::max(worth, after));
    }
  }
}

double WorthAhead::Present(int from, int to) const {
  return present_[static_cast<std::size_t>(to)] - present_[static_cast<std::size_t>(from)];
}

double WorthAhead::Retrained(std::size_t option, int from, int to) const {
  const std::vector<double>& sums = retrained_[option];
  return sums[static_cast<std::size_t>(to)] - sums[static_cast<std::size_t>(from)];
}

double WorthAhead::Gain(std::size_t option, int end) const {
  if (end >= slots()) return 0;
  return Retrained(option, end, slots()) - Present(end, slots());
}

std::optional<BestRetraining> BestOption(const Estate& estate, const View& view,
                                         const WorthAhead& ahead, Cell cell) {
  std::optional<BestRetraining> best;
  cell.work.kind = Work::Kind::kRetrain;
  for (std::size_t option = 0; option < ahead.options(); ++option) {
    cell.work.retraining = option;
    const std::optional<int> end = SlotsToRetrain(estate, view, cell);
    if (!end) continue;
    const double gain = ahead.Gain(option, *end);
    if (gain > (best ? best->gain : 0)) best = {option, *end, gain};
  }
  return best;
}

bool MayRetrain(const Estate& estate, const View& view, std::size_t tenant) {
  return estate.tenants[tenant].learning && !view.tenants[tenant].retrained;
}

const CellState* FindRetraining(const View& view, std::size_t tenant) {
  const auto found = std::ranges::find_if(view.cells, [&](const CellState& state) {
    return state.cell.work.kind == Work::Kind::kRetrain && state.cell.work.tenant == tenant;
  });
  return found == view.cells.end() ? nullptr : &*found;
}

bool SameCells(const View& view, std::span<const Cell> cells) {
  std::vector<Cell> present;
  for (const CellState& state : view.cells) present.push_back(state.cell);
  return std::ranges::is_permutation(present, cells);
}

}  // namespace divvy::control
