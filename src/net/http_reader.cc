#include "net/http_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace divvy::net {
namespace {

constexpr std::size_t kFirstCapacity = 16 << 10;
// Up to here, sharing a block with the body is cheaper than a block for the head.
constexpr std::size_t kMostSharedHead = 1 << 10;
// "1f;name=value" and a trailer line: nobody needs longer ones.
constexpr std::size_t kMostChunkLine = 4 << 10;

tl::unexpected<Error> Bad(std::string message) {
  return Fail(ErrorCode::kInvalidArgument, std::move(message));
}

tl::unexpected<Error> TooBig(std::string message) {
  return Fail(ErrorCode::kResourceExhausted, std::move(message));
}

// What may follow a chunk's size: nothing, or a ";" and what nobody uses. A CR in it is no end of
// a line for us but might be for who forwarded it to us.
bool IsExtension(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  return text.empty() || (text[0] == ';' && text.find('\r') == std::string_view::npos);
}

std::shared_ptr<char[]> MakeBlock(std::size_t bytes) {
  return std::make_shared_for_overwrite<char[]>(bytes);
}

}  // namespace

std::span<char> HttpReader::Room() {
  if (state_ == State::kLength && !has_bytes()) {
    return {block_.get() + filled_, block_bytes_ - filled_};
  }
  if (begin_ == end_) begin_ = end_ = 0;
  if (end_ == capacity_) {
    const std::size_t kept = end_ - begin_;
    if (begin_ > 0) {
      std::memmove(buffer_.get(), buffer_.get() + begin_, kept);
    } else {
      const std::size_t capacity = std::max(kFirstCapacity, 2 * capacity_);
      auto bigger = std::make_unique_for_overwrite<char[]>(capacity);
      if (kept > 0) std::memcpy(bigger.get(), buffer_.get(), kept);
      buffer_ = std::move(bigger);
      capacity_ = capacity;
    }
    begin_ = 0;
    end_ = kept;
  }
  return {buffer_.get() + end_, capacity_ - end_};
}

void HttpReader::Filled(std::size_t bytes) {
  if (state_ == State::kLength && !has_bytes()) {
    filled_ += bytes;
  } else {
    end_ += bytes;
  }
}

void HttpReader::Consume(std::size_t bytes) { begin_ += bytes; }

void HttpReader::Discard() {
  begin_ = end_ = capacity_ = 0;
  buffer_.reset();
  block_.reset();
  text_ = {};
}

std::size_t HttpReader::held() const {
  return end_ - begin_ + text_.size() + (block_ == nullptr ? 0 : filled_ + apart_bytes_);
}

Result<std::optional<std::string_view>> HttpReader::FindHead() {
  Check(state_ == State::kHead, "the body was taken");
  // Some clients send an empty line after a body; a server is to be patient with them.
  while (searched_ == 0 && waiting().starts_with("\r\n")) Consume(2);
  const std::string_view bytes = waiting();
  if (!bytes.empty() && (bytes[0] < 'A' || bytes[0] > 'z') && bytes[0] != '\r') {
    return Bad("these bytes are no HTTP (is it TLS?)");
  }
  for (;;) {
    const std::size_t end = bytes.find('\n', searched_);
    if (std::min(end, bytes.size()) >= most_head_bytes_) {
      return TooBig(fmt::format("the head of a message has at most {} bytes", most_head_bytes_));
    }
    if (end == std::string_view::npos) return std::nullopt;
    if (end == searched_ || bytes[end - 1] != '\r') {
      return Bad("a line of the head does not end with CR LF");
    }
    const bool last = end == searched_ + 1;
    searched_ = end + 1;
    if (!last) continue;
    head_bytes_ = searched_;
    return bytes.substr(0, head_bytes_);
  }
}

