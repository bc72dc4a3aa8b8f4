#include "control_solver.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "base/check.h"

namespace divvy::app {

using planner::GoodputAnswer;
using planner::GoodputProblem;

SolverThread::SolverThread(Solve solve, std::optional<Duration> limit, StopSignal& stop)
    : solve_(std::move(solve)), limit_(limit), stop_(stop), done_(eventfd(0, EFD_CLOEXEC)) {
  Check(done_ >= 0, "a file descriptor is to be had");
}

SolverThread::~SolverThread() {
  if (thread_.joinable()) thread_.join();
  close(done_);
}

std::optional<GoodputAnswer> SolverThread::Ask(const GoodputProblem& problem) {
  std::optional<std::chrono::steady_clock::time_point> until;
  if (limit_) until = std::chrono::steady_clock::now() + *limit_;
  const auto* const time = until ? &*until : nullptr;
  if (thread_.joinable()) {
    // It was asked about a past that is over.
    if (!stop_.AwaitUntil(done_, time)) return std::nullopt;
    Collect();
  }
  answer_.reset();
  thread_ = std::thread([this, problem] {
    answer_ = solve_(problem);
    Check(eventfd_write(done_, 1) == 0, "an event can be written");
  });
  if (!stop_.AwaitUntil(done_, time)) return std::nullopt;
  Collect();
  return std::move(answer_);
}

void SolverThread::Collect() {
  eventfd_t count = 0;
  Check(eventfd_read(done_, &count) == 0, "an event can be read");
  thread_.join();
}

}  // namespace divvy::app
