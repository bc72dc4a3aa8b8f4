#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "workload/profile.h"
#include "workload/profile_check.h"

// Profiles as CSV; docs/formats/profile.md describes the file for its authors.

namespace divvy::workload {

struct ProfileFile {
  std::vector<ModelProfile> models;  // By name, then GPU.
  std::vector<Finding> findings;     // By row.

  // The profile of `model`, the first if several GPUs have one; null if none.
  [[nodiscard]] const ModelProfile* Find(std::string_view model) const;
};

// Of the column `source`, in bytes: there is a command line in it.
inline constexpr std::size_t kLongestSource = 1'000;

// Reads a profile file. `file_name` is for messages alone. Columns may stand in
// any order; required are model, partition, batch, latency_ms; known besides are
// processes, p50_ms, p95_ms, p99_ms, error, utilization, memory_mib, power_w, gpu, source. Any
// bytes give a value or kInvalidArgument with "FILE:LINE: what is wrong, and what would be right".
// Two rows for one point are an error that names both, and so are two sources in
// one model on one GPU.
[[nodiscard]] Result<ProfileFile> ParseProfiles(std::string_view text, std::string_view file_name);

// Writes rows that ParseProfiles reads back as equal models but for the rows they
// stand on; columns that no point uses are left out.
[[nodiscard]] std::string FormatProfiles(const std::vector<ModelProfile>& models);

}  // namespace divvy::workload
