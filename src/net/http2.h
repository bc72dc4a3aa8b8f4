#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/time.h"
#include "net/http.h"
#include "net/loop.h"
#include "net/progress.h"
#include "net/send_queue.h"
#include "net/slice.h"
#include "net/stream.h"

struct nghttp2_session;

namespace divvy::net {

// Hears what the peer of an Http2Connection does. May call all of its functions from within.
class Http2Owner {
 public:
  virtual ~Http2Owner() = default;
  // Servers only: a request begins.
  virtual void OnBegin(std::int32_t stream) = 0;
  // Views for the length of the call. Trailers come in the same way, after data.
  virtual void OnHeader(std::int32_t stream, std::string_view name, std::string_view value) = 0;
  virtual void OnHeadersEnd(std::int32_t stream) = 0;
  virtual void OnData(std::int32_t stream, std::string_view bytes) = 0;
  // The peer will send no more on it.
  virtual void OnEnd(std::int32_t stream) = 0;
  // Both sides are done, or one has reset it; `error` is HTTP/2's code.
  virtual void OnStreamClosed(std::int32_t stream, std::uint32_t error) = 0;
  // The peer takes no new streams.
  virtual void OnGoAway() = 0;
  // The last that is heard: the connection is over, and OnStreamClosed is not called for the
  // streams it had.
  virtual void OnBroken(const std::string& why) = 0;
};

struct Http2Settings {
  bool server = true;
  std::uint32_t streams = 1024;           // That the peer may have open.
  std::uint32_t header_bytes = 64 << 10;  // Of one header block; told to the peer, not enforced.
  std::uint64_t resets = 10'000;          // At once, and a tenth of them each second.
};

// One end of an HTTP/2 connection: nghttp2 between a socket and streams of slices. What is written
// goes out at the end of the loop's round, many frames in one system call, and large slices are not
// copied on the way.
//
// Kept by its owner through a shared_ptr, because it must outlive a round in which its owner lets
// go of it. For the loop's thread.
class Http2Connection : public std::enable_shared_from_this<Http2Connection> {
 public:
  // `loop` outlives it, and `owner` outlives Close. `fd`, connected or on the way there, is now its
  // own.
  Http2Connection(Loop& loop, int fd, std::unique_ptr<Stream> stream, Http2Settings settings,
                  Http2Owner& owner);
  ~Http2Connection();
  Http2Connection(const Http2Connection&) = delete;
  Http2Connection& operator=(const Http2Connection&) = delete;

  // To be called once, after construction.
  void Start();
  // At once, with all its streams. The owner hears nothing any more.
  void Close();
  // Once all that waits is out and the peer has closed too, or a second has passed; then OnBroken.
  void CloseGently();
  // No new streams of the peer.
  void GoAway();

  // Clients: whether Open may be called: not after the peer's GOAWAY, nor when all numbers of
  // streams are used up.
  bool takes_requests() const;
  // A request's stream: to be written to, and ended (without trailers).
  [[nodiscard]] std::int32_t Open(const Headers& headers);
  // Servers: headers alone, and the end; or headers, then Write any number of times, then End.
  void Answer(std::int32_t stream, const Headers& headers);
  void Respond(std::int32_t stream, const Headers& headers);
  void Write(std::int32_t stream, std::vector<Slice> body);
  void End(std::int32_t stream, Headers trailers);
  // `error` is HTTP/2's code. OnStreamClosed follows, unless it never opened.
  void Reset(std::int32_t stream, std::uint32_t error);

  // Bytes of Write that have not become frames yet.
  std::size_t unsent(std::int32_t stream) const;
  // Streams of which bytes or the end wait and of which too little has gone since `then`.
  std::vector<std::int32_t> StalledSince(TimePoint then) const;
  // The same, for the socket.
  bool SocketStalledSince(TimePoint then) const;
  // When bytes last came; the beginning when none have.
  TimePoint heard() const { return heard_; }
  bool heard_anything() const { return heard_anything_; }
  bool handshaking() const { return stream_->handshaking(); }

 private:
  struct Callbacks;  // What nghttp2 calls.
  friend struct Callbacks;

  // What a stream has to send.
  struct Outgoing {
    std::deque<Slice> pieces;
    std::size_t bytes = 0;
    bool ended = false;
    bool deferred = false;   // nghttp2 has asked, and waits for resume.
    bool handed_on = false;  // nghttp2 has all of it, the end too.
    Headers trailers;
    Progress progress;
  };

  void Ready(std::uint32_t events);
  bool ReadSome();
  void Flush();
  bool Fill();
  void PostFlush();
  std::size_t queued() const { return copied_.size() + queue_.bytes(); }
  void AppendCopy(std::string_view bytes);
  // Moves `bytes` bytes of a stream to what the socket is to take.
  void AppendBody(Outgoing& outgoing, std::size_t bytes);
  void WatchFor();
  void Resume(std::int32_t stream, Outgoing& outgoing);
  void Break(const std::string& why);
  std::string SocketError(const std::string& otherwise) const;

  Loop& loop_;
  int fd_;
  std::unique_ptr<Stream> stream_;
  Http2Settings settings_;
  Http2Owner* owner_;  // Null once closed.
  nghttp2_session* session_ = nullptr;
  std::unordered_map<std::int32_t, Outgoing> outgoing_;
  SendQueue queue_;
  std::string copied_;  // Follows queue_: small pieces that are joined.
  std::uint32_t watched_ = 0;
  bool write_blocked_ = false;
  bool write_wants_read_ = false;
  bool read_wants_write_ = false;
  bool flush_posted_ = false;
  bool closing_ = false;    // Gently: when all is out.
  bool shut_down_ = false;  // Of closing: we have sent our last byte.
  Loop::TimerId linger_{};
  Progress progress_;  // Of the socket with what it is to take.
  TimePoint heard_;
  bool heard_anything_ = false;
};

}  // namespace divvy::net
