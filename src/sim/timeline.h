#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/time.h"
#include "sim/simulation.h"

namespace divvy::sim {

// Records how busy a replica is, in a fixed number of slots: when time runs past
// the last one, slots are joined in pairs and become twice as long. So memory
// does not grow with time. Not thread-safe.
class TimelineRecorder {
 public:
  static constexpr std::size_t kSlots = 256;

  explicit TimelineRecorder(int lanes) : lanes_(lanes), busy_(kSlots) {}

  // One lane is busy from `begin` for `length`.
  void Add(Duration begin, Duration length) {
    while (begin + length >= slot_ * kSlots) Widen();
    Duration end = begin + length;
    while (begin < end) {
      const auto index = static_cast<std::size_t>(begin / slot_);
      const Duration part = std::min(end, slot_ * static_cast<Duration::rep>(index + 1)) - begin;
      busy_[index] += Seconds(part);
      begin += part;
    }
  }

  // What was recorded up to `end`, in slots of the same length for whoever asks with
  // the same end.
  [[nodiscard]] Timeline Result(Duration end) {
    while (end >= slot_ * kSlots) Widen();
    Timeline timeline{slot_, {}};
    const auto used = std::min(kSlots, static_cast<std::size_t>(end / slot_) + 1);
    for (std::size_t i = 0; i < used; ++i) {
      timeline.busy.push_back(static_cast<float>(busy_[i] / (Seconds(slot_) * lanes_)));
    }
    return timeline;
  }

 private:
  void Widen() {
    for (std::size_t i = 0; i < kSlots / 2; ++i) busy_[i] = busy_[2 * i] + busy_[2 * i + 1];
    std::fill(busy_.begin() + kSlots / 2, busy_.end(), 0.0);
    slot_ *= 2;
  }

  int lanes_;
  Duration slot_ = std::chrono::microseconds(100);
  std::vector<double> busy_;  // Lane-seconds.
};

}  // namespace divvy::sim
