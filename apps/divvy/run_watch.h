#pragma once

#include <functional>
#include <string>
#include <utility>

namespace divvy::app {

// The variable that marks every process of a job, and its value for this process's job,
// which no other process has had or will have.
inline constexpr const char* kRunVariable = "DIVVY_RUN_ID";
[[nodiscard]] std::string MakeRunId();
// The variable's value in the job: a run inside a run is the outer one's to end as well.
[[nodiscard]] std::string MarkOfRun(const std::string& run_id);
// Ends them all without asking, wherever they went; not this one.
void KillProcessesOf(const std::string& run_id);

// A process that outlives ours in the one case that we are killed without warning: it then
// ends every process of the job, grandchildren and what has left our session included, and
// calls `afterwards`. Without Dismiss, our end counts as being killed.
class RunWatch {
 public:
  // Forks: to be made while there is one thread, few open files and no lock. `afterwards`
  // runs in the other process.
  RunWatch(std::string run_id, std::function<void()> afterwards);
  ~RunWatch();
  RunWatch(const RunWatch&) = delete;
  RunWatch& operator=(const RunWatch&) = delete;

  // All went well: nothing is to be done.
  void Dismiss();

 private:
  int watcher_ = -1;
  int line_ = -1;  // Our end of a pipe; the other process hears when it closes.
};

}  // namespace divvy::app
