#include "net/http_server_connection.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "net/http_answer.h"

namespace divvy::net {
namespace {

// Answers that wait for their client; beyond that we hear no more requests of it.
constexpr std::size_t kMostUnsent = 64 << 10;
// A client that never stops sending must not keep the others waiting.
constexpr int kReadsAtOnce = 16;
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

int StatusOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUnsupported:
      return 501;
    case ErrorCode::kResourceExhausted:
      return 431;
    default:
      return 400;
  }
}

// True when the other side has closed both directions, or the connection is broken. Over TCP a
// client that has closed both looks like one that still listens until it is sent something.
bool HasHungUp(int fd) {
  pollfd event{.fd = fd, .events = 0, .revents = 0};
  return poll(&event, 1, 0) == 1 && (event.revents & (POLLHUP | POLLERR)) != 0;
}

// A larger body would never fit.
std::size_t MostBodyBytes(const HttpLimits& limits) {
  if (limits.budget == nullptr) return limits.body_bytes;
  return std::min(limits.body_bytes, limits.budget->most());
}

}  // namespace

class HttpServer::Connection::Reply final : public HttpReply {
 public:
  Reply(Connection& connection, std::uint64_t number)
      : connection_(connection.weak_from_this()), id_(connection.id_), number_(number) {}
  Reply(const Reply&) = delete;
  Reply& operator=(const Reply&) = delete;

  ~Reply() override {
    if (!sent_) Finish(ErrorAnswer(500, "the request was dropped"));
  }

  void Send(HttpAnswer answer) override {
    Check(!sent_, "one answer to a request");
    Finish(std::move(answer));
  }

  void OnGone(std::function<void()> gone) override {
    if (sent_) return;
    if (const auto connection = connection_.lock()) {
      connection->OnGone(number_, std::move(gone));
    } else {
      gone();
    }
  }

  std::uint64_t connection() const override { return id_; }

 private:
  void Finish(HttpAnswer answer) {
    sent_ = true;
    if (const auto connection = connection_.lock()) {
      connection->Answer(number_, std::move(answer));
    }
  }

  std::weak_ptr<Connection> connection_;
  std::uint64_t id_;
  std::uint64_t number_;
  bool sent_ = false;
};

HttpServer::Connection::Connection(HttpServer& server, int fd)
    : server_(server),
      loop_(server.loop_),
      limits_(server.limits_),
      fd_(fd),
      id_(++server.connections_made_),
      stream_(server.streams_.Make(fd)),
      reader_(server.limits_.head_bytes, MostBodyBytes(server.limits_)),
      budget_(server.limits_.budget),
      share_(budget_.get()),
      idle_since_(server.loop_.now()) {}

void HttpServer::Connection::Start() {
  interest_ = EPOLLIN;
  loop_.Watch(fd_, interest_,
              [self = shared_from_this()](std::uint32_t events) { self->OnReady(events); });
  Arm();
}

void HttpServer::Connection::Drain() {
  if (last_seen_) return;
  const bool midway = head_begun_ || reader_.in_body() || reader_.has_bytes();
  if (midway) return;  // It is heard and answered; Dispatch makes it the last.
  if (slots_.empty() && limits_.drain_time > Duration::zero()) {
    drains_at_ = loop_.now() + limits_.drain_time;
    Arm();
    return;
  }
  last_seen_ = true;
  if (!slots_.empty()) slots_.back().closes = true;
  RunSoon();
}

void HttpServer::Connection::Abandon() {
  if (closed_) return;
  closed_ = dead_ = true;
  if (timer_) loop_.Cancel(*timer_);
  loop_.Forget(fd_);
  stream_.reset();
  close(fd_);
}

void HttpServer::Connection::Close() {
  if (closed_) return;
  Abandon();
  const std::deque<Slot> slots = std::move(slots_);
  server_.Closed(fd_);
  // Last, since they may do anything.
  for (const Slot& slot : slots) {
    if (slot.gone) slot.gone();
  }
}

void HttpServer::Connection::RunSoon() {
  if (run_soon_ || running_) return;
  run_soon_ = true;
  loop_.Post([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->Run();
  });
}

void HttpServer::Connection::OnReady(std::uint32_t events) {
  // Both directions are gone, and no read will tell us.
  if ((events & (EPOLLHUP | EPOLLERR)) != 0 && !IsReading()) dead_ = true;
  Run();
}

// Does all that can be done now, and says what to wait for.
void HttpServer::Connection::Run() {
  run_soon_ = false;
  if (closed_) return;
  running_ = true;
  const bool was_full = IsFull();
  if (!dead_) Flush();
  if (was_full && !IsFull())
    read_progress_.Restart(loop_.now());  // Until now we were the slow ones.
  for (int reads = 0; !dead_; ++reads) {
    HandleMessages();
    if (dead_ || !IsReading()) break;
    if (reads >= kReadsAtOnce && !stream_->has_buffered()) break;
    if (!(last_seen_ ? Discard() : ReadSome())) break;
  }
  if (!dead_) HandleMessages();
  FinishIfDone();
  running_ = false;
  if (dead_) {
    Close();
    return;
  }
  UpdateInterest();
  Arm();
}

