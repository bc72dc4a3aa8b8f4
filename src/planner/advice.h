#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gpu/gpu_model.h"
#include "planner/demand.h"
#include "planner/interference.h"
#include "workload/collocations.h"
#include "workload/jobs_file.h"

// Whether jobs should share a GPU, and how, from what is known of each alone.
// docs/design/advice.md says where the figures come from and how far to trust them.

namespace divvy::planner {

using workload::SharingMode;

struct AdviceRequest {
  std::string gpu_name;
  const gpu::GpuModel* gpu = nullptr;         // Null when it is none that MIG cuts.
  std::optional<double> memory_gib;           // Of the GPU.
  std::optional<double> power_w;              // Its limit.
  std::vector<workload::CollocatedJob> jobs;  // One or more.
  InterferenceModels models = InterferenceModels::Shipped();
  double keep = 0.85;    // The share of its speed that each job should keep.
  bool isolate = false;  // Nothing but MIG keeps jobs apart enough.
};

// What the model says of "every job keeps its share". The words stand for the precision
// and recall that they had on models left out of the fit.
enum class Odds { kLikely, kPerhaps, kUnlikely };

[[nodiscard]] std::string_view Describe(Odds odds);

// One job under one mode.
struct JobOutlook {
  double speed = 1;  // Expected, over its speed alone;
  double low = 1;    // and one standard error to either side.
  double high = 1;
  std::string share = {};          // What it is given: "40%", "3g.20gb"; empty: no part of its own.
  std::optional<double> p99 = {};  // For latency jobs: tail latency over that alone, where known.
};

struct ModeOutlook {
  SharingMode mode = SharingMode::kOneByOne;
  std::string impossible = {};            // Why it cannot be done; empty when it can.
  std::optional<double> memory_gib = {};  // That all jobs take together, contexts included.
  std::vector<JobOutlook> jobs = {};      // In the request's order; none when impossible.
  double throughput = 0;                  // Sum of speeds: 1 is one job at a time.
  Odds keeps = Odds::kUnlikely;
};

struct Advice {
  std::vector<Demand> demands;     // Of each job.
  std::vector<ModeOutlook> modes;  // All, in kSharingModes' order.
  SharingMode recommended = SharingMode::kOneByOne;
  std::string reason;              // One sentence.
  std::vector<std::string> notes;  // What was not known.

  const ModeOutlook& outlook(SharingMode mode) const {
    return modes[static_cast<std::size_t>(mode)];
  }
};

// REQUIRES: at least one job, and none named twice.
[[nodiscard]] Advice Advise(const AdviceRequest& request);

// Sharing must promise so much work, in units of one job at a time, to be advised.
inline constexpr double kWorthSharing = 1.1;

// Memory that a process takes for being one: CUDA's context, in GiB. About that on
// A100 to H200; it grows with the libraries that a process loads.
inline constexpr double kContextGib = 0.5;

}  // namespace divvy::planner
