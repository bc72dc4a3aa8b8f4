#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "planner/goodput_columns.h"
#include "planner/goodput_seating.h"

namespace divvy::planner {

// A seating that a path may take, and when it can be.
struct PathColumn {
  Seating seats;
  std::vector<int> valid_until;  // By slot: the first slot from there on at which it is not
                                 // possible; the slot itself when it is not possible then.
};

// Seatings one after another: each from its slot on.
struct PathStep {
  int begin;
  std::size_t column;
};

struct Path {
  std::vector<PathStep> steps;  // The first begins at 0.
  double worth = 0;
};

// The best path through `columns` for one GPU, beginning with the first of them: dynamic
// programming from the last slot back, exact for these columns. A change takes as long
// as the slowest tenant that starts needs; in the meantime seats that are the same
// before and after go on, and nothing else changes. Changes begin at multiples of
// `stride` slots, and where pins come or go: a coarse look is quicker.
//
// REQUIRES: the columns differ, and at every slot one without seats is possible.
[[nodiscard]] Path BestPath(const GoodputProblem& problem, const Residual& residual,
                            std::span<const PathColumn> columns, int stride);

// What serves on the GPU along a path.
[[nodiscard]] std::vector<Stretch> StretchesOf(const GoodputProblem& problem, const Path& path,
                                               std::span<const PathColumn> columns);

}  // namespace divvy::planner
