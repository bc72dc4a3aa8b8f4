#include "measure/runs_plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace divvy::measure {
namespace {

using workload::CollocatedJob;

constexpr std::size_t kLongestName = 150;

bool RunTheSame(const CollocatedJob& a, const CollocatedJob& b) {
  return a.command == b.command && a.directory == b.directory && a.environment == b.environment &&
         a.job_class == b.job_class;
}

}  // namespace

AloneOf CopiesAmong(const std::vector<CollocatedJob>& jobs) {
  AloneOf copies;
  for (const CollocatedJob& job : jobs) {
    const auto first = std::ranges::find_if(
        jobs, [&](const CollocatedJob& other) { return RunTheSame(job, other); });
    copies[job.name] = first->name;
  }
  return copies;
}

std::vector<RunRow> PlanRuns(const std::vector<CollocatedJob>& jobs,
                             const std::vector<workload::SharingMode>& modes,
                             const std::vector<int>& shares) {
  std::vector<RunRow> rows;
  const AloneOf copies = CopiesAmong(jobs);
  for (const CollocatedJob& job : jobs) {
    if (copies.at(job.name) != job.name) continue;
    // A name of its own may be as long as names are.
    const std::string who =
        job.name.size() > kLongestName ? fmt::format("job {}", &job - jobs.data() + 1) : job.name;
    rows.push_back({.workload = fmt::format("{} alone", who), .mode = {}, .job = job.name});
  }
  if (jobs.size() < 2) return rows;
  for (const workload::SharingMode mode : modes) {
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      RunRow row{
          .workload = fmt::format("all, {}", NameOf(mode)), .mode = mode, .job = jobs[i].name};
      if (mode == workload::SharingMode::kMpsShares) row.share = shares[i];
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

workload::SoloProfile ProfileFromRun(const CollocatedJob& job, const RunRow& alone) {
  workload::SoloProfile profile = job.profile;
  if (alone.gpu.busy) profile.utilisation = std::clamp(*alone.gpu.busy, 0.0, 1.0);
  if (alone.gpu.sm_active) profile.sm_activity = std::clamp(*alone.gpu.sm_active, 0.0, 1.0);
  if (alone.gpu.memory_mib) profile.memory_gib = *alone.gpu.memory_mib / 1024;
  if (alone.gpu.power_w) profile.power_w = alone.gpu.power_w;
  // Speeds at other batches and elsewhere were measured with the one in the file.
  if (alone.figures.steps_per_s && profile.speeds.empty() && !profile.elsewhere) {
    profile.steps_per_second = alone.figures.steps_per_s;
  }
  return profile;
}

}  // namespace divvy::measure
