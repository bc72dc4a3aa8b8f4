#pragma once

#include <signal.h>
#include <sys/types.h>

#include <array>
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
  int inherited_fd = -1;       // Stays open in the job; -1 for none.
  std::string directory = {};  // To run in; empty: where we stand.
  // Its standard input, output and errors; -1: ours.
  std::array<int, 3> streams = {-1, -1, -1};
  bool own_group = false;  // A process group of its own, not ours.
  // How much later than asked for the kernel may wake its threads, to save power; 0: as ours.
  Duration timer_slack{};
};

// A child that runs the job's program and dies when we do; `error` is errno when it could not be
// run, and the child, if there is one, is to be waited for all the same.
struct StartedJob {
  pid_t pid = -1;
  int error = 0;
};

// Starts the job with `mask` as its signal mask.
[[nodiscard]] StartedJob StartJob(const Job& job, const sigset_t& mask);

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
