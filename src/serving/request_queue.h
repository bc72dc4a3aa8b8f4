#pragma once

#include <cstdint>
#include <vector>

#include "base/time.h"
#include "serving/request.h"

namespace divvy::serving {

// Where a request stands in a RequestPool.
using SlotIndex = std::uint32_t;
inline constexpr SlotIndex kNoSlot = 0xffffffff;

// Room for requests that wait or run. Grows to what is needed at once and gives
// places again to whoever comes next, so that steady work allocates nothing.
// Not thread-safe.
class RequestPool {
 public:
  struct Slot {
    Request request;
    TimePoint key{};  // Order in a queue; ties by arrival in the queue.
    SlotIndex next = kNoSlot;
    SlotIndex previous = kNoSlot;
  };

  [[nodiscard]] SlotIndex Take(const Request& request, TimePoint key);
  void Give(SlotIndex slot);

  Slot& operator[](SlotIndex slot) { return slots_[slot]; }
  const Slot& operator[](SlotIndex slot) const { return slots_[slot]; }

 private:
  std::vector<Slot> slots_;
  SlotIndex free_ = kNoSlot;  // Chained by `next`.
};

// Slots of one pool in order of key. A list and not a heap, because batches are
// formed by walking it in order, and because most requests go to its end: with
// equal SLOs, a later arrival has a later deadline.
class RequestQueue {
 public:
  bool empty() const { return head_ == kNoSlot; }
  SlotIndex head() const { return head_; }
  int size() const { return size_; }
  std::int64_t items() const { return items_; }
  Duration work() const { return work_; }

  // Adds a slot behind those with the same key. `work` is what it is thought to cost.
  void Insert(RequestPool& pool, SlotIndex slot, Duration work);
  void Remove(RequestPool& pool, SlotIndex slot, Duration work);

 private:
  SlotIndex head_ = kNoSlot;
  SlotIndex tail_ = kNoSlot;
  int size_ = 0;
  std::int64_t items_ = 0;
  Duration work_{};
};

}  // namespace divvy::serving
