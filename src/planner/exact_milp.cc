#include "planner/exact_milp.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>

namespace divvy::planner {
namespace {

using gpu::ProfileIndex;

std::size_t Position(ProfileIndex profile) { return static_cast<std::size_t>(profile); }

// Sizes of requests that occur, ascending, each with the items a second that
// arrive in requests of at least that size.
std::vector<ModelSide::Need> NeedsBySize(const ModelDemand& model) {
  std::vector<ModelSide::Need> needs;
  double items = 0;
  for (int batch = model.batches.largest(); batch > 0; --batch) {
    const double probability = model.batches.probability(batch);
    if (probability <= 0) continue;
    items += model.rate * probability * batch;
    needs.push_back({batch, items});
  }
  std::ranges::reverse(needs);
  return needs;
}

// The smallest SLO, to the microsecond, with which a batch that takes `latency_ms`
// is in time.
Duration SloFor(const InTimeRule& rule, double latency_ms) {
  const double slo_ms = latency_ms * (1 + rule.batching_delay) / rule.safety;
  Duration slo = FromMilliseconds(std::ceil(slo_ms * 1e3) / 1e3);
  while (rule.LatencyLimitMs(slo) <= latency_ms) slo += std::chrono::microseconds(1);
  return slo;
}

Infeasible NoOptionFor(const Problem& problem, std::size_t index) {
  const ModelDemand& model = problem.models[index];
  const int largest = model.batches.largest();
  const auto quickest = QuickestFor(model, *problem.gpu, largest);
  if (!quickest) {
    return {.why = fmt::format("{}: requests have up to {} items, and its profile has no batch of "
                               "that size that fits an instance of {}",
                               model.name, largest, problem.gpu->name),
            .model = index};
  }
  const Duration needed = SloFor(problem.rule, quickest->latency_ms);
  return {.why = fmt::format("{}: a request of {} {} takes {:.4g} ms at best (on {}), and only "
                             "{:.4g} ms are left of its SLO of {:.4g} ms; an SLO of {:.6g} ms "
                             "would do",
                             model.name, largest, largest == 1 ? "item" : "items",
                             quickest->latency_ms, problem.gpu->profile(quickest->profile).name,
                             problem.rule.LatencyLimitMs(model.slo), Milliseconds(model.slo),
                             Milliseconds(needed)),
          .model = index,
          .slo_needed = needed};
}

// The side of one model, or nothing when a request fits nowhere in time.
std::optional<ModelSide> SideOf(const Problem& problem, std::size_t index) {
  const std::vector<ModelSide::Need> sizes = NeedsBySize(problem.models[index]);
  ModelSide side{.model = index, .options = {}, .needs = {}};
  std::set<int> reached;  // For each option, the largest size that it takes.
  std::optional<std::pair<ProfileIndex, int>> last;
  for (const Option& option : UsefulOptions(problem.models[index], *problem.gpu, problem.rule)) {
    const auto above =
        std::ranges::upper_bound(sizes, option.max_batch, {}, &ModelSide::Need::batch);
    if (above == sizes.begin()) continue;
    // Options of a profile come with growing batches and falling capacity: of those
    // that take the same requests, the first is the best.
    const int reach = std::prev(above)->batch;
    const std::pair key{option.profile, reach};
    if (std::exchange(last, key) == key) continue;
    side.options.push_back(option);
    reached.insert(reach);
  }
  if (reached.empty() || *reached.rbegin() < sizes.back().batch) return std::nullopt;
  // Sizes that the same options take make one need: that of the smallest of them.
  int below = 0;
  for (const int reach : reached) {
    const auto first = std::ranges::upper_bound(sizes, below, {}, &ModelSide::Need::batch);
    side.needs.push_back({reach, first->items});
    below = reach;
  }
  return side;
}

}  // namespace

std::variant<std::vector<ModelSide>, Infeasible> ModelSides(const Problem& problem) {
  std::vector<ModelSide> sides;
  for (std::size_t i = 0; i < problem.models.size(); ++i) {
    if (problem.models[i].rate <= 0) continue;
    std::optional<ModelSide> side = SideOf(problem, i);
    if (!side) return NoOptionFor(problem, i);
    sides.push_back(std::move(*side));
  }
  return sides;
}

ExactMilp::ExactMilp(const Problem& problem, const std::vector<ModelSide>& sides,
                     const std::vector<LayoutColumn>& layouts)
    : problem_(problem), sides_(sides), layouts_(layouts) {
  auto next = static_cast<int>(layouts.size());
  for (const ModelSide& side : sides) {
    first_option_.push_back(next);
    next += static_cast<int>(side.options.size());
  }
}

int ExactMilp::OptionColumn(std::size_t side, std::size_t option) const {
  return first_option_[side] + static_cast<int>(option);
}

Milp ExactMilp::Columns() const {
  Milp milp;
  for (std::size_t i = 0; i < layouts_.size(); ++i) milp.AddColumn({.integer = true});
  for (const ModelSide& side : sides_) {
    for (std::size_t i = 0; i < side.options.size(); ++i) milp.AddColumn({.integer = true});
  }
  return milp;
}

// Per profile: instances that models and jobs take are at most those that the
// chosen layouts offer.
void ExactMilp::AddSupplyRows(Milp& milp) const {
  std::vector<Milp::Row> rows(problem_.gpu->profiles.size());
  for (Milp::Row& row : rows) row.lower = 0;
  for (std::size_t i = 0; i < layouts_.size(); ++i) {
    for (std::size_t p = 0; p < rows.size(); ++p) {
      const int count = layouts_[i].counts[p];
      if (count > 0) rows[p].entries.emplace_back(static_cast<int>(i), static_cast<double>(count));
    }
  }
  for (std::size_t s = 0; s < sides_.size(); ++s) {
    for (std::size_t o = 0; o < sides_[s].options.size(); ++o) {
      rows[Position(sides_[s].options[o].profile)].entries.emplace_back(OptionColumn(s, o), -1.0);
    }
  }
  for (const JobDemand& job : problem_.jobs) rows[Position(job.instance)].lower += job.count;
  for (Milp::Row& row : rows) {
    if (!row.entries.empty()) milp.AddRow(std::move(row));
  }
}

// Rows are divided by what must be carried, so that a solver's absolute tolerance
// means the same share of every model's rate.
void ExactMilp::AddNeedRows(Milp& milp, double factor) const {
  for (std::size_t s = 0; s < sides_.size(); ++s) {
    for (const ModelSide::Need& need : sides_[s].needs) {
      Milp::Row row{.lower = 1};
      for (std::size_t o = 0; o < sides_[s].options.size(); ++o) {
        const Option& option = sides_[s].options[o];
        if (option.max_batch < need.batch) continue;
        // One that carries all alone counts as carrying all: true for whole
        // numbers of instances, and it forbids fractions of large ones.
        const double share = std::min(1.0, option.capacity / (need.items * factor));
        row.entries.emplace_back(OptionColumn(s, o), share);
      }
      milp.AddRow(std::move(row));
    }
  }
}

void ExactMilp::AddGpusRow(Milp& milp, int gpus) const {
  Milp::Row row{.upper = static_cast<double>(gpus)};
  for (std::size_t i = 0; i < layouts_.size(); ++i) {
    row.entries.emplace_back(static_cast<int>(i), 1.0);
  }
  milp.AddRow(std::move(row));
}

Milp ExactMilp::FewestGpus(double factor) const {
  Milp milp = Columns();
  for (std::size_t i = 0; i < layouts_.size(); ++i) milp.columns[i].objective = 1;
  AddSupplyRows(milp);
  AddNeedRows(milp, factor);
  return milp;
}

// With FewestGpus' objective although any solution will do: without it, or with an
// equality in its place, the solver takes up to a hundred times longer.
Milp ExactMilp::Carrying(double factor, int gpus) const {
  Milp milp = FewestGpus(factor);
  AddGpusRow(milp, gpus);
  return milp;
}

Milp ExactMilp::RelaxedHeadroom(int gpus) const {
  Milp milp = Columns();
  for (Milp::Column& column : milp.columns) column.integer = false;
  AddGpusRow(milp, gpus);
  AddSupplyRows(milp);
  const int factor = milp.AddColumn({.objective = -1});
  for (std::size_t s = 0; s < sides_.size(); ++s) {
    for (const ModelSide::Need& need : sides_[s].needs) {
      Milp::Row row{.lower = 0, .entries = {{factor, -1.0}}};
      for (std::size_t o = 0; o < sides_[s].options.size(); ++o) {
        const Option& option = sides_[s].options[o];
        if (option.max_batch < need.batch) continue;
        row.entries.emplace_back(OptionColumn(s, o), option.capacity / need.items);
      }
      milp.AddRow(std::move(row));
    }
  }
  return milp;
}

double ExactMilp::Factor(const CutCounts& counts) const {
  double factor = Milp::kInfinity;
  for (std::size_t s = 0; s < sides_.size(); ++s) {
    for (const ModelSide::Need& need : sides_[s].needs) {
      double capacity = 0;
      for (std::size_t o = 0; o < sides_[s].options.size(); ++o) {
        const Option& option = sides_[s].options[o];
        if (option.max_batch >= need.batch) capacity += counts.options[s][o] * option.capacity;
      }
      factor = std::min(factor, capacity / need.items);
    }
  }
  return factor;
}

CutCounts ExactMilp::Read(const std::vector<double>& values) const {
  const auto count = [&](int column) {
    return static_cast<int>(std::lround(values[static_cast<std::size_t>(column)]));
  };
  CutCounts counts;
  for (std::size_t i = 0; i < layouts_.size(); ++i) {
    counts.layouts.push_back(count(static_cast<int>(i)));
  }
  for (std::size_t s = 0; s < sides_.size(); ++s) {
    counts.options.emplace_back();
    for (std::size_t o = 0; o < sides_[s].options.size(); ++o) {
      counts.options.back().push_back(count(OptionColumn(s, o)));
    }
  }
  return counts;
}

std::vector<double> ExactMilp::Write(const CutCounts& counts) const {
  std::vector<double> values(counts.layouts.begin(), counts.layouts.end());
  for (const auto& side : counts.options) values.insert(values.end(), side.begin(), side.end());
  return values;
}

std::vector<ProfileIndex> ProfilesNeeded(const Problem& problem,
                                         const std::vector<ModelSide>& sides) {
  const auto base = problem.gpu->Select(gpu::ProfileSet::kBase);
  std::set<ProfileIndex> needed(base.begin(), base.end());
  for (const ModelSide& side : sides) {
    for (const Option& option : side.options) needed.insert(option.profile);
  }
  for (const JobDemand& job : problem.jobs) needed.insert(job.instance);
  return {needed.begin(), needed.end()};
}

}  // namespace divvy::planner
