#pragma once

#include <cstddef>

#include "base/time.h"

namespace divvy::net {

// When a peer last moved enough of what it takes or sends: whoever moves one byte at a time would
// else hold a connection, and what waits for it, for ever.
class Progress {
 public:
  // What must move in every stall_time.
  static constexpr std::size_t kLeast = 4 << 10;

  explicit Progress(TimePoint now = {}) : since_(now) {}

  // Something begins to wait, or nothing does.
  void Restart(TimePoint now) {
    since_ = now;
    moved_ = 0;
  }
  void Moved(std::size_t bytes, TimePoint now) {
    moved_ += bytes;
    if (moved_ >= kLeast) Restart(now);
  }
  TimePoint since() const { return since_; }

 private:
  TimePoint since_;
  std::size_t moved_ = 0;
};

}  // namespace divvy::net
