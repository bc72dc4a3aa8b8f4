#include "planner/milp.h"

#include <fmt/format.h>
#include <CbcModel.hpp>
#include <CbcSolver.hpp>
#include <ClpPrimalColumnDantzig.hpp>
#include <CoinError.hpp>
#include <CoinMessageHandler.hpp>
#include <CoinPackedMatrix.hpp>
#include <OsiClpSolverInterface.hpp>
#include <algorithm>

#include <array>
#include <cmath>
#include <exception>
#include <string>
#include <utility>

#include "base/check.h"

namespace divvy::planner {
namespace {

// A row may be missed by this much, relative to the size of what is added up.
constexpr double kTolerance = 1e-6;

// CBC reports 1e50 as the objective when it has no solution at all, and Clp takes
// anything from 1e30 on for infinite. No honest objective of ours comes near.
constexpr double kNoObjective = 1e40;

// Takes whatever COIN wants to say and keeps it: setting log levels does not reach
// the models that presolve makes for itself. The default one also ends the program
// on messages that it finds severe.
class Silence final : public CoinMessageHandler {
 public:
  int print() override { return 0; }
  void checkSeverity() override {}
  CoinMessageHandler* clone() const override { return new Silence(*this); }
};

double ToCbc(double bound) {
  if (bound == Milp::kInfinity) return COIN_DBL_MAX;
  if (bound == -Milp::kInfinity) return -COIN_DBL_MAX;
  return bound;
}

bool HasIntegers(const Milp& milp) {
  return std::ranges::any_of(milp.columns, &Milp::Column::integer);
}

double ObjectiveOf(const Milp& milp, const std::vector<double>& values) {
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) sum += milp.columns[i].objective * values[i];
  return sum;
}

void Load(const Milp& milp, OsiClpSolverInterface& solver) {
  CoinPackedMatrix matrix(/*colordered=*/false, 0, 0);
  matrix.setDimensions(0, static_cast<int>(milp.columns.size()));
  std::vector<double> row_lower;
  std::vector<double> row_upper;
  for (const Milp::Row& row : milp.rows) {
    CoinPackedVector entries;
    for (const auto& [column, coefficient] : row.entries) entries.insert(column, coefficient);
    matrix.appendRow(entries);
    row_lower.push_back(ToCbc(row.lower));
    row_upper.push_back(ToCbc(row.upper));
  }
  std::vector<double> lower;
  std::vector<double> upper;
  std::vector<double> objective;
  for (const Milp::Column& column : milp.columns) {
    lower.push_back(ToCbc(column.lower));
    upper.push_back(ToCbc(column.upper));
    objective.push_back(column.objective);
  }
  solver.loadProblem(matrix, lower.data(), upper.data(), objective.data(), row_lower.data(),
                     row_upper.data());
  for (std::size_t i = 0; i < milp.columns.size(); ++i) {
    if (milp.columns[i].integer) solver.setInteger(static_cast<int>(i));
  }
}

std::vector<double> Rounded(const Milp& milp, const double* values) {
  std::vector<double> rounded(values, values + milp.columns.size());
  for (std::size_t i = 0; i < rounded.size(); ++i) {
    if (milp.columns[i].integer) rounded[i] = std::round(rounded[i]);
  }
  return rounded;
}

MilpSolution WithValues(const Milp& milp, MilpSolution::Status status, std::vector<double> values,
                        double bound) {
  const double objective = ObjectiveOf(milp, values);
  return {status, std::move(values), objective, std::min(bound, objective)};
}

MilpSolution SolveContinuous(const Milp& milp, OsiClpSolverInterface& solver) {
  solver.initialSolve();
  if (solver.isProvenOptimal()) {
    return WithValues(milp, MilpSolution::Status::kOptimal, Rounded(milp, solver.getColSolution()),
                      solver.getObjValue());
  }
  if (solver.isProvenDualInfeasible()) return {MilpSolution::Status::kUnbounded, {}};
  if (solver.isProvenPrimalInfeasible()) {
    // Clp's dual simplex also says so when there is no end to the objective: what
    // fits the rows must be asked without one.
    const std::vector<double> nothing(milp.columns.size());
    solver.setObjective(nothing.data());
    solver.initialSolve();
    return {solver.isProvenOptimal() ? MilpSolution::Status::kUnbounded
                                     : MilpSolution::Status::kInfeasible,
            {}};
  }
  return {MilpSolution::Status::kStopped, {}, 0, -Milp::kInfinity};
}

// Names the columns, since CBC takes a starting point by name only.
void SetStart(const std::vector<double>& start, CbcModel& model) {
  std::vector<std::pair<std::string, double>> named;
  model.solver()->setIntParam(OsiNameDiscipline, 1);
  for (std::size_t i = 0; i < start.size(); ++i) {
    named.emplace_back(fmt::format("c{}", i), start[i]);
    model.solver()->setColName(static_cast<int>(i), named.back().first);
  }
  // With names for columns alone, Clp's presolve reads row names that are not there.
  for (int i = 0; i < model.solver()->getNumRows(); ++i) {
    model.solver()->setRowName(i, fmt::format("r{}", i));
  }
  model.setMIPStart(named);
}

MilpSolution SolveInteger(const Milp& milp, const MilpOptions& options,
                          OsiClpSolverInterface& solver) {
  CbcModel model(solver);
  model.passInMessageHandler(solver.messageHandler());
  model.setLogLevel(0);
  CbcSolverUsefulData data;
  data.noPrinting_ = true;
  data.useSignalHandler_ = false;  // Ctrl-C belongs to the program that plans.
  CbcMain0(model, data);
  if (options.start) SetStart(*options.start, model);
  const std::string seconds = fmt::format("{:.3f}", options.time_limit_s);
  const std::string gap = fmt::format("{:.12f}", options.relative_gap);
  const std::string nodes = std::to_string(options.nodes.value_or(std::numeric_limits<int>::max()));
  std::array arguments = {"divvy",
                          "-log",
                          "0",
                          "-sec",
                          seconds.c_str(),
                          "-maxNodes",
                          nodes.c_str(),
                          "-ratioGap",
                          gap.c_str(),
                          "-allowableGap",
                          "0",
                          "-maxSolutions",
                          options.any ? "1" : "2147483647",
                          "-solve",
                          "-quit"};
  CbcMain1(
      static_cast<int>(arguments.size()), arguments.data(), model, [](CbcModel*, int) { return 0; },
      data);

  const double* best = model.bestSolution();
  const bool found = best != nullptr && std::abs(model.getObjValue()) < kNoObjective;
  const bool finished = model.status() == 0;
  if (found) {
    const auto status = finished && model.isProvenOptimal() ? MilpSolution::Status::kOptimal
                                                            : MilpSolution::Status::kStopped;
    // CBC forgets to raise the bound when preprocessing or the start settle it.
    const bool exact = status == MilpSolution::Status::kOptimal && options.relative_gap == 0;
    const double bound = exact ? model.getObjValue() : model.getBestPossibleObjValue();
    return WithValues(milp, status, Rounded(milp, best),
                      std::abs(bound) < kNoObjective ? bound : -Milp::kInfinity);
  }
  if (model.isContinuousUnbounded() || model.secondaryStatus() == 7) {
    return {MilpSolution::Status::kUnbounded, {}};
  }
  if (finished) return {MilpSolution::Status::kInfeasible, {}};
  return {MilpSolution::Status::kStopped, {}, 0, -Milp::kInfinity};
}

MilpSolution SolveByCbc(const Milp& milp, const MilpOptions& options) {
  Silence silence;  // Outlives all that point to it.
  silence.setLogLevel(0);
  OsiClpSolverInterface solver;
  solver.passInMessageHandler(&silence);
  // Debian builds Clp with assertions, and one in its steepest-edge pricing fails now
  // and then on programs of ours, which would end the program. The primal simplex
  // only cleans up after the dual here, so that plain pricing costs nothing.
  ClpPrimalColumnDantzig plain;
  solver.getModelPtr()->setPrimalColumnPivotAlgorithm(plain);
  Load(milp, solver);
  return HasIntegers(milp) ? SolveInteger(milp, options, solver) : SolveContinuous(milp, solver);
}

}  // namespace

