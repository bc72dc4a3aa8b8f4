#include "control/migrator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace divvy::control {
namespace {

using planner::GoodputAnswer;
using planner::GoodputProblem;
using planner::Running;
using planner::Stretch;
using planner::Tenant;
using planner::Work;

using Loads = std::vector<std::vector<double>>;

// What a retraining is good for after the slots that are planned: this share of a
// window, in which the next one is not done yet.
constexpr double kTail = 0.1;

// A restart that is over so soon, in slots, is worth a try without any evidence.
constexpr double kCheap = 2;

// How much a judgement counts when the next one is made.
constexpr double kMemory = 0.8;

Tenant TenantOf(const Estate& estate, const View& view, std::size_t m, std::vector<double> load) {
  const EstateTenant& facts = estate.tenants[m];
  const int slots = static_cast<int>(load.size());
  Tenant tenant;
  tenant.name = facts.name;
  tenant.restart = estate.restart;
  for (int t = 0; t < slots; ++t) {
    tenant.worth.push_back(estate.Worth(m, AccuracyAt(estate, view, m, view.slot + t)));
  }
  double sum = 0;
  for (const double requests : load) sum += requests;
  tenant.tail = kTail * estate.window * sum / slots;
  tenant.load = std::move(load);
  for (const Offer& offer : facts.by_profile) tenant.capacity.push_back(offer.capacity);
  if (!facts.learning || view.tenants[m].retrained) return tenant;
  for (std::size_t o = 0; o < facts.learning->options.size(); ++o) {
    planner::Retraining retraining{facts.learning->options[o].name, {}, {}};
    for (const Offer& offer : facts.by_profile) {
      const double takes = o < offer.retraining_slots.size() ? offer.retraining_slots[o] : 0;
      retraining.slots.push_back(takes <= 0 ? 0
                                            : static_cast<int>(std::ceil(takes + estate.restart)));
    }
    for (int t = 0; t < slots; ++t) {
      const double accuracy = AccuracyAfter(estate, view, m, o, view.slot + t);
      retraining.worth.push_back(estate.Worth(m, accuracy));
    }
    tenant.retrainings.push_back(std::move(retraining));
  }
  return tenant;
}

// The first slot whose arrivals are known: a loop that was taken up again has not seen
// those before.
int FirstSeen(const View& view) {
  return view.slot - static_cast<int>(view.arrivals.front().size());
}

// What a solution has in its first slot.
std::vector<Cell> FirstCells(const GoodputAnswer& answer) {
  std::vector<Cell> cells;
  for (std::size_t g = 0; g < answer.schedule.gpus.size(); ++g) {
    for (const Stretch& stretch : answer.schedule.gpus[g]) {
      if (stretch.begin == 0) cells.push_back({static_cast<int>(g), stretch.place, stretch.work});
    }
  }
  return cells;
}

bool StartsAnything(const std::vector<Cell>& before, const std::vector<Cell>& after) {
  return std::ranges::any_of(after, [&](const Cell& cell) {
    return cell.work.kind == Work::Kind::kServe && std::ranges::find(before, cell) == before.end();
  });
}

// "2 start, 1 stop, 1 retraining".
std::string Describe(const std::vector<Cell>& before, const std::vector<Cell>& after) {
  int starts = 0;
  int retrainings = 0;
  int stops = 0;
  for (const Cell& cell : after) {
    if (std::ranges::find(before, cell) != before.end()) continue;
    ++(cell.work.kind == Work::Kind::kServe ? starts : retrainings);
  }
  for (const Cell& cell : before) {
    if (std::ranges::find(after, cell) == after.end()) ++stops;
  }
  std::string text = fmt::format("{} start, {} stop", starts, stops);
  if (retrainings > 0) {
    text += fmt::format(", {} retraining{}", retrainings, retrainings == 1 ? "" : "s");
  }
  return text;
}

}  // namespace

Migrator::Migrator(const Estate& estate, std::unique_ptr<Outlook> outlook, Solver solver,
                   std::unique_ptr<Policy> start, MigratorOptions options)
    : estate_(estate),
      outlook_(std::move(outlook)),
      solver_(std::move(solver)),
      start_(std::move(start)),
      options_(std::move(options)) {}

GoodputProblem Migrator::ProblemOf(const View& view, int slots, Loads loads) const {
  GoodputProblem problem{estate_.gpu, slots, {}, {}, view.WindowLeft(estate_)};
  for (std::size_t m = 0; m < estate_.tenants.size(); ++m) {
    problem.tenants.push_back(TenantOf(estate_, view, m, std::move(loads[m])));
  }
  problem.present.resize(static_cast<std::size_t>(estate_.gpus));
  for (const CellState& state : view.cells) {
    const auto* place = std::get_if<gpu::MigInstance>(&state.cell.where);
    Check(place != nullptr, "a policy for MIG sees MIG instances");
    double left = std::max(0.0, state.ready_at - view.slot);
    if (state.cell.work.kind == Work::Kind::kRetrain) {
      const Offer& offer = OfferAt(estate_, state.cell);
      left += (1 - state.progress) * offer.retraining_slots[state.cell.work.retraining];
      left = std::clamp(std::ceil(left - 1e-6), 1.0, static_cast<double>(slots));
    }
    problem.present[static_cast<std::size_t>(state.cell.gpu)].push_back(
        {*place, state.cell.work, left});
  }
  return problem;
}

