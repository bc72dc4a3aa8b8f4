#include "serving/request_queue.h"

namespace divvy::serving {

SlotIndex RequestPool::Take(const Request& request, TimePoint key) {
  if (free_ == kNoSlot) {
    slots_.push_back({request, key});
    return static_cast<SlotIndex>(slots_.size() - 1);
  }
  const SlotIndex slot = free_;
  free_ = slots_[slot].next;
  slots_[slot] = {request, key};
  return slot;
}

void RequestPool::Give(SlotIndex slot) {
  slots_[slot].next = free_;
  free_ = slot;
}

void RequestQueue::Insert(RequestPool& pool, SlotIndex slot, Duration work) {
  const TimePoint key = pool[slot].key;
  SlotIndex before = tail_;
  while (before != kNoSlot && pool[before].key > key) before = pool[before].previous;
  const SlotIndex after = before == kNoSlot ? head_ : pool[before].next;
  pool[slot].previous = before;
  pool[slot].next = after;
  (before == kNoSlot ? head_ : pool[before].next) = slot;
  (after == kNoSlot ? tail_ : pool[after].previous) = slot;
  ++size_;
  items_ += pool[slot].request.batch;
  work_ += work;
}

void RequestQueue::Remove(RequestPool& pool, SlotIndex slot, Duration work) {
  const SlotIndex before = pool[slot].previous;
  const SlotIndex after = pool[slot].next;
  (before == kNoSlot ? head_ : pool[before].next) = after;
  (after == kNoSlot ? tail_ : pool[after].previous) = before;
  --size_;
  items_ -= pool[slot].request.batch;
  work_ -= work;
}

}  // namespace divvy::serving
