#include "control/loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace divvy::control {
namespace {

using planner::Work;

// Retrainings end when they are done but for rounding.
constexpr double kDone = 1 - 1e-9;

}  // namespace

Loop::Loop(const Estate& estate, Policy& policy, Plant& plant, Listener listener)
    : estate_(estate),
      policy_(policy),
      plant_(plant),
      listener_(std::move(listener)),
      arrivals_(estate.tenants.size()) {
  for (const EstateTenant& tenant : estate.tenants) {
    TenantState& state = view_.tenants.emplace_back();
    if (tenant.learning) state.accuracy = state.trained = tenant.learning->accuracy;
  }
  view_.arrivals = arrivals_;
}

void Loop::Begin(int slot, std::span<const double> arrivals) {
  due_ = Advance(slot, arrivals) || due_;
  if (due_) Decide();
}

void Loop::Pass(int slot, std::span<const double> arrivals) {
  std::vector<double> as_before;
  for (const auto& mine : arrivals_) {
    if (!mine.empty()) as_before.push_back(mine.back());
  }
  due_ = Advance(slot, arrivals.empty() ? as_before : arrivals) || due_;
}

void Loop::Resume(View view) {
  Check(!begun_, "a loop takes up where another ended before it begins");
  Check(view.tenants.size() == estate_.tenants.size(), "the same estate");
  view_ = std::move(view);
  view_.arrivals = arrivals_;
  begun_ = true;
}

void Loop::Lose(std::span<const Cell> gone) {
  for (const Cell& cell : gone) {
    const auto is_gone = [&](const CellState& state) { return state.cell == cell; };
    if (std::erase_if(view_.cells, is_gone) > 0) due_ = true;
  }
}

// On to the next slot; true when it is time for a decision.
bool Loop::Advance(int slot, std::span<const double> arrivals) {
  Check(slot == (begun_ ? view_.slot + 1 : 0), "slots come in order");
  begun_ = true;
  view_.slot = slot;
  bool due = slot % estate_.every == 0;
  if (slot > 0) {
    // There are none while nothing was ever seen.
    for (std::size_t m = 0; m < arrivals.size(); ++m) arrivals_[m].push_back(arrivals[m]);
    view_.arrivals = arrivals_;
    due = Learn() || due;
    if (slot % estate_.window == 0) due = BeginWindow() || due;
  }
  for (std::size_t m = 0; m < view_.tenants.size(); ++m) {
    view_.tenants[m].accuracy = AccuracyAt(estate_, view_, m, slot);
  }
  return due;
}

// Retrainings go on through the slot that ended; true when one came to its end.
bool Loop::Learn() {
  bool ended = false;
  for (CellState& state : view_.cells) {
    if (state.cell.work.kind != Work::Kind::kRetrain) continue;
    const double takes = OfferAt(estate_, state.cell).retraining_slots[state.cell.work.retraining];
    state.progress += std::clamp(view_.slot - state.ready_at, 0.0, 1.0) / takes;
    if (state.progress < kDone) continue;
    TakeModel(state.cell.work);
    ended = true;
  }
  std::erase_if(view_.cells, [](const CellState& state) {
    return state.cell.work.kind == Work::Kind::kRetrain && state.progress >= kDone;
  });
  return ended;
}

// The model that a retraining gave serves if it is better than the one that does.
void Loop::TakeModel(const Work& work) {
  TenantState& tenant = view_.tenants[work.tenant];
  const EstateTenant& facts = estate_.tenants[work.tenant];
  const int window = (view_.slot - 1) / estate_.window;
  const int data_slot = window * estate_.window;
  const double trained = plant_.Outcome(work, window);
  tenant.retrained = true;
  ++retrained_;
  const double present = AccuracyAt(estate_, view_, work.tenant, view_.slot);
  const double fresh =
      facts.learning->AccuracyAfter(trained, estate_.slot * (view_.slot - data_slot));
  if (fresh > present) {
    tenant.trained = trained;
    tenant.data_slot = data_slot;
  }
  Tell(LoopEvent::Kind::kRetrained,
       fmt::format("{} was retrained ({}): accuracy {:.3f}, {} {:.3f}", facts.name,
                   facts.learning->options[work.retraining].name, fresh,
                   fresh > present ? "up from" : "not better than", present));
}

// New data has come: what learns from the old is given up.
bool Loop::BeginWindow() {
  for (const CellState& state : view_.cells) {
    if (state.cell.work.kind != Work::Kind::kRetrain) continue;
    Tell(LoopEvent::Kind::kGivenUp,
         fmt::format("the window ended before {} was retrained ({:.0f} % done)",
                     estate_.tenants[state.cell.work.tenant].name, 100 * state.progress));
  }
  std::erase_if(view_.cells, [](const CellState& state) {
    return state.cell.work.kind == Work::Kind::kRetrain;
  });
  for (TenantState& tenant : view_.tenants) tenant.retrained = false;
  return true;
}

void Loop::Decide() {
  due_ = false;
  Decision decision = policy_.Decide(view_);
  if (decision.gap) gaps_.push_back(*decision.gap);
  if (decision.failed) return Tell(LoopEvent::Kind::kKept, std::move(decision.why));
  if (!decision.cells) return;
  if (const auto fault = FindFault(estate_, view_, *decision.cells)) {
    return Tell(LoopEvent::Kind::kKept,
                fmt::format("{} decided what cannot be: {}", policy_.name(), *fault));
  }
  if (const auto changed = plant_.Change(view_.slot, view_.cells, *decision.cells); !changed) {
    return Tell(LoopEvent::Kind::kKept, changed.error().message);
  }
  Take(*decision.cells);
  Tell(LoopEvent::Kind::kChanged, std::move(decision.why));
}

void Loop::Take(const std::vector<Cell>& cells) {
  std::vector<CellState> next;
  const bool first = view_.slot == 0;
  int starts = 0;
  for (const Cell& cell : cells) {
    const auto same = std::ranges::find(view_.cells, cell, &CellState::cell);
    if (same != view_.cells.end()) {
      next.push_back(*same);
      continue;
    }
    CellState state{cell, first ? 0.0 : view_.slot + estate_.restart, 0};
    if (cell.work.kind == Work::Kind::kServe) {
      starts += first ? 0 : 1;
    } else {
      // One that goes on with another share keeps what it has learned.
      for (const CellState& old : view_.cells) {
        if (old.cell.work == cell.work) state.progress = old.progress;
      }
    }
    next.push_back(state);
  }
  starts_ += starts;
  reconfigurations_ += starts > 0 ? 1 : 0;
  view_.cells = std::move(next);
}

void Loop::Tell(LoopEvent::Kind kind, std::string text) {
  if (listener_) listener_({kind, view_.slot, std::move(text)});
}

}  // namespace divvy::control
