#include "engine/lane.h"

#include <utility>

namespace divvy::engine {

Lane::Lane(MakeEngine make, std::function<void(Result<Engine*>)> made)
    : thread_([this, make = std::move(make), made = std::move(made)] { Run(make, made); }) {}

Lane::~Lane() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Lane::Post(Job job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
}

void Lane::Run(const MakeEngine& make, const std::function<void(Result<Engine*>)>& made) {
  Result<std::unique_ptr<Engine>> engine = make();
  if (!engine) return made(Fail(engine.error()));
  made(engine->get());
  while (true) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
      if (stop_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job(**engine);
  }
}

}  // namespace divvy::engine
