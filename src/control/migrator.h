#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "control/outlook.h"
#include "control/policy.h"
#include "planner/goodput.h"

namespace divvy::control {

// Solves a window; nothing when it did not come to an answer in time.
using Solver = std::function<std::optional<planner::GoodputAnswer>(const planner::GoodputProblem&)>;

struct MigratorOptions {
  std::string name = "migrator";
  double hysteresis = 0.02;  // What begins to serve anew must promise this share more goodput
                             // than the best that can be done without.
  bool doubts = true;        // It holds its proposals against what came, see below.
};

// MIGRator's loop: forecast, solve the coming window for goodput, do what the solution
// does first. Stays as it is when the solver is late, when the outlook is not to be
// relied on, and when a change promises little. Where there is nothing yet that could
// stay, `start` decides instead.
//
// Where it doubts, it learns whether its changes pay. Forecasts may be too poor for what a restart
// costs: by the time an instance is up, the load it was meant for has gone. So each
// proposal, carried out or not, is held against what came afterwards, and while
// proposals of late would have done worse than staying, instances stay as they are.
class Migrator final : public Policy {
 public:
  // `start` may be null: then a failure at the start leaves the GPUs empty.
  Migrator(const Estate& estate, std::unique_ptr<Outlook> outlook, Solver solver,
           std::unique_ptr<Policy> start, MigratorOptions options);

  std::string_view name() const override { return options_.name; }
  Sharing sharing() const override { return Sharing::kMig; }
  [[nodiscard]] Decision Decide(const View& view) override;

 private:
  [[nodiscard]] planner::GoodputProblem ProblemOf(const View& view, int slots,
                                                  std::vector<std::vector<double>> loads) const;

  // Cells to serve with instead of those there were.
  struct Proposal {
    int slot;
    std::vector<Cell> before;
    std::vector<Cell> after;
  };

  [[nodiscard]] Decision Stay(const View& view, std::string why);
  [[nodiscard]] double WorthOf(const View& view, int from, int to, const std::vector<Cell>& before,
                               const std::vector<Cell>& cells) const;
  void Judge(const View& view);

  const Estate& estate_;
  std::unique_ptr<Outlook> outlook_;
  Solver solver_;
  std::unique_ptr<Policy> start_;
  MigratorOptions options_;
  std::deque<Proposal> proposals_;  // Not judged yet.
  double paid_ = 0;                 // Worth that proposals of late would have won over staying.
};

}  // namespace divvy::control
