#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "net/http.h"
#include "net/slice.h"

namespace divvy::net {

// Cuts the bytes of one connection into heads and bodies; who parses the heads, and reads the
// socket, is its owner. Bytes are put into Room() and told with Filled(); then
//   FindHead -> (parse) -> BeginBody -> TakeBody -> FindHead -> ...
// as far as the bytes go.
//
// Head and body of a message share one block, of exactly their size when a length was given: then
// the part of the body that has not come with the head is read straight to its place. A head of
// over 1 KiB has a block of its own, so that who keeps a body keeps little else.
class HttpReader {
 public:
  HttpReader(std::size_t most_head_bytes, std::size_t most_body_bytes)
      : most_head_bytes_(most_head_bytes), most_body_bytes_(most_body_bytes) {}

  // Where the next bytes belong. Never empty; valid until the next call of another function.
  std::span<char> Room();
  void Filled(std::size_t bytes);

  // The next head, when it is whole; its bytes stay where they are until BeginBody. Errors:
  //   kInvalidArgument    what has come can be no head (a 400);
  //   kResourceExhausted  it is too big (a 431).
  [[nodiscard]] Result<std::optional<std::string_view>> FindHead();

  // The head of FindHead has been understood: gives its copy. kResourceExhausted: the body will be
  // too big (a 413).
  [[nodiscard]] Result<Slice> BeginBody(const HttpFraming& framing);

  // The body, when it is whole, chunks joined. kInvalidArgument: what has come are no chunks;
  // kResourceExhausted: they are too many bytes.
  [[nodiscard]] Result<std::optional<Slice>> TakeBody();
  // The same for a body that ends with the connection, which has ended.
  [[nodiscard]] Slice TakeRest();

  // Bytes that have come and belong to no message that was taken.
  bool has_bytes() const { return begin_ != end_; }
  bool in_body() const { return state_ != State::kHead; }
  bool until_close() const { return state_ == State::kUntilClose; }
  // The body under way is there, to its last byte and no further.
  bool is_whole() const { return state_ == State::kLength && filled_ == block_bytes_; }
  // Bytes that have come and were not taken, with the head and the part of a body that are there.
  std::size_t held() const;
  // Forgets all of them. What comes after cannot be read: for the end of a connection.
  void Discard();

 private:
  enum class State { kHead, kLength, kUntilClose, kChunkSize, kChunk, kChunkEnd, kTrailers };

  std::string_view waiting() const { return {buffer_.get() + begin_, end_ - begin_}; }
  void Consume(std::size_t bytes);
  [[nodiscard]] Result<bool> TakeChunks();
  [[nodiscard]] Result<bool> TakeChunkLine();
  [[nodiscard]] Result<bool> TakeChunkBytes();
  Slice FinishText();

  const std::size_t most_head_bytes_;
  const std::size_t most_body_bytes_;
  State state_ = State::kHead;

  // [begin_, end_) of it has come and is not taken.
  std::unique_ptr<char[]> buffer_;
  std::size_t capacity_ = 0;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::size_t searched_ = 0;    // Of the waiting bytes: whole lines of a head that is not whole.
  std::size_t head_bytes_ = 0;  // Of the head that was found.

  // The body under way. Shared with the slices that are handed out.
  std::shared_ptr<char[]> block_;
  std::size_t filled_ = 0;
  std::size_t block_bytes_ = 0;
  std::size_t body_offset_ = 0;
  std::size_t apart_bytes_ = 0;  // Of its head, where that is not in the block.
  std::string text_;             // In place of a block while the length is not known.
  std::size_t chunk_left_ = 0;
  std::size_t trailer_bytes_ = 0;
};

}  // namespace divvy::net
