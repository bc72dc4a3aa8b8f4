#include "net/send_queue.h"

#include <array>

namespace divvy::net {
namespace {

constexpr std::size_t kSlicesAtOnce = 64;

}  // namespace

SendQueue::State SendQueue::Flush(Stream& stream) {
  while (!slices_.empty()) {
    std::array<iovec, kSlicesAtOnce> vectors;
    std::size_t count = 0;
    for (const Slice& slice : slices_) {
      if (count == vectors.size()) break;
      const std::size_t skip = count == 0 ? offset_ : 0;
      // An iovec serves reads as well, hence not const.
      vectors[count++] = {.iov_base = const_cast<char*>(slice.data() + skip),
                          .iov_len = slice.size() - skip};
    }
    const long put = stream.Write(vectors.data(), static_cast<int>(count));
    if (put < 0) return State::kBroken;
    if (put == 0) return State::kBlocked;
    Drop(static_cast<std::size_t>(put));
  }
  return State::kDone;
}

void SendQueue::Clear() {
  slices_.clear();
  offset_ = 0;
  bytes_ = 0;
}

void SendQueue::Drop(std::size_t count) {
  bytes_ -= count;
  while (count > 0) {
    const std::size_t left = slices_.front().size() - offset_;
    if (count < left) {
      offset_ += count;
      return;
    }
    count -= left;
    offset_ = 0;
    slices_.pop_front();
  }
}

}  // namespace divvy::net
