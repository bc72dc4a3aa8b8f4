#pragma once

#include <string_view>

namespace divvy::app {

// A bar on standard error that says how far a long command is; silent unless that
// is a terminal. What it has drawn is gone when it goes. Not thread-safe.
class RunProgress {
 public:
  RunProgress();
  ~RunProgress();
  RunProgress(const RunProgress&) = delete;
  RunProgress& operator=(const RunProgress&) = delete;

  // From now on `total` steps are to be taken, and none has been.
  void Begin(int total);

  // What is being done now, for a person.
  void Show(std::string_view what);

  // Some steps are done.
  void Advance(int steps);

 private:
  bool visible_;
  int total_ = 0;
  int done_ = 0;
};

}  // namespace divvy::app
