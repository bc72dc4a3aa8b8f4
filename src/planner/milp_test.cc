#include "planner/milp.h"

#include <glpk.h>
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <limits>
#include <optional>

#include "base/random.h"

namespace divvy::planner {
namespace {

using Status = MilpSolution::Status;

int GlpkBounds(double lower, double upper) {
  if (lower == -Milp::kInfinity) return upper == Milp::kInfinity ? GLP_FR : GLP_UP;
  if (upper == Milp::kInfinity) return GLP_LO;
  return lower == upper ? GLP_FX : GLP_DB;
}

// What GLPK says: the status, and the objective when it is kOptimal.
struct Opinion {
  Status status;
  double objective;
};

Opinion AskGlpk(const Milp& milp) {
  glp_term_out(GLP_OFF);
  glp_prob* problem = glp_create_prob();
  glp_set_obj_dir(problem, GLP_MIN);
  for (const Milp::Column& column : milp.columns) {
    const int i = glp_add_cols(problem, 1);
    glp_set_col_bnds(problem, i, GlpkBounds(column.lower, column.upper), column.lower,
                     column.upper);
    glp_set_obj_coef(problem, i, column.objective);
    glp_set_col_kind(problem, i, column.integer ? GLP_IV : GLP_CV);
  }
  for (const Milp::Row& row : milp.rows) {
    const int i = glp_add_rows(problem, 1);
    glp_set_row_bnds(problem, i, GlpkBounds(row.lower, row.upper), row.lower, row.upper);
    std::vector<int> columns = {0};  // GLPK counts from 1.
    std::vector<double> coefficients = {0};
    for (const auto& [column, coefficient] : row.entries) {
      columns.push_back(column + 1);
      coefficients.push_back(coefficient);
    }
    glp_set_mat_row(problem, i, static_cast<int>(row.entries.size()), columns.data(),
                    coefficients.data());
  }
  const auto answer = [&]() -> Opinion {
    glp_simplex(problem, nullptr);
    const int relaxed = glp_get_status(problem);
    if (relaxed == GLP_NOFEAS) return {Status::kInfeasible, 0};
    if (relaxed == GLP_UNBND) return {Status::kUnbounded, 0};
    glp_intopt(problem, nullptr);
    if (glp_mip_status(problem) != GLP_OPT) return {Status::kInfeasible, 0};
    return {Status::kOptimal, glp_mip_obj_val(problem)};
  }();
  glp_delete_prob(problem);
  return answer;
}

Milp RandomMilp(Random& random) {
  Milp milp;
  const auto small = [&](int low, int high) {
    return low + static_cast<int>(random.Below(static_cast<std::uint64_t>(high - low + 1)));
  };
  const int columns = small(1, 7);
  for (int i = 0; i < columns; ++i) {
    Milp::Column column{.objective = static_cast<double>(small(-5, 9)), .integer = small(0, 3) > 0};
    if (small(0, 1) == 0) column.upper = small(0, 12);
    if (small(0, 5) == 0) column.lower = small(-6, 0);
    milp.AddColumn(column);
  }
  const int rows = small(1, 6);
  for (int i = 0; i < rows; ++i) {
    Milp::Row row;
    for (int c = 0; c < columns; ++c) {
      if (small(0, 2) > 0) row.entries.emplace_back(c, small(-4, 9) + 0.25 * small(0, 3));
    }
    const int kind = small(0, 4);
    if (kind != 0) row.lower = small(-10, 20);
    if (kind == 0) row.upper = small(-5, 30);
    if (kind == 1) row.upper = row.lower + small(0, 6);
    milp.AddRow(row);
  }
  return milp;
}

TEST(MilpTest, AgreesWithGlpkOnRandomPrograms) {
  Random random(20240817);
  int optimal = 0;
  int infeasible = 0;
  for (int i = 0; i < 150; ++i) {
    const Milp milp = RandomMilp(random);
    const Opinion glpk = AskGlpk(milp);
    const MilpSolution cbc = Solve(milp);
    // When the relaxation has no end, solvers may stop there without looking
    // for whole numbers.
    if (glpk.status == Status::kUnbounded) {
      EXPECT_NE(cbc.status, Status::kOptimal) << "case " << i;
      continue;
    }
    ASSERT_EQ(cbc.status, glpk.status) << "case " << i;
    if (glpk.status == Status::kInfeasible) {
      ++infeasible;
      EXPECT_TRUE(cbc.values.empty());
      continue;
    }
    ++optimal;
    EXPECT_NEAR(cbc.objective, glpk.objective, 1e-6 * std::max(1.0, std::abs(glpk.objective)))
        << "case " << i;
    EXPECT_LE(cbc.bound, cbc.objective + 1e-9) << "case " << i;
    EXPECT_TRUE(Satisfies(milp, cbc.values)) << "case " << i;
  }
  // The generator must keep asking questions of both kinds.
  EXPECT_GT(optimal, 50);
  EXPECT_GT(infeasible, 5);
}

// Two of three items into a knapsack of 10: 6 + 4 is worth 11, 5 + 4 is worth 9.
Milp Knapsack() {
  Milp milp;
  for (const double worth : {7.0, 5.0, 4.0}) {
    milp.AddColumn({.objective = -worth, .upper = 1, .integer = true});
  }
  milp.AddRow({.upper = 10, .entries = {{0, 6}, {1, 5}, {2, 4}}});
  return milp;
}

TEST(MilpTest, FindsTheBestOfAKnapsack) {
  const MilpSolution solution = Solve(Knapsack());
  EXPECT_EQ(solution.status, Status::kOptimal);
  EXPECT_EQ(solution.values, (std::vector<double>{1, 0, 1}));
  EXPECT_DOUBLE_EQ(solution.objective, -11);
}

TEST(MilpTest, AStartThatIsNotBestIsImproved) {
  const MilpSolution solution = Solve(Knapsack(), {.start = std::vector<double>{0, 1, 1}});
  EXPECT_EQ(solution.status, Status::kOptimal);
  EXPECT_DOUBLE_EQ(solution.objective, -11);
}

TEST(MilpTest, AnIllegalStartDoesNoHarm) {
  const MilpSolution solution = Solve(Knapsack(), {.start = std::vector<double>{1, 1, 1}});
  EXPECT_EQ(solution.status, Status::kOptimal);
  EXPECT_DOUBLE_EQ(solution.objective, -11);
}

TEST(MilpTest, WholeNumbersCanBeInfeasibleWhereFractionsAreNot) {
  Milp milp;
  milp.AddColumn({.objective = 1, .upper = 5, .integer = true});
  milp.AddRow({.lower = 1, .upper = 1, .entries = {{0, 2}}});
  const MilpSolution solution = Solve(milp);
  EXPECT_EQ(solution.status, Status::kInfeasible);
  EXPECT_TRUE(solution.values.empty());
}

TEST(MilpTest, ContradictingRowsAreInfeasible) {
  for (const bool integer : {false, true}) {
    Milp milp;
    milp.AddColumn({.objective = 1, .integer = integer});
    milp.AddRow({.lower = 3, .entries = {{0, 1}}});
    milp.AddRow({.upper = 2, .entries = {{0, 1}}});
    EXPECT_EQ(Solve(milp).status, Status::kInfeasible) << integer;
  }
}

TEST(MilpTest, SaysWhenThereIsNoEnd) {
  for (const bool integer : {false, true}) {
    Milp milp;
    milp.AddColumn({.objective = -1, .integer = integer});
    milp.AddRow({.lower = 3, .entries = {{0, 1}}});
    EXPECT_EQ(Solve(milp).status, Status::kUnbounded) << integer;
  }
}

// Market split: equalities with no structure, which keep every solver of this
// kind busy far longer than the limit.
Milp HardMilp(bool slack) {
  Random random(7);
  Milp milp;
  constexpr int kColumns = 40;
  constexpr int kRows = 5;
  for (int c = 0; c < kColumns; ++c) milp.AddColumn({.upper = 1, .integer = true});
  for (int r = 0; r < kRows; ++r) {
    Milp::Row row;
    double sum = 0;
    for (int c = 0; c < kColumns; ++c) {
      const auto coefficient = static_cast<double>(random.Below(100));
      row.entries.emplace_back(c, coefficient);
      sum += coefficient;
    }
    row.lower = row.upper = std::floor(sum / 2);
    if (slack) {
      row.entries.emplace_back(milp.AddColumn({.objective = 1}), 1.0);
      row.entries.emplace_back(milp.AddColumn({.objective = 1}), -1.0);
    }
    milp.AddRow(row);
  }
  return milp;
}

TEST(MilpTest, StoppedWithoutAnAnswerHasNoValues) {
  const MilpSolution solution = Solve(HardMilp(/*slack=*/false), {.time_limit_s = 0.2});
  EXPECT_EQ(solution.status, Status::kStopped);
  EXPECT_TRUE(solution.values.empty());
}

TEST(MilpTest, StoppedWithAnAnswerGivesItAndABound) {
  const Milp milp = HardMilp(/*slack=*/true);
  const MilpSolution solution = Solve(milp, {.time_limit_s = 0.2});
  ASSERT_EQ(solution.status, Status::kStopped);
  ASSERT_TRUE(Satisfies(milp, solution.values));
  EXPECT_LT(solution.bound, solution.objective);
  EXPECT_GE(solution.bound, -1e-9);
}

TEST(MilpTest, ALooseGapEndsEarlyWithinTheGap) {
  Milp milp = Knapsack();
  const MilpSolution solution = Solve(milp, {.relative_gap = 0.5});
  EXPECT_EQ(solution.status, Status::kOptimal);
  EXPECT_LE(solution.objective, -11 * 0.5);
}

TEST(MilpTest, WritesNothingAndLeavesInterruptsAlone) {
  const auto before = std::signal(SIGINT, SIG_IGN);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  (void)Solve(Knapsack(), {.start = std::vector<double>{0, 1, 1}});
  (void)Solve(HardMilp(/*slack=*/true), {.time_limit_s = 0.1});
  Milp infeasible;
  infeasible.AddColumn({.upper = 1, .integer = true});
  infeasible.AddRow({.lower = 2, .entries = {{0, 1}}});
  (void)Solve(infeasible);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(std::signal(SIGINT, before), SIG_IGN);
}

TEST(MilpTest, SatisfiesLooksAtBoundsRowsAndWholeness) {
  const Milp milp = Knapsack();
  EXPECT_TRUE(Satisfies(milp, {1, 0, 1}));
  EXPECT_FALSE(Satisfies(milp, {1, 1, 0}));
  EXPECT_FALSE(Satisfies(milp, {2, 0, 0}));
  EXPECT_FALSE(Satisfies(milp, {0.5, 0, 0}));
  EXPECT_FALSE(Satisfies(milp, {1, 0}));
}

}  // namespace
}  // namespace divvy::planner
