#include "planner/exact.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "base/check.h"
#include "planner/assemble.h"
#include "planner/exact_milp.h"
#include "planner/layout_columns.h"
#include "planner/milp.h"
#include "planner/packing.h"

namespace divvy::planner {
namespace {

// Factors closer than this are the same. Ten times the solver's tolerance for whole
// numbers: asked for a millionth more, CBC offers the same plan again.
constexpr double kSameFactor = 1e-5;
constexpr double kRounding = 1e-9;

// Effort, in nodes of search trees, so that every machine comes to the same plan. The
// limit in seconds is for problems with so many request sizes and GPUs that even
// these nodes take long. Sized so that eleven models on thirty GPUs stay below a second.
constexpr int kFewestNodes = 20000;
constexpr int kHeadroomNodes = 40;
constexpr int kLastQuestionNodes = 500;
constexpr int kUndecidedQuestions = 1;
constexpr double kTimeLimit_s = 5;

// Once the bracket is this tight, the question is whether there is anything better
// at all: a "no" ends the search with a proof.
constexpr double kTightBracket = 0.001;

struct Fewest {
  CutCounts counts;
  int gpus;
  int bound;  // Proven: no fewer do.
};

struct Headroom {
  std::optional<CutCounts> counts;  // Nothing when no factor above 0 is possible.
  double factor;
  double bound;  // Proven: no larger factor is possible.
};

int Sum(const std::vector<int>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0);
}

// One problem, its MILP and the questions that the planner asks.
class Exact {
 public:
  Exact(const Problem& problem, std::vector<ModelSide> sides)
      : problem_(problem),
        sides_(std::move(sides)),
        layouts_(LayoutColumns(*problem.gpu, ProfilesNeeded(problem, sides_))),
        milp_(problem, sides_, layouts_) {}

  [[nodiscard]] Fewest FewestGpus() const;

  // The largest common factor on `gpus` GPUs. `known` carries 1 on no more GPUs.
  [[nodiscard]] Headroom MostHeadroom(int gpus, const CutCounts* known) const;

  [[nodiscard]] Deployment Deploy(const CutCounts& counts) const {
    return Assemble(problem_, sides_, layouts_, counts);
  }

 private:
  [[nodiscard]] CutCounts Greedy() const;
  [[nodiscard]] std::vector<int> LayoutsFor(const std::vector<gpu::ProfileIndex>& wanted) const;
  [[nodiscard]] Fewest SolveFewest(double factor) const;
  [[nodiscard]] MilpSolution Ask(double factor, int gpus, int nodes = kHeadroomNodes) const;
  [[nodiscard]] Headroom Narrow(int gpus, Headroom best) const;

