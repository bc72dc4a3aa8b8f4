#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/time.h"

namespace divvy::workload {

// One way to retrain a model: so much data, and how good it is expected to get.
struct RetrainingOption {
  std::string name;
  double samples = 0;   // To be trained on, epochs multiplied out.
  double accuracy = 0;  // 0 to 1, on the data of the time it was trained at.
};

// How accuracy grows with the samples trained on: limit - (limit - start) * e^(-n / scale).
struct LearningCurve {
  double start = 0;
  double limit = 0;  // At least `start`.
  double scale = 1;  // Samples.

  [[nodiscard]] double AccuracyAfter(double samples) const;
};

// The curve's points at these numbers of samples, each named by its number.
[[nodiscard]] std::vector<RetrainingOption> OptionsOf(const LearningCurve& curve,
                                                      std::span<const double> samples);

// A model that serves while the world moves away from what it was trained on, and
// what retraining could do about it. Accuracies are from 0 to 1.
struct Learning {
  double accuracy = 0;                         // Of the model that serves at the start.
  double drift_per_minute = 0;                 // Lost a minute.
  double floor = 0;                            // It does not fall below; at most `accuracy`.
  std::vector<RetrainingOption> options = {};  // At least one; names differ.
  double uncertainty = 0;  // Sigma of what comes out around an option's accuracy.

  // Accuracy at `age` after the time of the data that a model of `trained` accuracy
  // was trained on: it falls evenly, down to the floor. Never above `trained`, which
  // may be below the floor.
  [[nodiscard]] double AccuracyAfter(double trained, Duration age) const;
};

}  // namespace divvy::workload
