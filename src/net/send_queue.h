#pragma once

#include <cstddef>
#include <deque>

#include "net/slice.h"
#include "net/stream.h"

namespace divvy::net {

// What is still to be written to a stream, in order. Many slices go out in one system call.
class SendQueue {
 public:
  enum class State {
    kDone,     // Nothing is left.
    kBlocked,  // The stream takes no more now; its wants_read says what to wait for.
    kBroken,   // The peer has gone; what is left is of no use.
  };

  // Empty ones are dropped.
  void Push(Slice slice) {
    if (slice.empty()) return;
    bytes_ += slice.size();
    slices_.push_back(std::move(slice));
  }
  // Writes as much as the stream takes.
  State Flush(Stream& stream);
  void Clear();

  bool empty() const { return slices_.empty(); }
  std::size_t bytes() const { return bytes_; }

 private:
  void Drop(std::size_t count);

  std::deque<Slice> slices_;
  std::size_t offset_ = 0;  // Of the first one: what is already out.
  std::size_t bytes_ = 0;
};

}  // namespace divvy::net