Result<Slice> HttpReader::BeginBody(const HttpFraming& framing) {
  const std::size_t length = framing.content_length.value_or(0);
  if (length > most_body_bytes_) {
    return TooBig(
        fmt::format("a body of {} bytes; at most {} are taken", length, most_body_bytes_));
  }
  std::shared_ptr<char[]> apart;
  apart_bytes_ = head_bytes_ > kMostSharedHead ? head_bytes_ : 0;
  if (apart_bytes_ > 0) {
    apart = MakeBlock(head_bytes_);
    std::memcpy(apart.get(), buffer_.get() + begin_, head_bytes_);
    Consume(head_bytes_);
  }
  body_offset_ = head_bytes_ - apart_bytes_;
  block_bytes_ = body_offset_ + length;
  block_ = MakeBlock(block_bytes_);
  filled_ = std::min(end_ - begin_, block_bytes_);
  std::memcpy(block_.get(), buffer_.get() + begin_, filled_);
  Consume(filled_);
  searched_ = 0;
  const std::shared_ptr<char[]>& where = apart_bytes_ > 0 ? apart : block_;
  Slice head(where, {where.get(), head_bytes_});
  state_ = State::kLength;
  if (framing.chunked) state_ = State::kChunkSize;
  if (framing.until_close) state_ = State::kUntilClose;
  trailer_bytes_ = 0;
  return head;
}

Result<std::optional<Slice>> HttpReader::TakeBody() {
  Check(state_ != State::kHead, "a body is under way");
  if (state_ == State::kLength) {
    if (filled_ < block_bytes_) return std::nullopt;
    state_ = State::kHead;
    const std::string_view body(block_.get() + body_offset_, block_bytes_ - body_offset_);
    return Slice(std::move(block_), body);
  }
  const Result<bool> whole = TakeChunks();
  if (!whole) return Fail(whole.error());
  if (!*whole) return std::nullopt;
  return FinishText();
}

Slice HttpReader::TakeRest() {
  Check(state_ == State::kUntilClose, "a body that ends with the connection");
  return FinishText();
}

Slice HttpReader::FinishText() {
  state_ = State::kHead;
  block_.reset();
  return Slice(std::exchange(text_, {}));
}

// True: the body has ended.
Result<bool> HttpReader::TakeChunks() {
  while (has_bytes()) {
    const bool bytes = state_ == State::kChunk || state_ == State::kUntilClose;
    const Result<bool> moved = bytes ? TakeChunkBytes() : TakeChunkLine();
    if (!moved) return Fail(moved.error());
    if (state_ == State::kHead) return true;
    if (!*moved) return false;
  }
  return false;
}

// One of the lines between chunks. False: it is not whole.
Result<bool> HttpReader::TakeChunkLine() {
  const std::string_view bytes = waiting();
  const std::size_t end = bytes.find('\n');
  if (std::min(end, bytes.size()) > kMostChunkLine) return Bad("a chunk's line is too long");
  if (end == std::string_view::npos) return false;
  if (end == 0 || bytes[end - 1] != '\r') return Bad("a chunk's line does not end with CR LF");
  const std::string_view line = bytes.substr(0, end - 1);
  if (state_ == State::kChunkEnd) {
    if (!line.empty()) return Bad("a chunk is longer than its size");
    state_ = State::kChunkSize;
  } else if (state_ == State::kTrailers) {
    trailer_bytes_ += end + 1;
    if (trailer_bytes_ > most_head_bytes_) return Bad("too many trailers");
    if (line.empty()) state_ = State::kHead;
  } else {
    std::size_t size = 0;
    const auto [stop, error] = std::from_chars(line.data(), line.data() + line.size(), size, 16);
    if (error != std::errc() || !IsExtension({stop, line.data() + line.size()})) {
      return Bad("a chunk without a size");
    }
    if (size > most_body_bytes_ - text_.size()) {
      return TooBig(fmt::format("chunks of over {} bytes in all", most_body_bytes_));
    }
    chunk_left_ = size;
    state_ = size == 0 ? State::kTrailers : State::kChunk;
  }
  Consume(end + 1);
  return true;
}

Result<bool> HttpReader::TakeChunkBytes() {
  std::string_view bytes = waiting();
  if (state_ == State::kUntilClose) {
    if (bytes.size() > most_body_bytes_ - text_.size()) {
      return TooBig(fmt::format("a body of over {} bytes", most_body_bytes_));
    }
  } else {
    bytes = bytes.substr(0, chunk_left_);
    chunk_left_ -= bytes.size();
    if (chunk_left_ == 0) state_ = State::kChunkEnd;
  }
  text_.append(bytes);
  Consume(bytes.size());
  return true;
}

}  // namespace divvy::net
