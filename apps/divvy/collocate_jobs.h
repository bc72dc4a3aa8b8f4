#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "device/usage.h"
#include "measure/job_output.h"
#include "measure/runs_file.h"

namespace divvy::app {

// A program to be run beside others, and how to read what it prints.
struct TogetherJob {
  std::string name;
  std::vector<std::string> command;  // Looked up on PATH. Not empty.
  std::string directory;             // Empty: ours.
  // On top of ours; nothing takes one away.
  std::map<std::string, std::optional<std::string>> environment;
  int inherited_fd = -1;  // Stays open in the job; -1 for none.
  // Not empty: a line that `command` prints when it becomes the job, having been something else
  // before. The job's time counts from then on, and its log does not have the line.
  std::string start_mark = {};
  std::optional<measure::LinePattern> ready;     // It is set up; without one it is so at once.
  bool waits = false;                            // Begins when a line comes on its standard input.
  std::optional<measure::LinePattern> progress;  // Steps so far.
  std::optional<measure::LinePattern> latency;   // Milliseconds; the last word counts.
  std::string log;                               // File that takes what it prints.

  // Measured until it is stopped, not by when it ends.
  bool goes_on() const { return progress || latency; }
};

struct TogetherPace {
  Duration warmup{};  // From the common start; jobs that go on are measured from then on,
  Duration limit{};   // until then. A job that must end has to by then.
};

// How the GPU was, over one stretch of the time that was measured.
struct GpuMoment {
  double from_s = 0;
  double to_s = 0;
  measure::GpuFigures figures;
};

struct TogetherOutcome {
  std::vector<measure::JobFigures> jobs;
  measure::GpuFigures gpu;
  std::vector<GpuMoment> timeline;
};

// From now on signals that would end this process wait for RunTogether to see them.
void HoldSignals();

// Runs the jobs together: starts all, waits until all are ready, tells those that wait to begin,
// and measures. Then what still runs is asked to end, and killed after ten seconds. Each is a
// process group of its own and dies when we do. `watch` is the GPU's, or null. `tell` hears now and
// then how far it is.
//   kFailedPrecondition  a job could not be started, failed, did not end in time or said nothing
//                        that it could be measured by: the message names it and its log;
//   kAborted             a signal (SIGINT, SIGTERM) ended it all.
// REQUIRES: HoldSignals() was called. For the only thread of this process.
[[nodiscard]] Result<TogetherOutcome> RunTogether(const std::vector<TogetherJob>& jobs,
                                                  const TogetherPace& pace,
                                                  device::UsageWatch* watch,
                                                  const std::function<void(std::string)>& tell);

}  // namespace divvy::app
