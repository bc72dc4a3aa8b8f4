#include "net/http2.h"

#include <fmt/format.h>
#include <nghttp2/nghttp2.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace divvy::net {
namespace {

// Windows: large enough that a tensor of some hundred KiB never waits for a round trip.
constexpr std::uint32_t kStreamWindow = 4 << 20;
constexpr std::int32_t kConnectionWindow = 16 << 20;
constexpr std::uint32_t kFrameSize = 256 << 10;
constexpr std::size_t kReadSize = 64 << 10;
constexpr int kReadsAtOnce = 8;  // Then it is the other connections' turn.
// Frames are made while the socket has less than this to take.
constexpr std::size_t kEnoughQueued = 512 << 10;
constexpr std::size_t kSmall = 1024;  // Up to here, a copy is cheaper than an entry in an iovec.
constexpr Duration kLinger = std::chrono::seconds(1);
// A peer that makes us answer and does not take the answers.
constexpr std::size_t kMostQueuedFrames = 16 << 10;

nghttp2_nv Pair(const std::pair<std::string, std::string>& header) {
  // nghttp2 copies both; it only lacks the const.
  return {.name = reinterpret_cast<std::uint8_t*>(const_cast<char*>(header.first.data())),
          .value = reinterpret_cast<std::uint8_t*>(const_cast<char*>(header.second.data())),
          .namelen = header.first.size(),
          .valuelen = header.second.size(),
          .flags = NGHTTP2_NV_FLAG_NONE};
}

std::vector<nghttp2_nv> Pairs(const Headers& headers) {
  std::vector<nghttp2_nv> pairs;
  pairs.reserve(headers.size());
  for (const auto& header : headers) pairs.push_back(Pair(header));
  return pairs;
}

std::string_view View(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace

struct Http2Connection::Callbacks {
  static Http2Connection& Of(void* user) { return *static_cast<Http2Connection*>(user); }
  // Within nghttp2 a session cannot go: once closed, this stops it.
  static int Go(const Http2Connection& http2) {
    return http2.owner_ == nullptr ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
  }

  static int BeginHeaders(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    Http2Connection& http2 = Of(user);
    if (http2.owner_ != nullptr && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
      http2.owner_->OnBegin(frame->hd.stream_id);
    }
    return Go(http2);
  }

  static int Header(nghttp2_session*, const nghttp2_frame* frame, const std::uint8_t* name,
                    std::size_t name_size, const std::uint8_t* value, std::size_t value_size,
                    std::uint8_t, void* user) {
    Http2Connection& http2 = Of(user);
    if (http2.owner_ != nullptr) {
      http2.owner_->OnHeader(frame->hd.stream_id, View(name, name_size), View(value, value_size));
    }
    return Go(http2);
  }

  static int FrameReceived(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    Http2Connection& http2 = Of(user);
    const bool stream_frame = frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA;
    if (http2.owner_ != nullptr && frame->hd.type == NGHTTP2_HEADERS) {
      http2.owner_->OnHeadersEnd(frame->hd.stream_id);
    }
    if (http2.owner_ != nullptr && stream_frame && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)) {
      http2.owner_->OnEnd(frame->hd.stream_id);
    }
    if (http2.owner_ != nullptr && frame->hd.type == NGHTTP2_GOAWAY) http2.owner_->OnGoAway();
    return Go(http2);
  }

  static int Data(nghttp2_session*, std::uint8_t, std::int32_t stream, const std::uint8_t* data,
                  std::size_t size, void* user) {
    Http2Connection& http2 = Of(user);
    if (http2.owner_ != nullptr) http2.owner_->OnData(stream, View(data, size));
    return Go(http2);
  }

  static int StreamClosed(nghttp2_session*, std::int32_t stream, std::uint32_t error, void* user) {
    Http2Connection& http2 = Of(user);
    http2.outgoing_.erase(stream);
    if (http2.owner_ != nullptr) http2.owner_->OnStreamClosed(stream, error);
    return Go(http2);
  }

  // A request that was still waiting when the peer said that it takes no more.
  static int NotSent(nghttp2_session*, const nghttp2_frame* frame, int, void* user) {
    Http2Connection& http2 = Of(user);
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    http2.outgoing_.erase(frame->hd.stream_id);
    if (http2.owner_ != nullptr) {
      http2.owner_->OnStreamClosed(frame->hd.stream_id, NGHTTP2_REFUSED_STREAM);
    }
    return Go(http2);
  }

  // A server that has said all asks a client that still sends to stop.
  static int FrameSent(nghttp2_session* session, const nghttp2_frame* frame, void* user) {
    const bool end = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0 &&
                     (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA);
    if (end && Of(user).settings_.server &&
        nghttp2_session_get_stream_remote_close(session, frame->hd.stream_id) == 0) {
      nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_NO_ERROR);
    }
    return 0;
  }

