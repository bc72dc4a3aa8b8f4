#include "collocate_advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "advise_input.h"
#include "measure/runs_plan.h"

namespace divvy::app {
namespace {

using Names = std::vector<std::string>;

Names NamesOf(const measure::SetTogether& set) {
  Names names;
  for (const measure::JobTogether& job : set.jobs) names.push_back(job.job);
  return names;
}

std::optional<planner::Advice> AdviseJobs(const workload::JobsFile& file,
                                          const std::vector<measure::RunRow>& rows,
                                          const Names& names) {
  const measure::AloneOf copies = measure::CopiesAmong(file.jobs);
  workload::JobsFile known = file;
  known.jobs.clear();
  std::map<std::string, int> times;
  for (const std::string& name : names) {
    const measure::RunRow* const alone = measure::FindAlone(rows, copies, name);
    if (alone == nullptr) return {};
    auto job = *std::ranges::find(file.jobs, name, &workload::CollocatedJob::name);
    job.profile = measure::ProfileFromRun(job, *alone);
    if (const int time = ++times[name]; time > 1) job.name += fmt::format(" ({})", time);
    known.jobs.push_back(std::move(job));
  }
  // Without what was just measured together: that would be telling, not foretelling.
  return Advise(RequestFor(std::move(known), planner::InterferenceModels::Shipped()));
}

// Guesses are not learned from.
[[nodiscard]] Result<void> CheckNoGuess(const workload::MeasuredSet& measured,
                                        std::string_view jobs_file) {
  for (const workload::MeasuredJob& job : measured.jobs) {
    workload::SoloProfile kept = job.profile;
    kept.family.clear();
    kept.speeds.clear();
    kept.elsewhere.reset();
    if (!planner::EstimateDemand(kept, measured.gpu_power_w).is_guess) continue;
    return Fail(ErrorCode::kFailedPrecondition,
                fmt::format("of {} neither utilisation nor, with the GPU's limit (`gpu: power`), "
                            "power is known: say them in {}, where NVML does not",
                            job.name, jobs_file));
  }
  return {};
}

}  // namespace

std::vector<SetAdvice> AdviseSets(const workload::JobsFile& file,
                                  const std::vector<measure::RunRow>& rows,
                                  const std::vector<measure::SetTogether>& sets) {
  std::vector<Names> wanted;
  for (const measure::SetTogether& set : sets) {
    Names names = NamesOf(set);
    if (names.size() > 1 && std::ranges::find(wanted, names) == wanted.end()) {
      wanted.push_back(std::move(names));
    }
  }
  if (wanted.empty() && file.jobs.size() > 1) {
    wanted.emplace_back();
    for (const workload::CollocatedJob& job : file.jobs) wanted.back().push_back(job.name);
  }
  std::vector<SetAdvice> found;
  for (Names& names : wanted) {
    if (auto advice = AdviseJobs(file, rows, names)) {
      found.push_back({std::move(names), *std::move(advice)});
    }
  }
  return found;
}

Result<workload::MeasuredSet> LessonOf(const measure::SetTogether& set,
                                       const workload::JobsFile& file,
                                       const std::vector<measure::RunRow>& rows,
                                       std::string_view jobs_file) {
  const measure::AloneOf copies = measure::CopiesAmong(file.jobs);
  workload::MeasuredSet measured{.id = set.workload,
                                 .gpu = file.gpu,
                                 .gpu_power_w = file.gpu_power_w,
                                 .mode = set.mode,
                                 .jobs = {}};
  for (const measure::JobTogether& job : set.jobs) {
    if (job.by_latency) {
      return Fail(ErrorCode::kFailedPrecondition,
                  fmt::format("{} is measured by its latency, which is no speed", job.job));
    }
    const auto known = std::ranges::find(file.jobs, job.job, &workload::CollocatedJob::name);
    const measure::RunRow& alone = *measure::FindAlone(rows, copies, job.job);
    measured.jobs.push_back(
        {.name = job.job, .profile = measure::ProfileFromRun(*known, alone), .speed = *job.speed});
  }
  if (auto known = CheckNoGuess(measured, jobs_file); !known) return Fail(known.error());
  return measured;
}

}  // namespace divvy::app
