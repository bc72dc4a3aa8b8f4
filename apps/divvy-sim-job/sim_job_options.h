#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "sim_job_cuda.h"

namespace divvy::tests {

// Of a pool: another one for each step, by turns.
enum class JobStream { kDefault, kOwn, kPerThread, kOfPool };
enum class JobLaunch { kPlain, kEx, kCooperative };
enum class JobSync { kStream, kEvent, kContext, kQuery, kQueryEvent, kCopy, kHost };

// What divvy-sim-job is asked to be.
struct JobOptions {
  bool inference = false;  // Or training.
  Lookup lookup = Lookup::kByVersion;
  JobStream stream = JobStream::kDefault;
  JobLaunch launch = JobLaunch::kPlain;
  JobSync sync = JobSync::kStream;
  int kernels = 10;  // A request or step.
  double us = 100;   // A kernel.
  unsigned blocks = 16;
  unsigned threads_per_block = 1024;
  bool graph = false;
  double rate = 0;      // Requests a second; 0: one after the other.
  long count = 0;       // Requests or steps; 0: as many as the time holds.
  double secs = 0;      // 0: until they are done.
  double think_us = 0;  // CPU time before each launch.
  bool marked = false;
  std::size_t alloc = 0;
  int threads = 1;
  int gpus = 1;   // Which the threads use in turn.
  int waits = 1;  // Of a request or step, its kernels before each.
  bool fork_child = false;
  bool nccl = false;
  unsigned long seed = 1;
};

// Reads the command line. Nothing where it makes no sense; `problem` says why.
std::optional<JobOptions> ParseJobOptions(int argc, char** argv, std::string& problem);

// How to call the program.
const char* JobUsage();

}  // namespace divvy::tests
