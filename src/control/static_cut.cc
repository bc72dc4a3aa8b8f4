#include "control/static_cut.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "control/retraining_queue.h"
#include "control/window_ahead.h"

namespace divvy::control {
namespace {

using planner::Work;

constexpr int kRecentSlots = 20;

double CapacityOf(const Estate& estate, const FixedCut& cut, std::size_t tenant) {
  double capacity = 0;
  for (const Cell& cell : cut.serving) {
    if (cell.work.tenant == tenant) capacity += OfferAt(estate, cell).capacity;
  }
  return capacity;
}

Cell CellOf(const RetrainingPlace& place, std::size_t tenant, std::size_t option) {
  return {place.gpu, place.place, {Work::Kind::kRetrain, tenant, option}};
}

// The retrainings that are best for the rest of the window. `ahead` knows every tenant,
// `free_at` when each place has nothing to do.
RetrainingQueue QueueFor(const Estate& estate, const View& view, const FixedCut& cut,
                         const std::vector<WorthAhead>& ahead, std::vector<double> free_at) {
  QueueProblem problem{.slots = ahead.front().slots(),
                       .free_at = std::move(free_at),
                       .tenants = {},
                       .options = 0,
                       .takes = {},
                       .gain = {}};
  for (std::size_t m = 0; m < estate.tenants.size(); ++m) {
    if (!MayRetrain(estate, view, m) || FindRetraining(view, m) != nullptr) continue;
    problem.tenants.push_back(m);
    problem.options = std::max(problem.options, ahead[m].options());
  }
  problem.takes = [&](std::size_t tenant, std::size_t option, std::size_t place) {
    const Offer& offer = OfferAt(estate, CellOf(cut.retraining[place], tenant, option));
    if (option >= offer.retraining_slots.size() || offer.retraining_slots[option] <= 0) return 0.0;
    return estate.restart + offer.retraining_slots[option];
  };
  problem.gain = [&](std::size_t tenant, std::size_t option, int end) {
    return option < ahead[tenant].options() ? ahead[tenant].Gain(option, end) : 0;
  };
  return BestQueue(problem);
}

}  // namespace

StaticCut::StaticCut(const Estate& estate, FixedCut cut, std::string name)
    : estate_(estate), cut_(std::move(cut)), name_(std::move(name)) {}

Decision StaticCut::Decide(const View& view) {
  std::vector<Cell> cells = cut_.serving;
  std::vector<double> free_at(cut_.retraining.size());
  for (const CellState& state : view.cells) {
    if (state.cell.work.kind != Work::Kind::kRetrain) continue;
    cells.push_back(state.cell);
    const RetrainingPlace place{state.cell.gpu, std::get<gpu::MigInstance>(state.cell.where)};
    const auto at = std::ranges::find(cut_.retraining, place);
    if (at == cut_.retraining.end()) continue;  // Of another cut, taken up again: it may end.
    free_at[static_cast<std::size_t>(at - cut_.retraining.begin())] =
        SlotsToRetrain(estate_, view, state.cell).value_or(view.WindowLeft(estate_));
  }
  std::vector<WorthAhead> ahead;
  for (std::size_t m = 0; m < estate_.tenants.size(); ++m) {
    const double answers =
        std::min(RecentRate(estate_, view, m, kRecentSlots), CapacityOf(estate_, cut_, m));
    const auto slots = static_cast<std::size_t>(view.WindowLeft(estate_));
    ahead.emplace_back(estate_, view, m, std::vector<double>(slots, answers));
  }
  int begun = 0;
  if (std::ranges::find(free_at, 0.0) != free_at.end()) {
    for (const QueuedRetraining& next : QueueFor(estate_, view, cut_, ahead, free_at).retrainings) {
      if (next.begin > 0) continue;
      cells.push_back(CellOf(cut_.retraining[next.place], next.tenant, next.option));
      ++begun;
    }
  }
  if (SameCells(view, cells)) return {};
  return {.cells = std::move(cells), .why = fmt::format("{} retrainings begin", begun)};
}

CutCourse FollowCut(const Estate& estate, const FixedCut& cut, Loads loads) {
  CutCourse course;
  course.worth.resize(loads.size());
  View view;
  std::vector<double> capacity;
  for (std::size_t m = 0; m < loads.size(); ++m) {
    const auto& learning = estate.tenants[m].learning;
    const double accuracy = learning ? learning->accuracy : 1;
    view.tenants.push_back({accuracy, accuracy, 0, false});
    capacity.push_back(CapacityOf(estate, cut, m));
  }
  const int slots = static_cast<int>(loads.front().size());
  for (; view.slot < slots; view.slot += estate.window) {
    const auto from = static_cast<std::size_t>(view.slot);
    const auto count = static_cast<std::size_t>(std::min(estate.window, slots - view.slot));
    std::vector<WorthAhead> ahead;
    for (std::size_t m = 0; m < loads.size(); ++m) {
      std::vector<double> answers(count);
      for (std::size_t t = 0; t < count; ++t) {
        answers[t] = std::min(capacity[m], loads[m][from + t]);
      }
      ahead.emplace_back(estate, view, m, answers);
      course.goodput += ahead[m].Present(0, ahead[m].slots());
      for (std::size_t t = 0; t < count; ++t) {
        course.worth[m].push_back(ahead[m].At(static_cast<int>(t)));
      }
    }
    const RetrainingQueue queue =
        QueueFor(estate, view, cut, ahead, std::vector<double>(cut.retraining.size()));
    course.goodput += queue.gain;
    for (const QueuedRetraining& done : queue.retrainings) {
      std::vector<double>& worth = course.worth[done.tenant];
      for (std::size_t t = from + static_cast<std::size_t>(done.end); t < worth.size(); ++t) {
        const double after =
            AccuracyAfter(estate, view, done.tenant, done.option, static_cast<int>(t));
        worth[t] = std::max(worth[t], estate.Worth(done.tenant, after));
      }
    }
    for (const QueuedRetraining& done : queue.retrainings) {
      TenantState& state = view.tenants[done.tenant];
      state.trained = estate.tenants[done.tenant].learning->options[done.option].accuracy;
      state.data_slot = view.slot;
    }
  }
  return course;
}

}  // namespace divvy::control
