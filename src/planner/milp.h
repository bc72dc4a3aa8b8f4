#pragma once

#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace divvy::planner {

// A mixed-integer linear program: minimise the objective over columns subject to
// rows. All there is of a solver that the planners see.
struct Milp {
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  struct Column {
    double objective = 0;
    double lower = 0;
    double upper = kInfinity;
    bool integer = false;
  };
  struct Row {
    double lower = -kInfinity;
    double upper = kInfinity;
    std::vector<std::pair<int, double>> entries = {};  // Column and coefficient, columns differ.
  };

  std::vector<Column> columns;
  std::vector<Row> rows;

  int AddColumn(Column column);  // Its index.
  void AddRow(Row row);
};

struct MilpSolution {
  enum class Status {
    kOptimal,
    kInfeasible,
    kUnbounded,
    kStopped,  // A limit was reached; `values` is the best found, or empty.
  };
  Status status;
  std::vector<double> values;  // Integer columns are whole numbers.
  double objective = 0;
  double bound = 0;  // Nothing better than this exists.
};

struct MilpOptions {
  double time_limit_s = 10;       // Processor time. What it cuts off differs by machine.
  std::optional<int> nodes = {};  // Of the search tree; stops at the same place everywhere.
  double relative_gap = 0;        // kOptimal may be this far from the bound, relative to it.
  bool any = false;               // The first solution will do; then it is kStopped.
  std::optional<std::vector<double>> start = {};  // A feasible point to begin from.
};

// True when `values` lie within all bounds and rows (to about 1e-6) and integer
// columns are whole.
[[nodiscard]] bool Satisfies(const Milp& milp, const std::vector<double>& values);

// Solves by COIN-OR CBC, one thread. Deterministic as long as the time limit is
// not reached. The solver writes nothing to the terminal.
[[nodiscard]] MilpSolution Solve(const Milp& milp, const MilpOptions& options = {});

}  // namespace divvy::planner
