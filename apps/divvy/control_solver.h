#pragma once

#include <functional>
#include <optional>
#include <thread>

#include "base/time.h"
#include "control_stop.h"
#include "planner/goodput.h"

namespace divvy::app {

// Solves in a thread of its own, so that an answer that takes too long does not hold up
// the loop. One that is late is finished and dropped: until then nothing else is begun.
// For one thread.
class SolverThread {
 public:
  using Solve = std::function<planner::GoodputAnswer(const planner::GoodputProblem&)>;

  // `limit` is what an answer may take; nothing: all the time it needs. A stop ends the
  // waiting. `stop` must outlive this, and what problems point to as well.
  SolverThread(Solve solve, std::optional<Duration> limit, StopSignal& stop);

  // Waits for the answer that is being worked at.
  ~SolverThread();
  SolverThread(const SolverThread&) = delete;
  SolverThread& operator=(const SolverThread&) = delete;

  // The answer, or nothing when it is late, the one before still is, or a stop was asked
  // for.
  [[nodiscard]] std::optional<planner::GoodputAnswer> Ask(const planner::GoodputProblem& problem);

  // True while a late answer is worked at.
  [[nodiscard]] bool busy() const { return thread_.joinable(); }

 private:
  void Collect();  // The answer, which is there.

  Solve solve_;
  std::optional<Duration> limit_;
  StopSignal& stop_;
  int done_;                                      // To be read once the thread has its answer.
  std::optional<planner::GoodputAnswer> answer_;  // The thread's while it runs.
  std::thread thread_;
};

}  // namespace divvy::app
