#pragma once

#include <chrono>

namespace divvy::app {

// The wish that this program end. While one exists SIGINT, SIGTERM and SIGHUP do not
// end it but are heard here, by one thread; threads started meanwhile do not get them.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // True from the first signal on.
  [[nodiscard]] bool Heard();

  // Sleeps until then, or the first signal; true for the latter.
  bool SleepUntil(std::chrono::steady_clock::time_point time);

  // Sleeps until there is something to read from `fd`, at the latest until `time` (null:
  // for ever) or the first signal; true when there is.
  bool AwaitUntil(int fd, const std::chrono::steady_clock::time_point* time);

 private:
  int signals_;
  bool heard_ = false;
};

}  // namespace divvy::app
