#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "gate/board.h"

namespace divvy::app {

// What a job's slot on a board says, at one moment. Times in nanoseconds, counts since
// the job joined.
struct JobReading {
  int pid = 0;
  std::uint64_t start_time = 0;  // With the pid: which job it is.
  std::uint64_t age_ns = 0;      // Of the process.
  gate::JobClass job_class = gate::JobClass::kNone;
  std::string name;
  std::uint32_t weight = 0;  // Hundredths.
  std::uint64_t slo_ns = 0;  // 0: none.
  std::uint32_t openness = 0;
  std::uint64_t memory_bytes = 0;
  std::uint64_t memory_quota = 0;  // 0: none.
  std::uint64_t launches = 0;
  std::uint64_t markers = 0;
  std::uint64_t gpu_ns = 0;
  std::uint64_t closed_ns = 0;  // With what it has been closed for by now.
  std::uint64_t requests = 0;
  std::uint64_t late = 0;
  std::uint64_t p50_ns = 0;
  std::uint64_t p99_ns = 0;
  std::uint64_t rescued = 0;
  bool marked = false;
  std::uint32_t slice_us = 0;  // How long its time slices are by our setting; 0: no setting.
  bool apart = false;          // Of a latency job: its time slices interrupt batch jobs'.
  gate::GateMode mode = gate::GateMode::kUnknown;
};

struct BoardReading {
  std::string gpu;  // The GPU's UUID as 32 hex digits.
  std::uint64_t at_ns = 0;
  std::vector<JobReading> jobs;     // Those that live, by slot.
  std::vector<JobReading> servers;  // Those of MPS, in whose time slices clients run.
};

// Reads the board at `path` without taking part: maps it for reading, takes no lock.
//   kNotFound         it is gone;
//   kInvalidArgument  it is no board of this user and this version of Divvy.
[[nodiscard]] Result<BoardReading> ReadBoard(const std::string& path);

}  // namespace divvy::app