  static ssize_t ReadLength(nghttp2_session*, std::uint8_t, std::int32_t,
                            std::int32_t connection_window, std::int32_t stream_window,
                            std::uint32_t most_frame, void*) {
    return std::min({connection_window, stream_window, static_cast<std::int32_t>(most_frame),
                     static_cast<std::int32_t>(kFrameSize)});
  }

  static ssize_t ReadBody(nghttp2_session* session, std::int32_t stream, std::uint8_t*,
                          std::size_t size, std::uint32_t* flags, nghttp2_data_source*,
                          void* user) {
    Http2Connection& http2 = Of(user);
    const auto found = http2.outgoing_.find(stream);
    if (found == http2.outgoing_.end()) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    Outgoing& outgoing = found->second;
    if (outgoing.bytes == 0 && !outgoing.ended) {
      outgoing.deferred = true;
      return NGHTTP2_ERR_DEFERRED;
    }
    const std::size_t taken = std::min(size, outgoing.bytes);
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (outgoing.ended && taken == outgoing.bytes) {
      outgoing.handed_on = true;
      *flags |= NGHTTP2_DATA_FLAG_EOF;
      if (!outgoing.trailers.empty()) {
        *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
        const std::vector<nghttp2_nv> pairs = Pairs(outgoing.trailers);
        nghttp2_submit_trailer(session, stream, pairs.data(), pairs.size());
      }
    }
    return static_cast<ssize_t>(taken);
  }

  static int SendBody(nghttp2_session*, nghttp2_frame* frame, const std::uint8_t* frame_head,
                      std::size_t size, nghttp2_data_source*, void* user) {
    Http2Connection& http2 = Of(user);
    const auto found = http2.outgoing_.find(frame->hd.stream_id);
    if (found == http2.outgoing_.end()) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    http2.AppendCopy(View(frame_head, 9));
    http2.AppendBody(found->second, size);
    return http2.queued() < kEnoughQueued ? 0 : NGHTTP2_ERR_PAUSE;
  }

  static nghttp2_session* MakeSession(Http2Connection& http2);
};

nghttp2_session* Http2Connection::Callbacks::MakeSession(Http2Connection& http2) {
  nghttp2_session_callbacks* callbacks = nullptr;
  nghttp2_option* option = nullptr;
  nghttp2_session* session = nullptr;
  Check(nghttp2_session_callbacks_new(&callbacks) == 0 && nghttp2_option_new(&option) == 0,
        "memory for a connection");
  nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, BeginHeaders);
  nghttp2_session_callbacks_set_on_header_callback(callbacks, Header);
  nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, FrameReceived);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, Data);
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, StreamClosed);
  nghttp2_session_callbacks_set_on_frame_not_send_callback(callbacks, NotSent);
  nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, FrameSent);
  nghttp2_session_callbacks_set_data_source_read_length_callback(callbacks, ReadLength);
  nghttp2_session_callbacks_set_send_data_callback(callbacks, SendBody);
  // Closed streams would be kept for priorities, which gRPC does not use.
  nghttp2_option_set_no_closed_streams(option, 1);
  nghttp2_option_set_stream_reset_rate_limit(
      option, http2.settings_.resets, std::max<std::uint64_t>(http2.settings_.resets / 10, 1));
  const int made = http2.settings_.server
                       ? nghttp2_session_server_new2(&session, callbacks, &http2, option)
                       : nghttp2_session_client_new2(&session, callbacks, &http2, option);
  nghttp2_option_del(option);
  nghttp2_session_callbacks_del(callbacks);
  Check(made == 0, "memory for a connection");
  return session;
}

Http2Connection::Http2Connection(Loop& loop, int fd, std::unique_ptr<Stream> stream,
                                 Http2Settings settings, Http2Owner& owner)
    : loop_(loop),
      fd_(fd),
      stream_(std::move(stream)),
      settings_(settings),
      owner_(&owner),
      progress_(loop.now()),
      heard_(loop.now()) {
  session_ = Callbacks::MakeSession(*this);
  std::vector<nghttp2_settings_entry> entries{
      {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, settings_.streams},
      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kStreamWindow},
      {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, kFrameSize},
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, settings_.header_bytes}};
  if (!settings_.server) entries.push_back({NGHTTP2_SETTINGS_ENABLE_PUSH, 0});
  nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, entries.data(), entries.size());
  nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, kConnectionWindow);
}

Http2Connection::~Http2Connection() {
  Close();
  nghttp2_session_del(session_);
}

void Http2Connection::Start() {
  watched_ = EPOLLIN | EPOLLOUT;
  loop_.Watch(fd_, watched_, [weak = weak_from_this()](std::uint32_t events) {
    if (const auto self = weak.lock()) self->Ready(events);
  });
}