// False: there is no more to read now.
bool HttpServer::Connection::ReadSome() {
  const std::span<char> room = reader_.Room();
  const long got = stream_->Read(room.data(), room.size());
  read_wants_write_ = got == 0 && !stream_->wants_read();
  if (got < 0) OnEnd();
  if (got <= 0) return false;
  const auto bytes = static_cast<std::size_t>(got);
  reader_.Filled(bytes);
  read_progress_.Moved(bytes, loop_.now());
  // A short read has emptied the socket, and one that ends a body most likely: asking again would
  // only be told so.
  return (bytes == room.size() && !reader_.is_whole()) || stream_->has_buffered();
}

bool HttpServer::Connection::Discard() {
  std::array<char, 16 << 10> nowhere;
  const long got = stream_->Read(nowhere.data(), nowhere.size());
  read_wants_write_ = got == 0 && !stream_->wants_read();
  if (got < 0) OnEnd();
  return got > 0;
}

// What is under way to the client and what it waits for, it gets: it may have closed one direction
// only.
void HttpServer::Connection::OnEnd() {
  ended_ = true;
  if (HasHungUp(fd_) || (slots_.empty() && queue_.empty())) {
    dead_ = true;
    return;
  }
  if (last_seen_) return;
  // Half a request, if there is one, will never be whole.
  last_seen_ = true;
  if (!slots_.empty()) slots_.back().closes = true;
  continue_due_ = false;
  request_ = {};
  reader_.Discard();
}

// Whoever sends bodies and never ends them takes memory that others need.
void HttpServer::Connection::CountHeld() {
  if (dead_ || last_seen_) {
    (void)share_.Set(0);
  } else if (!share_.Set(reader_.held())) {
    Refuse(limits_.busy_status,
           fmt::format("requests of {} bytes are held already", budget_->taken()));
    (void)share_.Set(0);
  }
}

// Hears what has come as far as it may, and sends what was answered on the spot.
void HttpServer::Connection::HandleMessages() {
  bool was_full = false;
  do {
    HearMessages();
    CountHeld();
    was_full = IsFull();
    Flush();
  } while (was_full && !IsFull() && !dead_);
}

void HttpServer::Connection::HearMessages() {
  while (!last_seen_ && !IsFull()) {
    if (!reader_.in_body() && !BeginMessage()) return;
    Result<std::optional<Slice>> body = reader_.TakeBody();
    if (!body) {
      const bool too_big = body.error().code == ErrorCode::kResourceExhausted;
      Refuse(too_big ? 413 : 400, body.error().message);
      return;
    }
    if (!*body) {
      if (framing_.expects_continue) {
        framing_.expects_continue = false;
        continue_due_ = true;
        SendReady();
      }
      return;
    }
    continue_due_ = false;
    request_.body = std::move(**body);
    Dispatch();
  }
}

// False: the head is not whole, or was refused.
bool HttpServer::Connection::BeginMessage() {
  const auto head = reader_.FindHead();
  if (!head) {
    Refuse(StatusOf(head.error().code), head.error().message);
    return false;
  }
  if (!*head) {
    if (reader_.has_bytes() && !head_begun_) {
      head_begun_ = true;
      head_since_ = loop_.now();
    }
    return false;
  }
  head_begun_ = false;
  // Parsed where it was read, since only then we know the size of the block it is to share.
  const Result<HttpFraming> framing = ParseRequestHead(Slice(nullptr, **head), request_);
  if (!framing) {
    Refuse(StatusOf(framing.error().code), framing.error().message);
    return false;
  }
  Result<Slice> copy = reader_.BeginBody(*framing);
  if (!copy) {
    Refuse(413, copy.error().message);
    return false;
  }
  framing_ = *framing;
  MoveHead(request_, std::move(*copy));
  read_progress_.Restart(loop_.now());
  return true;
}

void HttpServer::Connection::Dispatch() {
  (void)share_.Set(0);  // Whoever gets it counts it from here on.
  Slot& slot = slots_.emplace_back();
  slot.closes = last_seen_ = !request_.keep_alive || server_.draining_;
  slot.head_only = request_.method == "HEAD";
  slot.minor_version = framing_.minor_version;
  idle_since_ = loop_.now();
  const std::uint64_t number = first_ + slots_.size() - 1;
  server_.handler_(std::exchange(request_, {}), std::make_unique<Reply>(*this, number));
}

// Where a message ends can no longer be told: this is the last answer.
void HttpServer::Connection::Refuse(int status, std::string_view message) {
  Slot& slot = slots_.emplace_back();
  slot.closes = true;
  slot.answer = ErrorAnswer(status, message);
  last_seen_ = true;
  lingers_ = true;
  continue_due_ = false;
  request_ = {};
  reader_.Discard();
  SendReady();
}

