#pragma once

#include <cstddef>
#include <variant>
#include <vector>

#include "planner/deployment.h"
#include "planner/layout_columns.h"
#include "planner/milp.h"
#include "planner/problem.h"

// The exact planner's question as a MILP. docs/design/exact-planner.md.

namespace divvy::planner {

// A model as the MILP sees it: only the ways to run it that can matter, and how
// much those that take large requests must carry.
struct ModelSide {
  // Items a second that must be carried by options that take requests of `batch`.
  struct Need {
    int batch;
    double items;
  };

  std::size_t model;            // Into Problem::models.
  std::vector<Option> options;  // By profile.
  std::vector<Need> needs;      // Ascending batches; at least one.
};

// Models with requests to carry, or the first that has one which fits nowhere in time.
[[nodiscard]] std::variant<std::vector<ModelSide>, Infeasible> ModelSides(const Problem& problem);

// What a solution says: how many GPUs get each cut, and how many instances run
// each option.
struct CutCounts {
  std::vector<int> layouts;               // By column of LayoutColumns.
  std::vector<std::vector<int>> options;  // [model side][option].
};

// The MILP over one problem, asked in different ways.
class ExactMilp {
 public:
  // The arguments must outlive it.
  ExactMilp(const Problem& problem, const std::vector<ModelSide>& sides,
            const std::vector<LayoutColumn>& layouts);

  // Fewest GPUs that carry `factor` times all rates and hold the jobs.
  // REQUIRES: factor > 0.
  [[nodiscard]] Milp FewestGpus(double factor) const;

  // The same with at most `gpus` GPUs; any solution will do. REQUIRES: factor > 0.
  [[nodiscard]] Milp Carrying(double factor, int gpus) const;

  // Minus the largest factor on `gpus` GPUs if instances could be had in fractions:
  // a bound on the truth. Infeasible when not even so the jobs have room.
  [[nodiscard]] Milp RelaxedHeadroom(int gpus) const;

  // Values of FewestGpus or Carrying, there and back.
  [[nodiscard]] CutCounts Read(const std::vector<double>& values) const;
  [[nodiscard]] std::vector<double> Write(const CutCounts& counts) const;

  // The factor that these instances carry: infinite when no model needs anything.
  [[nodiscard]] double Factor(const CutCounts& counts) const;

 private:
  [[nodiscard]] Milp Columns() const;
  void AddSupplyRows(Milp& milp) const;
  void AddNeedRows(Milp& milp, double factor) const;
  void AddGpusRow(Milp& milp, int gpus) const;
  [[nodiscard]] int OptionColumn(std::size_t side, std::size_t option) const;

  const Problem& problem_;
  const std::vector<ModelSide>& sides_;
  const std::vector<LayoutColumn>& layouts_;
  std::vector<int> first_option_;  // Column of each side's first option.
};

// The profiles that a plan may need: the base set, and those of options and jobs.
[[nodiscard]] std::vector<gpu::ProfileIndex> ProfilesNeeded(const Problem& problem,
                                                            const std::vector<ModelSide>& sides);

}  // namespace divvy::planner
