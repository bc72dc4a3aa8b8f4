#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace divvy::plan {

// The line of the file that a part of a plan came from; 0 when a program made
// it. It is not part of the value: any two are equal.
struct SourceLine {
  int number = 0;

  friend bool operator==(const SourceLine&, const SourceLine&) { return true; }
};

// Something that runs on a partition.
struct Assignment {
  enum class Kind { kModel, kJob };
  Kind kind;
  std::string name;
  int processes = 1;                  // Processes that share the partition through MPS.
  std::optional<int> batch = {};      // Largest batch, for models.
  std::optional<int> mps_share = {};  // CUDA_MPS_ACTIVE_THREAD_PERCENTAGE of each process.
  SourceLine line = {};

  friend bool operator==(const Assignment&, const Assignment&) = default;
};

// One MIG instance. Without a start, `divvy apply` chooses the place that
// disturbs least.
struct PlannedInstance {
  std::string profile;
  std::optional<int> start = {};
  std::vector<Assignment> runs = {};
  SourceLine line = {};

  friend bool operator==(const PlannedInstance&, const PlannedInstance&) = default;
};

// Which GPU of a node: NVML's index, or its UUID ("GPU-...").
using GpuRef = std::variant<int, std::string>;

// "GPU 3" or the UUID.
[[nodiscard]] std::string Describe(const GpuRef& ref);

// One GPU: cut into instances, or whole (then `mig` is false and `runs` says
// what shares it).
struct PlannedGpu {
  GpuRef gpu = 0;
  std::string kind = {};  // What gpu::FindGpuModel knows, e.g. "H200-141GB".
  bool mig = true;
  std::vector<PlannedInstance> instances = {};
  std::vector<Assignment> runs = {};
  SourceLine line = {};

  friend bool operator==(const PlannedGpu&, const PlannedGpu&) = default;
};

// How the GPUs of one node shall be cut, and what runs where.
struct Plan {
  std::vector<PlannedGpu> gpus = {};

  friend bool operator==(const Plan&, const Plan&) = default;
};

}  // namespace divvy::plan
