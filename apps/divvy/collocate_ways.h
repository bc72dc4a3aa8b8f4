#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "collocate_jobs.h"
#include "measure/runs_file.h"
#include "run_mps.h"
#include "workload/jobs_file.h"

namespace divvy::app {

// One GPU, for jobs to share.
struct SharedGpu {
  std::string wanted;  // The word of --gpu; empty: as CUDA would choose.
  std::string nvml;
  std::string library;  // The gate's; empty: beside this program.
};

// The jobs of one workload made ready to run in its way.
struct PreparedWay {
  std::vector<TogetherJob> jobs;
  std::vector<MpsUse> daemons;  // Kept while they run.
  std::string impossible;       // Why this cannot be done here; empty when it can.
};

// The modes that --modes names, in its order; without words all that need nothing more to be said.
// kInvalidArgument names a word that is none, or stands there twice.
[[nodiscard]] Result<std::vector<workload::SharingMode>> ModesOf(
    const std::vector<std::string>& words);

// What is not as one might think of this way, here: with a blank before it. Mostly empty.
[[nodiscard]] std::string NoteOnWay(const std::optional<workload::SharingMode>& mode);

// For file names: jobs and workloads may be called anything.
[[nodiscard]] std::string PlainName(std::string_view text);

// Whether every job can be run and read, as far as one can tell without starting it; else
// kInvalidArgument with "FILE:LINE: job NAME: what is wrong".
[[nodiscard]] Result<void> CheckJobs(const std::vector<workload::CollocatedJob>& jobs,
                                     std::string_view file_name);

// `rows` are those of one workload, `jobs` what each of them runs. What they print goes to files in
// `logs`. `run_id` marks every process. Errors are those of a wrong --gpu or of files; what this
// machine cannot do is no error.
[[nodiscard]] Result<PreparedWay> PrepareWay(const std::vector<measure::RunRow>& rows,
                                             const std::vector<workload::CollocatedJob>& jobs,
                                             const SharedGpu& gpu, const std::string& logs,
                                             const std::string& run_id);

}  // namespace divvy::app