Decision Migrator::Stay(const View& view, std::string why) {
  if (view.cells.empty() && start_ != nullptr) {
    Decision decision = start_->Decide(view);
    decision.why = fmt::format("{} for a start, since {}", start_->name(), why);
    return decision;
  }
  return {.cells = {}, .why = std::move(why), .failed = true, .gap = {}};
}

// What cells that serve would have answered in the slots from `from` on, had they been
// all there was; those not in `before` from the end of their restart on.
double Migrator::WorthOf(const View& view, int from, int to, const std::vector<Cell>& before,
                         const std::vector<Cell>& cells) const {
  double worth = 0;
  for (std::size_t m = 0; m < estate_.tenants.size(); ++m) {
    double kept = 0;
    double fresh = 0;
    for (const Cell& cell : cells) {
      if (cell.work != Work{Work::Kind::kServe, m, 0}) continue;
      const bool old = std::ranges::find(before, cell) != before.end();
      (old ? kept : fresh) += OfferAt(estate_, cell).capacity;
    }
    for (int t = from; t < to; ++t) {
      const double share = std::clamp(t + 1 - from - estate_.restart, 0.0, 1.0);
      const double load = view.arrivals[m][static_cast<std::size_t>(t - FirstSeen(view))];
      worth += estate_.Worth(m, view.tenants[m].accuracy) * std::min(load, kept + share * fresh);
    }
  }
  return worth;
}

// Compares what was proposed some time ago with staying, by what has come since.
void Migrator::Judge(const View& view) {
  const int wait = estate_.every + static_cast<int>(2 * estate_.restart);
  while (!proposals_.empty() && proposals_.front().slot + wait <= view.slot) {
    const Proposal proposal = std::move(proposals_.front());
    proposals_.pop_front();
    const int to = proposal.slot + wait;
    if (proposal.slot < FirstSeen(view)) continue;
    const double changed = WorthOf(view, proposal.slot, to, proposal.before, proposal.after);
    const double stayed = WorthOf(view, proposal.slot, to, proposal.before, proposal.before);
    paid_ = kMemory * paid_ + (changed - stayed);
  }
}

Decision Migrator::Decide(const View& view) {
  auto loads = outlook_->Expect(view, estate_.window);
  if (!loads) return Stay(view, loads.error().message);
  Judge(view);
  std::vector<Cell> present;
  for (const CellState& state : view.cells) present.push_back(state.cell);
  const bool serves = std::ranges::any_of(
      present, [](const Cell& cell) { return cell.work.kind == Work::Kind::kServe; });
  GoodputProblem problem = ProblemOf(view, estate_.window, std::move(*loads));
  // With nothing to go on serving there is no cut that would be there sooner.
  problem.fresh = !serves;
  std::optional<GoodputAnswer> answer = solver_(problem);
  if (!answer) return Stay(view, "the solver did not come to an answer in time");
  std::vector<Cell> cells = FirstCells(*answer);
  Decision decision;
  decision.gap = answer->gap();
  std::string gain = "for a start";
  if (serves && StartsAnything(present, cells)) {
    // Would it do nearly as well if no instance began to serve anew?
    for (Tenant& tenant : problem.tenants) tenant.restart = problem.slots;
    const std::optional<GoodputAnswer> frozen = solver_(problem);
    if (!frozen) return Stay(view, "the solver did not come to an answer in time");
    const double more = frozen->value <= 0 ? 1 : answer->value / frozen->value - 1;
    proposals_.push_back({view.slot, present, cells});
    // What only adds instances in free space disturbs nobody.
    const bool adds = std::ranges::all_of(
        present, [&](const Cell& cell) { return std::ranges::find(cells, cell) != cells.end(); });
    const bool pays = !options_.doubts || paid_ > 0 || (paid_ == 0 && estate_.restart < kCheap);
    if (!(adds && more > 0) && (more < options_.hysteresis || !pays)) {
      cells = FirstCells(*frozen);
      // Where nothing new is worth anything, anything may be in its place.
      std::erase_if(cells, [&](const Cell& cell) {
        return cell.work.kind == Work::Kind::kServe &&
               std::ranges::find(present, cell) == present.end();
      });
      gain = "serving as before";
    } else {
      gain = fmt::format("for {:.1f} % more goodput than serving as before", 100 * more);
    }
  } else if (serves) {
    gain = "serving as before";
  }
  if (std::ranges::is_permutation(cells, present)) return decision;
  decision.why = fmt::format("{}, {}", Describe(present, cells), gain);
  decision.cells = std::move(cells);
  return decision;
}

}  // namespace divvy::control
