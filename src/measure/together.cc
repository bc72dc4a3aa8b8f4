#include "measure/together.h"

#include <algorithm>

namespace divvy::measure {
namespace {

std::optional<double> Ratio(const std::optional<double>& over, const std::optional<double>& under) {
  if (!over || !under || *under <= 0 || *over <= 0) return {};
  return *over / *under;
}

JobTogether Compare(const RunRow& row, const RunRow* alone) {
  JobTogether job{.job = row.job, .share = row.share, .alone = {}, .together = row.figures};
  if (alone == nullptr) return job;
  job.alone = alone->figures;
  const JobFigures& before = alone->figures;
  const JobFigures& now = row.figures;
  job.speed = Ratio(before.latency_ms, now.latency_ms);
  job.by_latency = job.speed.has_value();
  if (!job.speed) job.speed = Ratio(now.steps_per_s, before.steps_per_s);
  if (!job.speed) job.speed = Ratio(before.seconds, now.seconds);
  // Who waits for requests is not done sooner or later for being slower.
  if (before.latency_ms) return job;
  if (before.seconds && now.seconds) {
    job.alone_s = before.seconds;
    job.together_s = now.seconds;
  } else if (const auto speed = Ratio(now.steps_per_s, before.steps_per_s)) {
    job.alone_s = alone->gpu.measured_s;
    if (job.alone_s) job.together_s = *job.alone_s / *speed;
  }
  return job;
}

void Sum(SetTogether& set) {
  double one_by_one = 0;
  double last = 0;
  double aggregate = 0;
  bool timed = true;
  bool compared = true;
  for (const JobTogether& job : set.jobs) {
    timed = timed && job.alone_s && job.together_s;
    compared = compared && job.speed;
    one_by_one += job.alone_s.value_or(0);
    last = std::max(last, job.together_s.value_or(0));
    aggregate += job.by_latency ? 1 : job.speed.value_or(0);
  }
  if (timed) set.one_by_one_s = one_by_one;
  if (timed) set.together_s = last;
  if (compared) set.aggregate = aggregate;
}

}  // namespace

const RunRow* FindAlone(const std::vector<RunRow>& rows, const AloneOf& alone_of,
                        const std::string& job) {
  const auto find = [&](const std::string& name) -> const RunRow* {
    const auto found = std::ranges::find_if(rows, [&](const RunRow& row) {
      return !row.mode && row.state == RunState::kDone && row.job == name;
    });
    return found == rows.end() ? nullptr : &*found;
  };
  if (const RunRow* const own = find(job)) return own;
  const auto other = alone_of.find(job);
  return other == alone_of.end() ? nullptr : find(other->second);
}

std::vector<SetTogether> CompareRuns(const std::vector<RunRow>& rows, const AloneOf& alone_of) {
  std::vector<SetTogether> sets;
  for (const RunRow& row : rows) {
    if (!row.mode || row.state != RunState::kDone) continue;
    auto set = std::ranges::find(sets, row.workload, &SetTogether::workload);
    if (set == sets.end()) {
      sets.push_back({.workload = row.workload, .mode = *row.mode, .jobs = {}, .gpu = row.gpu});
      set = sets.end() - 1;
    }
    set->jobs.push_back(Compare(row, FindAlone(rows, alone_of, row.job)));
  }
  for (SetTogether& set : sets) Sum(set);
  return sets;
}

}  // namespace divvy::measure
