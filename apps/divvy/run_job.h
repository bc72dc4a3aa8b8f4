#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"

namespace divvy::app {

struct Job {
  std::vector<std::string> command;  // Looked up on PATH as a shell does. Not empty.
  // Variables on top of this process's; nothing takes one away.
  std::map<std::string, std::optional<std::string>> environment;
  int inherited_fd = -1;  // Stays open in the job; -1 for none.
};

// How a job ended.
struct JobEnd {
  int exit_status = 0;  // As a shell says it: 127 and 126 when it could not be started.
  int signal = 0;       // Not 0: what ended it.
  std::string error;    // Why it could not be started.
};

// Runs a job to its end as a child in our process group, so that it has the terminal that
// we have, and dies when we do, by whatever cause. Signals that were sent to us are passed
// on; those of the terminal reach it anyway and are not. Stops and goes on with it.
// `look` is called about every `pause`.
//
// From the first call on, signals of this process are held back: nothing else of it should
// wait for them. To be called by its only thread.
[[nodiscard]] JobEnd RunJob(const Job& job, Duration pause, const std::function<void()>& look);

// Ends this process as the job ended: by the same signal, if by one. Returns the exit
// status for the other case.
int EndAs(const JobEnd& end);

}  // namespace divvy::app