void HttpServer::Connection::Answer(std::uint64_t number, HttpAnswer answer) {
  if (closed_) return;
  Slot& slot = slots_.at(number - first_);
  // Also when the client has gone and Close has yet to say so: who has answered is not told.
  slot.gone = nullptr;
  if (dead_) return;
  slot.answer = std::move(answer);
  if (number != first_) return;  // An earlier one is not answered yet.
  const bool was_full = IsFull();
  SendReady();
  if (running_) return;  // Run sends the answers to all that came together at once.
  if (!blocked_) Flush();
  const bool done = slots_.empty() && queue_.empty() && last_seen_;
  if (dead_ || done || (was_full && !IsFull())) {
    RunSoon();
  } else {
    UpdateInterest();
    Arm();
  }
}

void HttpServer::Connection::OnGone(std::uint64_t number, std::function<void()> gone) {
  if (dead_) {
    gone();
    return;
  }
  slots_.at(number - first_).gone = std::move(gone);
}

void HttpServer::Connection::SendReady() {
  while (!slots_.empty() && slots_.front().answer) {
    Push(slots_.front());
    slots_.pop_front();
    ++first_;
    idle_since_ = loop_.now();
  }
  if (continue_due_ && slots_.empty()) {
    continue_due_ = false;
    queue_.Push(Slice::Static(kContinue));
    read_progress_.Restart(loop_.now());
  }
}

void HttpServer::Connection::Push(const Slot& slot) {
  queue_.Push(Slice(AnswerHead(*slot.answer, slot.closes, slot.minor_version)));
  if (slot.head_only || !MayHaveBody(slot.answer->status)) return;
  for (const Slice& slice : slot.answer->body) queue_.Push(slice);
}

void HttpServer::Connection::Flush() {
  if (queue_.empty()) return;
  const std::size_t before = queue_.bytes();
  const SendQueue::State state = queue_.Flush(*stream_);
  if (state == SendQueue::State::kBroken) {
    dead_ = true;
    return;
  }
  write_progress_.Moved(before - queue_.bytes(), loop_.now());
  if (!blocked_) write_progress_.Restart(loop_.now());
  blocked_ = state == SendQueue::State::kBlocked;
  write_wants_read_ = blocked_ && stream_->wants_read();
  if (!blocked_) idle_since_ = loop_.now();
}

// All is answered and sent, and no more will be asked.
void HttpServer::Connection::FinishIfDone() {
  if (dead_ || !slots_.empty() || !queue_.empty()) return;
  if (ended_ || (last_seen_ && !lingers_)) {
    dead_ = true;
    return;
  }
  if (!last_seen_ || linger_until_) return;
  // Closing while bytes of the client are unread resets the connection, and with it our answer may
  // be lost. So we end our direction, and wait a little for the client to end its own.
  shutdown(fd_, SHUT_WR);
  linger_until_ = loop_.now() + std::min<Duration>(limits_.stall_time, std::chrono::seconds(2));
}

bool HttpServer::Connection::IsFull() const {
  return slots_.size() >= limits_.pipelined || queue_.bytes() > kMostUnsent;
}

void HttpServer::Connection::UpdateInterest() {
  std::uint32_t interest = 0;
  if (IsReading()) interest |= read_wants_write_ ? EPOLLOUT : EPOLLIN;
  if (blocked_) interest |= write_wants_read_ ? EPOLLIN : EPOLLOUT;
  if (interest == interest_) return;
  interest_ = interest;
  loop_.Change(fd_, interest);
}

std::optional<TimePoint> HttpServer::Connection::Deadline() const {
  if (linger_until_) return linger_until_;
  if (stream_->handshaking()) return std::min(idle_since_ + limits_.head_time, drains_at_);
  std::optional<TimePoint> due;
  const auto by = [&due](TimePoint when) { due = due ? std::min(*due, when) : when; };
  if (!queue_.empty()) by(write_progress_.since() + limits_.stall_time);
  if (last_seen_ || IsFull()) return due;
  if (reader_.in_body()) {
    if (!continue_due_) by(read_progress_.since() + limits_.stall_time);
  } else if (head_begun_) {
    by(head_since_ + limits_.head_time);
  } else if (slots_.empty() && queue_.empty()) {
    by(std::min(idle_since_ + limits_.idle_time, drains_at_));
  }
  return due;
}

// One timer a connection, which is left to go off early rather than moved with every request.
void HttpServer::Connection::Arm() {
  const std::optional<TimePoint> due = Deadline();
  if (!due || (timer_ && timer_->first <= *due)) return;
  if (timer_) loop_.Cancel(*timer_);
  timer_ = loop_.At(*due, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->OnTimer();
  });
}

void HttpServer::Connection::OnTimer() {
  timer_.reset();
  const std::optional<TimePoint> due = Deadline();
  if (due && *due <= loop_.now()) {
    Expire();
    Run();
  } else {
    Arm();
  }
}

void HttpServer::Connection::Expire() {
  const bool stalled =
      !queue_.empty() && write_progress_.since() + limits_.stall_time <= loop_.now();
  const bool midway = head_begun_ || reader_.in_body();
  if (linger_until_ || stalled || !midway) {
    dead_ = true;
    return;
  }
  head_begun_ = false;
  Refuse(408, "the request did not come in time");
}

}  // namespace divvy::net