  const Problem& problem_;
  const std::vector<ModelSide> sides_;
  const std::vector<LayoutColumn> layouts_;
  const ExactMilp milp_;
};

// Cuts that hold `wanted`, packed largest first.
std::vector<int> Exact::LayoutsFor(const std::vector<gpu::ProfileIndex>& wanted) const {
  const auto packed = Pack(*problem_.gpu, static_cast<int>(wanted.size()), wanted);
  std::map<int, std::vector<int>> contents;  // [gpu][profile]
  for (const auto& entry : packed) {
    Check(entry.has_value(), "a GPU for each instance is room enough");
    auto& counts = contents[entry->gpu];
    counts.resize(problem_.gpu->profiles.size());
    ++counts[static_cast<std::size_t>(entry->instance.profile)];
  }
  std::vector<int> layouts(layouts_.size());
  for (const auto& [gpu, counts] : contents) {
    const auto holds = [&](const LayoutColumn& layout) {
      return std::ranges::equal(layout.counts, counts, std::ranges::greater_equal());
    };
    const auto found = std::ranges::find_if(layouts_, holds);
    Check(found != layouts_.end(), "every legal set is part of a column");
    ++layouts[static_cast<std::size_t>(found - layouts_.begin())];
  }
  return layouts;
}

// A deployment that carries everything, by the best throughput a slice. Somewhere
// for the solver to begin, and an answer in case it finds none in time.
CutCounts Exact::Greedy() const {
  CutCounts counts;
  std::vector<gpu::ProfileIndex> wanted;
  for (const JobDemand& job : problem_.jobs) {
    wanted.insert(wanted.end(), static_cast<std::size_t>(job.count), job.instance);
  }
  for (const ModelSide& side : sides_) {
    counts.options.emplace_back(side.options.size());
    // Large requests first: what takes them takes the small ones too.
    double carried = 0;
    for (auto need = side.needs.rbegin(); need != side.needs.rend(); ++need) {
      const auto worth = [&](const Option& option) {
        const int slices = problem_.gpu->profile(option.profile).compute_slices;
        return option.max_batch < need->batch ? 0 : option.capacity / slices;
      };
      const auto best = std::ranges::max_element(side.options, {}, worth);
      const double missing = need->items - carried;
      if (missing <= 0) continue;
      const int more = static_cast<int>(std::ceil(missing / best->capacity));
      counts.options.back()[static_cast<std::size_t>(best - side.options.begin())] += more;
      wanted.insert(wanted.end(), static_cast<std::size_t>(more), best->profile);
      carried += more * best->capacity;
    }
  }
  counts.layouts = LayoutsFor(wanted);
  return counts;
}

Fewest Exact::SolveFewest(double factor) const {
  const CutCounts greedy = Greedy();
  const MilpSolution solution =
      Solve(milp_.FewestGpus(factor),
            {.time_limit_s = kTimeLimit_s, .nodes = kFewestNodes, .start = milp_.Write(greedy)});
  const double bound = std::max(0.0, std::ceil(solution.bound - kSameFactor));
  if (solution.values.empty()) {
    return {greedy, Sum(greedy.layouts), static_cast<int>(bound)};
  }
  CutCounts counts = milp_.Read(solution.values);
  const int gpus = Sum(counts.layouts);
  return {std::move(counts), gpus,
          solution.status == MilpSolution::Status::kOptimal ? gpus : static_cast<int>(bound)};
}

Fewest Exact::FewestGpus() const {
  Fewest fewest = SolveFewest(1);
  // The solver's tolerance is larger than ours: what it calls carried may lack a
  // ten-millionth. Then ask for a little more than needed.
  if (milp_.Factor(fewest.counts) < 1 - kRounding) {
    const int bound = fewest.bound;
    fewest = SolveFewest(1 + kSameFactor);
    fewest.bound = bound;
  }
  return fewest;
}

MilpSolution Exact::Ask(double factor, int gpus, int nodes) const {
  return Solve(milp_.Carrying(factor, gpus),
               {.time_limit_s = kTimeLimit_s, .nodes = nodes, .any = true});
}

Headroom Exact::MostHeadroom(int gpus, const CutCounts* known) const {
  Headroom best{std::nullopt, 0, Milp::kInfinity};
  const bool idle = sides_.empty();  // Without load there is no end to the factor.
  if (!idle) {
    const MilpSolution relaxed = Solve(milp_.RelaxedHeadroom(gpus));
    if (relaxed.status == MilpSolution::Status::kOptimal) best.bound = -relaxed.objective;
  }
  if (known != nullptr) {
    best.counts = *known;
  } else {
    // So little that any instance carries it: is there one for everybody?
    const double little = std::isinf(best.bound) ? kSameFactor : kSameFactor * best.bound;
    const MilpSolution any = Ask(little, gpus);
    if (any.values.empty()) return {std::nullopt, 0, 0};
    best.counts = milp_.Read(any.values);
  }
  best.factor = milp_.Factor(*best.counts);
  if (!std::isinf(best.bound)) best = Narrow(gpus, std::move(best));
  // A GPU that is there costs nothing; what nobody needs of it is given away.
  best.counts->layouts.front() += gpus - Sum(best.counts->layouts);
  return best;
}

// Raises the factor and lowers the bound by halving a bracket: asked directly, maximising the
// smallest of many ratios keeps branch and bound busy for minutes, while "is this factor possible?"
// takes milliseconds.
Headroom Exact::Narrow(int gpus, Headroom best) const {
  double high = best.bound;  // Not worth asking above: a "no", or nobody knows.
  int undecided = 0;
  while (high > best.factor * (1 + kSameFactor) && undecided < kUndecidedQuestions) {
    const bool tight = high < best.factor * (1 + kTightBracket);
    const double factor =
        tight ? best.factor * (1 + kSameFactor) : best.factor + (high - best.factor) / 2;
    const MilpSolution answer = Ask(factor, gpus, tight ? kLastQuestionNodes : kHeadroomNodes);
    const double found = answer.values.empty() ? 0 : milp_.Factor(milp_.Read(answer.values));
    if (found > best.factor) {
      best.counts = milp_.Read(answer.values);
      best.factor = found;
      if (found >= factor * (1 - kSameFactor / 2)) continue;
    }
    if (answer.status == MilpSolution::Status::kInfeasible) {
      best.bound = factor;  // And no larger one is possible either.
    } else {
      ++undecided;
    }
    high = factor;
  }
  best.bound = std::max(best.bound, best.factor);
  return best;
}

std::string ProofOf(const std::optional<Fewest>& fewest, const Headroom& headroom) {
  std::string proof;
  if (fewest) {
    proof = fewest->bound == fewest->gpus
                ? "fewest GPUs: proven; "
                : fmt::format("fewest GPUs: not proven, at least {} are needed; ", fewest->bound);
  }
  const double gap = headroom.bound / headroom.factor - 1;
  if (std::isinf(headroom.factor)) return proof + "headroom: no model has any load";
  if (gap <= 2 * kSameFactor) return proof + "headroom: proven";
  return proof + fmt::format("headroom: within {:.2g} % of the bound", gap * 100);
}

// Nobody has so many; a slip of the unit is likelier, and counts must fit an int.
std::optional<Infeasible> TooManyInstances(const Problem& problem,
                                           const std::vector<ModelSide>& sides) {
  constexpr double kMost = 100000;
  for (std::size_t m = 0; m < sides.size(); ++m) {
    double items = 0;
    double capacity = 0;
    for (const auto& need : sides[m].needs) items = std::max(items, need.items);
    for (const Option& option : sides[m].options) capacity = std::max(capacity, option.capacity);
    if (items <= kMost * capacity) continue;
    return Infeasible{
        .why = fmt::format("{} would need about {:.3g} instances; more than {} are not planned",
                           problem.models[sides[m].model].name, items / capacity, kMost),
        .model = sides[m].model};
  }
  return std::nullopt;
}

Infeasible TooFewGpus(const Exact& exact, int gpus, const Fewest& fewest) {
  const Headroom headroom = exact.MostHeadroom(gpus, nullptr);
  // A bound above 1 says that the solver stopped short, not that it would do.
  const std::string most =
      headroom.counts && headroom.bound >= 1
          ? fmt::format("no more than {:.3g} of every rate was found and", headroom.factor)
      : headroom.counts ? fmt::format("at most {:.3g} of every rate", headroom.bound)
                        : "not even one instance for every model and all jobs";
  return {.why = fmt::format("{} {} too few: {} can be had there; {} would do", gpus,
                             gpus == 1 ? "GPU is" : "GPUs are", most, fewest.gpus),
          .gpus_needed = fewest.gpus};
}

}  // namespace

