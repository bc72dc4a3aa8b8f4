#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"

// Jobs that may share one GPU, as YAML; docs/formats/jobs.md describes the file for
// its authors. `divvy advise` reads it to predict, `divvy collocate` to measure.

namespace divvy::workload {

// Steps a second of a job at another batch size, all else alike.
struct BatchSpeed {
  int batch = 0;
  double steps_per_second = 0;

  friend bool operator==(const BatchSpeed&, const BatchSpeed&) = default;
};

// The same job, same batch, on another kind of GPU.
struct OtherGpuSpeed {
  double gpu_speed = 0;  // How many times as fast that GPU is as this one; below 1: slower.
  double steps_per_second = 0;
};

// What is known of a job from running it alone. Anything may be missing.
struct SoloProfile {
  std::optional<double> memory_gib = {};        // What it allocates, CUDA's context apart.
  std::optional<double> utilisation = {};       // Share of time a kernel runs, 0 to 1.
  std::optional<double> sm_activity = {};       // Share of SMs at work, over time, 0 to 1.
  std::optional<double> bandwidth = {};         // Share of time memory is read or written, 0 to 1.
  std::optional<double> power_w = {};           // Of the board.
  std::optional<double> steps_per_second = {};  // Alone on the GPU.
  std::optional<int> batch = {};                // At which that is.
  std::vector<BatchSpeed> speeds = {};          // By batch, ascending.
  std::optional<OtherGpuSpeed> elsewhere = {};
  std::optional<double> demand = {};  // Measured on slices: see FamilyDemand.
  std::string family = {};            // One of KnownFamilies; empty: none.
};

enum class JobClass {
  kLatency,  // Somebody waits for each answer.
  kBatch,    // Only the work done counts.
};

struct CollocatedJob {
  std::string name;
  std::vector<std::string> command = {};      // argv; empty when the file gives none.
  bool shell = false;                         // `command` is one line, for /bin/sh -c.
  std::string directory = {};                 // To run in; empty: where the caller stands.
  std::vector<std::string> environment = {};  // NAME=VALUE, beside what is inherited.
  JobClass job_class = JobClass::kBatch;
  // How to read what it prints, for `divvy collocate`: POSIX regular expressions over a line, empty
  // when the file gives none.
  std::string ready = {};     // It is set up.
  std::string progress = {};  // With a group: steps so far.
  std::string latency = {};   // With a group: milliseconds.
  bool waits = false;         // When ready, it begins once a line comes on its standard input.
  SoloProfile profile = {};
  int line = 0;
};

// How `divvy collocate` runs the jobs.
struct CollocationRun {
  Duration warmup = std::chrono::seconds(30);
  Duration limit = std::chrono::minutes(5);  // From a job's start.
};

struct JobsFile {
  std::string gpu;                            // The catalogue's name where it has one.
  std::optional<double> gpu_memory_gib = {};  // Given, or the catalogue's.
  std::optional<double> gpu_power_w = {};     // The board's limit.
  std::vector<CollocatedJob> jobs;            // Copies are jobs of their own: "name-1", "name-2".
  CollocationRun run = {};
};

// Reads a jobs file. `file_name` is for messages alone. Any bytes give a value or
// kInvalidArgument with "FILE:LINE: key: value, and what would be right". Names are
// all different, and there are 1 to 64 jobs, copies counted.
[[nodiscard]] Result<JobsFile> ParseJobs(std::string_view text, std::string_view file_name);

}  // namespace divvy::workload
