#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gpu/gpu_model.h"
#include "workload/partition_size.h"

// Training speeds as CSV; docs/formats/training.md describes the file for its authors.

namespace divvy::workload {

// One measurement: training on a partition of this size.
struct TrainingSpeed {
  PartitionSize size = {};
  double samples_per_second = 0;
  std::optional<double> memory_mib = {};
  int row = 0;  // Line of the file, for messages.
};

// All that was measured of training one model on one kind of GPU.
struct TrainingSpeeds {
  std::string model;
  std::string gpu;                    // As the file says; empty when it does not.
  std::string source;                 // Where the figures come from; may be empty.
  std::vector<TrainingSpeed> speeds;  // By size, all different.

  // What speaks best for instances of `profile` (see MatchQuality), or null.
  [[nodiscard]] const TrainingSpeed* Find(const gpu::MigProfile& profile) const;

  // Samples a second on an instance; nothing where none was measured, and where the
  // instance is known to have less memory than training takes.
  [[nodiscard]] std::optional<double> SamplesPerSecond(const gpu::GpuModel& gpu_model,
                                                       gpu::ProfileIndex profile) const;
};

struct TrainingFile {
  std::vector<TrainingSpeeds> models;  // By name, then GPU.

  // The speeds of `model`, the first if several GPUs have them; null if none.
  [[nodiscard]] const TrainingSpeeds* Find(std::string_view model) const;
};

// Reads a training file. `file_name` is for messages alone. Columns may stand in any
// order; required are model, size, samples_per_s; known besides are memory_mib, gpu,
// source. Any bytes give a value or kInvalidArgument with "FILE:LINE: what is wrong,
// and what would be right". Two rows for one size are an error that names both, and
// so are two sources for one model on one GPU.
[[nodiscard]] Result<TrainingFile> ParseTraining(std::string_view text, std::string_view file_name);

}  // namespace divvy::workload
