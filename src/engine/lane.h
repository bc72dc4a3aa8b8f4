#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "base/result.h"
#include "engine/engine.h"

namespace divvy::engine {

// The thread in which an engine is made, runs and ends. Safe in any thread.
class Lane {
 public:
  using MakeEngine = std::function<Result<std::unique_ptr<Engine>>()>;
  using Job = std::function<void(Engine&)>;

  // Begins to make the engine. `made` hears, in the lane's thread, which it is or why there is
  // none. It lives as long as the lane; who uses it elsewhere posts no jobs.
  Lane(MakeEngine make, std::function<void(Result<Engine*>)> made);
  // Waits for the job that runs. Those that wait are dropped.
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Runs `job` after those before it. Dropped when there is no engine.
  void Post(Job job);

 private:
  void Run(const MakeEngine& make, const std::function<void(Result<Engine*>)>& made);

  std::mutex mutex_;  // Of what stands between here and the thread.
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace divvy::engine
