#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "measure/runs_file.h"

// What sharing brought: runs together beside the same jobs alone.

namespace divvy::measure {

struct JobTogether {
  std::string job;
  std::optional<int> share = {};
  JobFigures alone;
  JobFigures together;
  // Together over alone, by what both were measured by: latency, steps, or time to the end. 1 is as
  // fast as alone.
  std::optional<double> speed = {};
  // Of a service that says its latency: it answers what comes, late or not.
  bool by_latency = false;
  // To do what the job did alone, there and together: of a job that was measured by its steps, the
  // work of as long a stretch as it was measured alone.
  std::optional<double> alone_s = {};
  std::optional<double> together_s = {};
};

struct SetTogether {
  std::string workload;
  workload::SharingMode mode = workload::SharingMode::kTimeSlicing;
  std::vector<JobTogether> jobs;
  GpuFigures gpu;
  // One after the other, and together until the last is done; empty unless all jobs tell. Together,
  // a job that outlasts another is taken to go on no faster than before, where it was measured by
  // its steps: so this is at most too long.
  std::optional<double> one_by_one_s = {};
  std::optional<double> together_s = {};
  // Sum of the jobs' speeds: what the GPU does, in GPUs. A service counts as one, whatever its
  // latency: it does the same work.
  std::optional<double> aggregate = {};
};

// Whose alone run counts for a job: for copies, that of the first.
using AloneOf = std::map<std::string, std::string>;

// The run alone that counts for a job: its own, else that which `alone_of` names. Null if it is not
// done.
[[nodiscard]] const RunRow* FindAlone(const std::vector<RunRow>& rows, const AloneOf& alone_of,
                                      const std::string& job);

// The sets that are done, in the order of `rows`. A job without a run alone has no speed.
[[nodiscard]] std::vector<SetTogether> CompareRuns(const std::vector<RunRow>& rows,
                                                   const AloneOf& alone_of);

}  // namespace divvy::measure
