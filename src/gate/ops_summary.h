#pragma once

// A run's kernels by what they took, and how the run went over time.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gate/ops_record.h"

namespace divvy::gate {

// One kernel in one shape. Times are estimates: launches were all counted, and some of them timed.
struct OpRow {
  std::string kernel;  // as the driver gives it; "graph of 12 kernels" for a graph
  bool is_graph = false;
  LaunchShape shape;
  double fill = 1;  // part of the GPU's block slots; 1: all of them, and maybe more
  int sms = 0;      // multiprocessors that its blocks take at once; 0: unknown
  bool collective = false;
  std::uint64_t launches = 0;
  std::uint64_t samples = 0;
  double mean_us = 0;
  double p50_us = 0;
  double p95_us = 0;
  double total_us = 0;  // launches times the mean of each process; 0 where none was timed
  double share = 0;     // of the total of all
  bool light = false;   // as the gate has it: short, and leaves most of the GPU free
};

struct OpsTotals {
  std::uint64_t launches = 0;
  std::uint64_t samples = 0;
  std::uint64_t untimed = 0;  // launches of kinds of which none was timed
  double gpu_us = 0;
  double light_share = 0;  // of gpu_us
};

struct ProcessSummary {
  OpsProcess process;
  OpsTotals totals;
  std::vector<OpRow> rows;
};

struct OpsPhase {
  double begin_s = 0;  // since the first process began
  double end_s = 0;
  double launches_per_s = 0;
  // GPU time of what was launched, by the time that passed. Launches run later than they are
  // submitted, and streams run side by side: it may be above 1.
  double busy = 0;
  double light_share = 0;  // of that GPU time
};

struct OpsSummary {
  std::vector<ProcessSummary> processes;
  std::vector<OpRow> rows;  // of all processes, the largest total first
  OpsTotals totals;
  std::vector<OpsPhase> phases;
};

// Its kernel's name, or "graph of 12 kernels".
[[nodiscard]] std::string NameOfOp(const LoggedOp& op);

inline constexpr std::size_t kOpsPhases = 10;

[[nodiscard]] OpsSummary Summarise(const OpsRecord& record);

// The profile that a gate preloads (gate/ops.h): kernels that were timed, by their median. Graphs
// have no name and shape by which they would be known again.
[[nodiscard]] std::string FormatOps(const std::vector<OpRow>& rows);

}  // namespace divvy::gate