void Http2Connection::Close() {
  owner_ = nullptr;
  if (fd_ < 0) return;
  loop_.Cancel(linger_);
  loop_.Forget(fd_);
  close(fd_);
  fd_ = -1;
}

void Http2Connection::CloseGently() {
  if (closing_ || owner_ == nullptr) return;
  closing_ = true;
  linger_ = loop_.At(loop_.now() + kLinger, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->Break("closed");
  });
  PostFlush();
}

void Http2Connection::GoAway() {
  nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE,
                        nghttp2_session_get_last_proc_stream_id(session_), NGHTTP2_NO_ERROR,
                        nullptr, 0);
  PostFlush();
}

bool Http2Connection::takes_requests() const {
  return owner_ != nullptr && nghttp2_session_check_request_allowed(session_) != 0;
}

std::int32_t Http2Connection::Open(const Headers& headers) {
  const std::vector<nghttp2_nv> pairs = Pairs(headers);
  nghttp2_data_provider provider{.source = {}, .read_callback = Callbacks::ReadBody};
  const std::int32_t stream =
      nghttp2_submit_request(session_, nullptr, pairs.data(), pairs.size(), &provider, nullptr);
  Check(stream > 0, "a connection that takes requests");
  outgoing_[stream].progress.Restart(loop_.now());
  PostFlush();
  return stream;
}

void Http2Connection::Answer(std::int32_t stream, const Headers& headers) {
  const std::vector<nghttp2_nv> pairs = Pairs(headers);
  nghttp2_submit_response(session_, stream, pairs.data(), pairs.size(), nullptr);
  PostFlush();
}

void Http2Connection::Respond(std::int32_t stream, const Headers& headers) {
  outgoing_[stream].progress.Restart(loop_.now());
  const std::vector<nghttp2_nv> pairs = Pairs(headers);
  nghttp2_data_provider provider{.source = {}, .read_callback = Callbacks::ReadBody};
  nghttp2_submit_response(session_, stream, pairs.data(), pairs.size(), &provider);
  PostFlush();
}

void Http2Connection::Write(std::int32_t stream, std::vector<Slice> body) {
  const auto found = outgoing_.find(stream);
  if (found == outgoing_.end()) return;
  Outgoing& outgoing = found->second;
  if (outgoing.bytes == 0) outgoing.progress.Restart(loop_.now());
  for (Slice& slice : body) {
    if (slice.empty()) continue;
    outgoing.bytes += slice.size();
    outgoing.pieces.push_back(std::move(slice));
  }
  Resume(stream, outgoing);
}

void Http2Connection::End(std::int32_t stream, Headers trailers) {
  const auto found = outgoing_.find(stream);
  if (found == outgoing_.end()) return;
  // A peer whose window is closed has not taken the end either.
  if (found->second.bytes == 0) found->second.progress.Restart(loop_.now());
  found->second.ended = true;
  found->second.trailers = std::move(trailers);
  Resume(stream, found->second);
}

void Http2Connection::Resume(std::int32_t stream, Outgoing& outgoing) {
  if (std::exchange(outgoing.deferred, false)) nghttp2_session_resume_data(session_, stream);
  PostFlush();
}

void Http2Connection::Reset(std::int32_t stream, std::uint32_t error) {
  outgoing_.erase(stream);
  nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, stream, error);
  PostFlush();
}

std::size_t Http2Connection::unsent(std::int32_t stream) const {
  const auto found = outgoing_.find(stream);
  return found == outgoing_.end() ? 0 : found->second.bytes;
}

std::vector<std::int32_t> Http2Connection::StalledSince(TimePoint then) const {
  std::vector<std::int32_t> stalled;
  for (const auto& [stream, outgoing] : outgoing_) {
    const bool waits = outgoing.bytes > 0 || (outgoing.ended && !outgoing.handed_on);
    if (waits && outgoing.progress.since() < then) stalled.push_back(stream);
  }
  return stalled;
}

bool Http2Connection::SocketStalledSince(TimePoint then) const {
  return queued() > 0 && progress_.since() < then;
}

void Http2Connection::Ready(std::uint32_t events) {
  if ((events & EPOLLERR) != 0) return Break(SocketError("the connection is broken"));
  const bool readable = (events & (EPOLLIN | EPOLLHUP)) != 0;
  const bool writable = (events & EPOLLOUT) != 0;
  // What its owner writes meanwhile goes out below: no need to post that.
  const bool posted = std::exchange(flush_posted_, true);
  if ((readable || (writable && read_wants_write_)) && !ReadSome()) return;
  flush_posted_ = posted;
  if (write_blocked_ && !writable && !(readable && write_wants_read_)) return WatchFor();
  Flush();
}

