#pragma once

#include <cstdint>
#include <string>

#include "device/cuda_simulator/clock.h"

namespace divvy::device::cuda_simulator {

// What a process had the simulated driver do, for tests to look at. Not thread-safe.
struct Stats {
  std::uint64_t kernels = 0;  // That ran to their end, those of graphs among them.
  std::uint64_t kernel_launches = 0;
  std::uint64_t graph_launches = 0;
  std::uint64_t waits = 0;  // Waits for a value that a stream came to.
  std::uint64_t waits_blocked = 0;
  Nanos wait_blocked = 0;
  std::uint64_t writes = 0;
  std::uint64_t event_records = 0;
  std::uint64_t event_queries = 0;
  std::uint64_t copies = 0;
  std::uint64_t host_calls = 0;
  std::uint64_t max_queue = 0;      // Most operations in one stream.
  std::uint64_t launches_held = 0;  // That had to wait since their stream was full.
  Nanos sm_wait = 0;                // Of kernels, until they had an SM or the turn.
  std::uint64_t preemptions = 0;
  std::uint64_t memory_peak = 0;  // Bytes.
  std::uint64_t captures_broken = 0;
  std::uint64_t faults = 0;
};

// Adds one line of JSON with `stats` to the file at `path`; in one write, so that processes may
// share it. Best effort: a test that misses its line says so.
void AppendStats(const std::string& path, const Stats& stats);

}  // namespace divvy::device::cuda_simulator
