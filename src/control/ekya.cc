#include "control/ekya.h"

#include <fmt/format.h>

#include <algorithm>

#include "control/ekya_thief.h"

namespace divvy::control {
namespace {

using planner::Work;

// Tenths that no estimate asks for are a reserve against bursts: they go where a service
// begins anew in any case, to the one that is nearest to its limit.
void DealIdle(const Estate& estate, const View& view, const EkyaEstimate& estimate, Split& split) {
  std::vector<std::size_t> changing;
  for (std::size_t m = 0; m < estate.tenants.size(); ++m) {
    if (split.serving[m] != ServingTenths(view, m)) changing.push_back(m);
  }
  if (changing.empty()) return;
  const auto headroom = [&](std::size_t m) {
    return PackedCapacity(estate.tenants[m], split.serving[m]) / (estimate.rate(m) + 1e-9);
  };
  for (; split.idle > 0; --split.idle) {
    ++split.serving[*std::ranges::min_element(changing, {}, headroom)];
  }
}

ShareWish WishOf(const EkyaEstimate& estimate, const Split& split) {
  ShareWish wish{split.serving};
  for (std::size_t m = 0; m < split.retraining.size(); ++m) {
    const auto best = estimate.Retraining(m, split.retraining[m]);
    if (best) wish.retraining.push_back({m, best->option, split.retraining[m]});
  }
  return wish;
}

// Retrainings that got less than they were to have may need another setting.
void ChooseAgain(const EkyaEstimate& estimate, std::vector<Cell>& cells) {
  std::erase_if(cells, [&](Cell& cell) {
    if (cell.work.kind != Work::Kind::kRetrain) return false;
    const auto best = estimate.Retraining(cell.work.tenant, std::get<Share>(cell.where).tenths);
    if (best) cell.work.retraining = best->option;
    return !best;
  });
}

}  // namespace

Decision Ekya::Decide(const View& view) {
  const int window = view.slot / estate_.window;
  if (window == window_ && SameCells(view, wanted_)) return {};
  window_ = window;
  const EkyaEstimate estimate(estate_, view);
  std::vector<Cell> best;
  for (const CellState& state : view.cells) best.push_back(state.cell);
  wanted_ = best;
  const double stay = estimate.Cells(best);
  double most = view.cells.empty() ? -1 : stay;
  bool changes = false;
  for (const Split& start : {FairSplit(estate_, view), PresentSplit(estate_, view)}) {
    Split split = Steal(estate_, view, estimate, start);
    for (std::size_t m = 0; m < split.retraining.size(); ++m) {
      if (estimate.Retraining(m, split.retraining[m])) continue;
      split.idle += std::exchange(split.retraining[m], 0);
    }
    DealIdle(estate_, view, estimate, split);
    ShareWish wish = WishOf(estimate, split);
    for (const bool make_room : {true, false}) {
      wish.make_room = make_room;
      std::vector<Cell> cells = PackShares(estate_, view, wish);
      ChooseAgain(estimate, cells);
      const double promise = estimate.Cells(cells);
      if (promise <= most) continue;
      most = promise;
      best = std::move(cells);
      changes = true;
    }
  }
  if (!changes) return {};
  wanted_ = best;
  return {.cells = std::move(best),
          .why = fmt::format("thieves promise {:.1f} for the rest of the window, staying {:.1f}",
                             most, stay)};
}

}  // namespace divvy::control