Outcome PlanExact(const Problem& problem) {
  auto sides = ModelSides(problem);
  if (auto* infeasible = std::get_if<Infeasible>(&sides)) return std::move(*infeasible);
  if (auto too_many = TooManyInstances(problem, std::get<std::vector<ModelSide>>(sides))) {
    return std::move(*too_many);
  }
  const Exact exact(problem, std::move(std::get<std::vector<ModelSide>>(sides)));
  const Fewest fewest = exact.FewestGpus();
  if (problem.gpus && *problem.gpus < fewest.gpus) {
    // The solver may have stopped short of proving the count: the fixed one decides.
    const Headroom headroom = *problem.gpus < fewest.bound
                                  ? Headroom{std::nullopt, 0, 0}
                                  : exact.MostHeadroom(*problem.gpus, nullptr);
    if (headroom.factor < 1 - kRounding) return TooFewGpus(exact, *problem.gpus, fewest);
    return Planned{exact.Deploy(*headroom.counts), ProofOf(std::nullopt, headroom)};
  }
  const Headroom headroom = exact.MostHeadroom(problem.gpus.value_or(fewest.gpus), &fewest.counts);
  return Planned{exact.Deploy(*headroom.counts),
                 ProofOf(problem.gpus ? std::nullopt : std::optional(fewest), headroom)};
}

double LargestLoadFactor(const Problem& problem) {
  Check(problem.gpus.has_value(), "the largest load factor is asked for a number of GPUs");
  auto sides = ModelSides(problem);
  if (std::holds_alternative<Infeasible>(sides)) return 0;
  const Exact exact(problem, std::move(std::get<std::vector<ModelSide>>(sides)));
  return exact.MostHeadroom(*problem.gpus, nullptr).factor;
}

}  // namespace divvy::planner
