#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "workload/profile.h"

namespace divvy::workload {

// Something about measurements that a person should know before trusting them.
struct Finding {
  enum class Kind {
    kHole,         // Batches that other curves of the model have and this one lacks in its range.
    kNotMonotone,  // A larger batch that takes less time than a smaller one.
    kOutlier,      // A throughput that leaps away from its neighbours'.
  };
  Kind kind;
  int row;              // Line of the file; for a hole, that of the point after it.
  std::string message;  // "bert on 3g, 1 process, batch 128: ...", with the values.
};

// Points of `curve` (by position) whose throughput leaps away from the trend: the
// curve had flattened (a doubling of the batch brought less than 19 %), this point
// is more than 1.4 times what that trend leads to, and the next point does not
// confirm it. Hardware does not do that; swapped or stale figures do.
[[nodiscard]] std::vector<std::size_t> Outliers(const ProfileCurve& curve);

// Everything odd about the model, by row.
[[nodiscard]] std::vector<Finding> FindOddities(const ModelProfile& model);

// "bert on 3g, 2 processes, batch 128", as findings and notes name a point.
[[nodiscard]] std::string Describe(const ModelProfile& model, const ProfileCurve& curve,
                                   const ProfilePoint& point);

}  // namespace divvy::workload