int Milp::AddColumn(Column column) {
  columns.push_back(column);
  return static_cast<int>(columns.size()) - 1;
}

void Milp::AddRow(Row row) { rows.push_back(std::move(row)); }

bool Satisfies(const Milp& milp, const std::vector<double>& values) {
  if (values.size() != milp.columns.size()) return false;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Milp::Column& column = milp.columns[i];
    const double slack = kTolerance * std::max(1.0, std::abs(values[i]));
    if (values[i] < column.lower - slack || values[i] > column.upper + slack) return false;
    if (column.integer && values[i] != std::round(values[i])) return false;
  }
  return std::ranges::all_of(milp.rows, [&](const Milp::Row& row) {
    double sum = 0;
    double size = 1;
    for (const auto& [column, coefficient] : row.entries) {
      const double term = coefficient * values[static_cast<std::size_t>(column)];
      sum += term;
      size = std::max(size, std::abs(term));
    }
    return sum >= row.lower - kTolerance * size && sum <= row.upper + kTolerance * size;
  });
}

MilpSolution Solve(const Milp& milp, const MilpOptions& options) {
  Check(!options.start || options.start->size() == milp.columns.size(),
        "a start has a value for every column");
  MilpSolution solution{MilpSolution::Status::kStopped, {}, 0, -Milp::kInfinity};
  // COIN throws CoinError, which is no std::exception, when it is confused. Nothing is found then.
  // NOLINTBEGIN(bugprone-empty-catch)
  try {
    solution = SolveByCbc(milp, options);
  } catch (const CoinError&) {
  } catch (const std::exception&) {
  }
  // NOLINTEND(bugprone-empty-catch)
  // What CBC hands back has been through its preprocessing and its tolerances:
  // only what fits the rows as they were given counts as found.
  if (!solution.values.empty() && !Satisfies(milp, solution.values)) {
    solution = {MilpSolution::Status::kStopped, {}, 0, solution.bound};
  }
  const bool may_use_start = options.start && Satisfies(milp, *options.start);
  if (may_use_start && (solution.values.empty() ||
                        ObjectiveOf(milp, *options.start) < solution.objective - kTolerance)) {
    // Also when CBC says "infeasible", which the start refutes.
    solution = WithValues(milp, MilpSolution::Status::kStopped, *options.start, solution.bound);
  }
  return solution;
}

}  // namespace divvy::planner
