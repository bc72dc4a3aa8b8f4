#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "workload/collocations.h"

// The runs of `divvy collocate`, as CSV; docs/formats/runs.md describes the file for its authors.
// It is both what is to be run and what was found: rows that have no state yet are open.

namespace divvy::measure {

enum class RunState {
  kOpen,     // To be run.
  kDone,     // Its figures stand in the row.
  kFailed,   // `why` says why.
  kSkipped,  // It cannot be run here; `why` says why.
};

// What was measured of one job. What nobody told stays empty.
struct JobFigures {
  std::optional<double> seconds = {};  // From its start, or when it was told to begin, to its end.
  std::optional<double> steps_per_s = {};  // While it was measured.
  std::optional<double> latency_ms = {};   // As it says itself.
  std::optional<double> cpu_s = {};        // Of all its processes.
  std::optional<double> host_mib = {};     // The most that one of them had.
};

// What was measured of the GPU while all ran.
struct GpuFigures {
  std::optional<double> measured_s = {};
  std::optional<double> busy = {};       // Share of the time in which a kernel ran.
  std::optional<double> sm_active = {};  // Share of the SMs, over time.
  std::optional<double> memory_mib = {};
  std::optional<double> power_w = {};
  [[nodiscard]] std::optional<double> energy_j() const;
};

// One job of a workload. Rows of one workload run together.
struct RunRow {
  std::string workload;
  std::optional<workload::SharingMode> mode = {};  // Nothing: alone.
  std::string job;
  std::optional<int> share = {};  // Percent of the SMs, under mps-shares.
  RunState state = RunState::kOpen;
  JobFigures figures = {};
  GpuFigures gpu = {};  // The same in all rows of a workload.
  std::string why = {};
  std::string made_with = {};  // Of a run that is done: see MadeWith in runs_plan.h.
  std::string on = {};         // Likewise: which GPU and driver, "H200-141GB GPU-5a.., driver 580".
};

// Reads a runs file. Required are workload, mode and job; any bytes give a value or
// kInvalidArgument with "FILE:LINE: column: value, and what would be right". Rows of a workload
// agree in mode; one that is alone is one row; shares stand under mps-shares, and there only, in
// every row.
[[nodiscard]] Result<std::vector<RunRow>> ParseRuns(std::string_view text,
                                                    std::string_view file_name);

[[nodiscard]] std::string FormatRuns(const std::vector<RunRow>& rows);

// "alone", or the mode's name.
[[nodiscard]] std::string_view NameOfMode(const std::optional<workload::SharingMode>& mode);

}  // namespace divvy::measure
