#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/time.h"

namespace divvy::sim {

// What happens next: a binary heap by time, and among equal times by order of
// scheduling, so that one seed gives one history. Allocates only while it grows
// to its largest size. Not thread-safe.
template <typename What>
class EventQueue {
 public:
  struct Event {
    TimePoint at;
    std::uint64_t order;
    What what;
  };

  void Reserve(std::size_t events) { heap_.reserve(events); }
  bool empty() const { return heap_.empty(); }
  const Event& next() const { return heap_.front(); }

  void Push(TimePoint at, What what) {
    heap_.push_back({at, order_++, what});
    std::size_t hole = heap_.size() - 1;
    const Event event = heap_.back();
    while (hole > 0 && Before(event, heap_[(hole - 1) / 2])) {
      heap_[hole] = heap_[(hole - 1) / 2];
      hole = (hole - 1) / 2;
    }
    heap_[hole] = event;
  }

  // REQUIRES: !empty().
  void Pop() {
    const Event last = heap_.back();
    heap_.pop_back();
    if (heap_.empty()) return;
    // Let the hole sink along the earlier children, then lift `last` into place:
    // it comes from the bottom and mostly belongs there.
    std::size_t hole = 0;
    const std::size_t size = heap_.size();
    for (std::size_t child = 1; child < size; child = 2 * hole + 1) {
      if (child + 1 < size && Before(heap_[child + 1], heap_[child])) ++child;
      heap_[hole] = heap_[child];
      hole = child;
    }
    while (hole > 0 && Before(last, heap_[(hole - 1) / 2])) {
      heap_[hole] = heap_[(hole - 1) / 2];
      hole = (hole - 1) / 2;
    }
    heap_[hole] = last;
  }

 private:
  static bool Before(const Event& a, const Event& b) {
    return a.at != b.at ? a.at < b.at : a.order < b.order;
  }

  std::vector<Event> heap_;
  std::uint64_t order_ = 0;
};

}  // namespace divvy::sim