bool Http2Connection::ReadSome() {
  std::array<char, kReadSize> buffer;
  read_wants_write_ = false;
  // What TLS has decrypted already no poll will tell of, so it is read whatever it takes.
  for (int i = 0; i < kReadsAtOnce || stream_->has_buffered(); ++i) {
    const long got = stream_->Read(buffer.data(), buffer.size());
    if (got < 0) {
      Break("the peer has closed the connection");
      return false;
    }
    if (got == 0) {
      read_wants_write_ = !stream_->wants_read();
      return true;
    }
    heard_ = loop_.now();
    heard_anything_ = true;
    if (shut_down_) continue;
    const auto size = static_cast<std::size_t>(got);
    const ssize_t taken = nghttp2_session_mem_recv(
        session_, reinterpret_cast<const std::uint8_t*>(buffer.data()), size);
    if (owner_ == nullptr) return false;
    if (taken < 0) {
      Break(fmt::format("the peer does not speak HTTP/2: {}",
                        nghttp2_strerror(static_cast<int>(taken))));
      return false;
    }
    if (nghttp2_session_get_outbound_queue_size(session_) > kMostQueuedFrames) {
      Break("the peer takes no answers");
      return false;
    }
    if (size < buffer.size() && !stream_->has_buffered()) return true;
  }
  return true;
}

void Http2Connection::PostFlush() {
  if (owner_ == nullptr || write_blocked_ || std::exchange(flush_posted_, true)) return;
  loop_.Post([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->flush_posted_ = false;
    if (self->owner_ != nullptr) self->Flush();
  });
}

bool Http2Connection::Fill() {
  while (queued() < kEnoughQueued) {
    const std::uint8_t* data = nullptr;
    const ssize_t size = nghttp2_session_mem_send(session_, &data);
    if (owner_ == nullptr) return false;
    if (size < 0) {
      Break(nghttp2_strerror(static_cast<int>(size)));
      return false;
    }
    if (size == 0) return true;
    AppendCopy(View(data, static_cast<std::size_t>(size)));
  }
  return true;
}

void Http2Connection::Flush() {
  write_blocked_ = false;
  while (true) {
    if (!Fill()) return;
    queue_.Push(Slice(std::exchange(copied_, {})));
    if (queue_.empty()) break;
    const std::size_t before = queue_.bytes();
    const SendQueue::State state = queue_.Flush(*stream_);
    if (state == SendQueue::State::kBroken) return Break("the peer has closed the connection");
    progress_.Moved(before - queue_.bytes(), loop_.now());
    if (state == SendQueue::State::kBlocked) {
      write_blocked_ = true;
      write_wants_read_ = stream_->wants_read();
      break;
    }
  }
  if (queue_.empty()) {
    if (nghttp2_session_want_read(session_) == 0 && nghttp2_session_want_write(session_) == 0) {
      if (!settings_.server) return Break("the server has ended the connection");
      CloseGently();
    }
    // Closing a socket with bytes unread would take back what the peer has not read yet: the peer
    // is told that this was all, and closes.
    if (closing_ && !std::exchange(shut_down_, true)) shutdown(fd_, SHUT_WR);
  }
  WatchFor();
}

void Http2Connection::WatchFor() {
  std::uint32_t events = EPOLLIN;
  if ((write_blocked_ && !write_wants_read_) || read_wants_write_) events |= EPOLLOUT;
  if (events == watched_) return;
  watched_ = events;
  loop_.Change(fd_, events);
}

void Http2Connection::AppendCopy(std::string_view bytes) {
  if (queued() == 0) progress_.Restart(loop_.now());
  copied_.append(bytes);
}

void Http2Connection::AppendBody(Outgoing& outgoing, std::size_t bytes) {
  outgoing.bytes -= bytes;
  outgoing.progress.Moved(bytes, loop_.now());
  while (bytes > 0) {
    Slice& front = outgoing.pieces.front();
    const std::size_t taken = std::min(bytes, front.size());
    if (taken <= kSmall) {
      AppendCopy(front.view().substr(0, taken));
    } else {
      queue_.Push(Slice(std::exchange(copied_, {})));
      queue_.Push(front.Sub(0, taken));
    }
    bytes -= taken;
    if (taken == front.size()) {
      outgoing.pieces.pop_front();
    } else {
      front = front.Sub(taken, front.size() - taken);
    }
  }
}

void Http2Connection::Break(const std::string& why) {
  Http2Owner* const owner = owner_;
  Close();
  if (owner != nullptr) owner->OnBroken(why);
}

std::string Http2Connection::SocketError(const std::string& otherwise) const {
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error == 0) return otherwise;
  return std::string(strerror(error));
}

}  // namespace divvy::net
