#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "workload/jobs_file.h"

// What was measured when jobs shared a GPU, as CSV; docs/formats/jobs.md describes the
// file. `divvy collocate` adds to it, `divvy advise` learns from it.

namespace divvy::workload {

// How jobs share one GPU.
enum class SharingMode {
  kOneByOne,     // They do not: one after the other.
  kTimeSlicing,  // Several processes and nothing else; the driver switches between them.
  kMps,          // NVIDIA's MPS, kernels of all side by side.
  kMpsShares,    // The same, each held to a percentage of the SMs.
  kMig,          // An instance for each.
  kGate,         // Divvy's gate: batch jobs run while no latency job wants the GPU.
};

inline constexpr std::array<SharingMode, 6> kSharingModes = {
    SharingMode::kOneByOne,  SharingMode::kTimeSlicing, SharingMode::kMps,
    SharingMode::kMpsShares, SharingMode::kMig,         SharingMode::kGate};

// As files and JSON write it: "time-slicing".
[[nodiscard]] std::string_view NameOf(SharingMode mode);

struct MeasuredJob {
  std::string name;
  SoloProfile profile = {};
  double speed = 0;  // Together over alone: 1 is as fast as alone.
};

// Jobs that ran together once.
struct MeasuredSet {
  std::string id;
  std::string gpu;
  std::optional<double> gpu_power_w = {};
  SharingMode mode = SharingMode::kTimeSlicing;
  std::vector<MeasuredJob> jobs = {};  // Two or more.
};

// Reads such a file; in the order in which sets first appear. `file_name` is for
// messages alone. Columns may stand in any order; required are set, gpu, mode, job and
// speed. Any bytes give a value or kInvalidArgument with "FILE:LINE: what is wrong, and
// what would be right". A set of one job, and rows of one set that differ in GPU or
// mode, are errors. A file without rows is empty, not wrong.
[[nodiscard]] Result<std::vector<MeasuredSet>> ParseCollocations(std::string_view text,
                                                                 std::string_view file_name);

// The header line, and the lines of one set under it, as ParseCollocations reads them.
[[nodiscard]] std::string CollocationsHeader();
[[nodiscard]] std::string CollocationLines(const MeasuredSet& set);

}  // namespace divvy::workload
