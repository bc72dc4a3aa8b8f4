#include "net/http_client.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <deque>
#include <optional>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "net/http_reader.h"
#include "net/send_queue.h"

namespace divvy::net {
namespace {

constexpr std::size_t kMostHeadBytes = 256 << 10;
constexpr int kReadsAtOnce = 16;

}  // namespace

// What is behind a client; outlives it while one of its callbacks runs.
class HttpClient::Connection : public std::enable_shared_from_this<HttpClient::Connection> {
 public:
  Connection(Loop& loop, Address address, std::string host, const StreamMaker& streams,
             std::size_t most_body_bytes)
      : loop_(loop),
        address_(std::move(address)),
        host_(std::move(host)),
        streams_(streams),
        most_body_bytes_(most_body_bytes) {}
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void Send(const HttpQuestion& question, Callback callback, Leaves leaves);
  void Break(const std::string& why);
  // The client goes: nothing is called any more.
  void Abandon();

  std::size_t pending() const { return pending_.size() + failed_.size(); }
  bool connected() const { return state_ == State::kOpen; }

 private:
  enum class State { kClosed, kConnecting, kOpen };
  struct Pending {
    Callback callback;
    bool head_only;
  };

  [[nodiscard]] Result<void> Connect();
  void Disconnect();
  void OnReady(std::uint32_t events);
  bool FinishConnecting();
  void Push(const HttpQuestion& question);
  void Flush();
  void FlushLater();
  void ReadSome();
  void HandleAnswers();
  bool BeginAnswer();
  void Deliver(Slice body);
  void OnEnd();
  void FailAll(ErrorCode code, const std::string& why);
  void CallFailed();
  void UpdateInterest();

  Loop& loop_;
  const Address address_;
  const std::string host_;
  const StreamMaker& streams_;
  const std::size_t most_body_bytes_;

  State state_ = State::kClosed;
  int fd_ = -1;
  std::unique_ptr<Stream> stream_;
  std::optional<HttpReader> reader_;
  SendQueue queue_;
  HttpResponse response_;
  std::deque<Pending> pending_;
  std::vector<std::pair<Callback, Error>> failed_;  // To be told so.
  bool abandoned_ = false;
  bool handling_ = false;
  bool flushes_later_ = false;
  bool blocked_ = false;
  bool write_wants_read_ = false;
  bool read_wants_write_ = false;
  std::uint32_t interest_ = 0;
};

void HttpClient::Connection::Send(const HttpQuestion& question, Callback callback, Leaves leaves) {
  pending_.push_back({std::move(callback), question.method == "HEAD"});
  if (state_ == State::kClosed) {
    if (const Result<void> connecting = Connect(); !connecting) {
      FailAll(connecting.error().code, connecting.error().message);
      return;
    }
  }
  Push(question);
  // While answers are handled, the questions that follow from them go out together.
  if (state_ != State::kOpen || handling_ || blocked_) return;
  if (leaves == Leaves::kWithTheRound) return FlushLater();
  Flush();
  UpdateInterest();
}

void HttpClient::Connection::FlushLater() {
  if (flushes_later_) return;
  flushes_later_ = true;
  loop_.Post([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    self->flushes_later_ = false;
    if (self->state_ != State::kOpen || self->blocked_) return;
    self->Flush();
    self->UpdateInterest();
  });
}

void HttpClient::Connection::Push(const HttpQuestion& question) {
  std::size_t length = 0;
  for (const Slice& slice : question.body) length += slice.size();
  std::string head;
  head.reserve(256);
  // Not fmt, which profiles showed: this is done for every request.
  const auto append = [&head](const auto&... texts) { (head.append(texts), ...); };
  append(question.method, " ", question.target, " HTTP/1.1\r\nHost: ", host_, "\r\n");
  for (const auto& [name, value] : question.headers) append(name, ": ", value, "\r\n");
  if (length > 0 || (question.method != "GET" && question.method != "HEAD")) {
    append("Content-Length: ", std::to_string(length), "\r\n");
  }
  head += "\r\n";
  queue_.Push(Slice(std::move(head)));
  for (const Slice& slice : question.body) queue_.Push(slice);
}

Result<void> HttpClient::Connection::Connect() {
  const Result<int> fd = StartConnecting(address_);
  if (!fd) return Fail(fd.error());
  fd_ = *fd;
  state_ = State::kConnecting;
  stream_ = streams_.Make(fd_);
  reader_.emplace(kMostHeadBytes, most_body_bytes_);
  blocked_ = write_wants_read_ = read_wants_write_ = false;
  interest_ = EPOLLOUT;
  loop_.Watch(fd_, interest_,
              [self = shared_from_this()](std::uint32_t events) { self->OnReady(events); });
  return {};
}

void HttpClient::Connection::Disconnect() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  loop_.Forget(fd_);
  stream_.reset();
  reader_.reset();
  queue_.Clear();
  close(std::exchange(fd_, -1));
}

void HttpClient::Connection::Abandon() {
  abandoned_ = true;
  Disconnect();
  pending_.clear();
  failed_.clear();
}

void HttpClient::Connection::Break(const std::string& why) {
  FailAll(ErrorCode::kUnavailable, why);
}

// Ends the connection. Who waits is told in a call of its own: this may be within Send.
void HttpClient::Connection::FailAll(ErrorCode code, const std::string& why) {
  Disconnect();
  if (pending_.empty()) return;
  for (Pending& pending : pending_) {
    failed_.emplace_back(std::move(pending.callback), Error{code, why});
  }
  pending_.clear();
  loop_.Post([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->CallFailed();
  });
}

void HttpClient::Connection::CallFailed() {
  std::vector<std::pair<Callback, Error>> failed = std::move(failed_);
  failed_.clear();
  for (auto& [callback, error] : failed) {
    if (abandoned_) return;
    callback(Fail(std::move(error)));
  }
}

void HttpClient::Connection::OnReady(std::uint32_t) {
  if (state_ == State::kConnecting && !FinishConnecting()) return;
  handling_ = true;
  Flush();
  if (state_ == State::kOpen) ReadSome();
  if (state_ == State::kOpen && !blocked_) Flush();  // What callbacks have asked.
  handling_ = false;
  if (state_ == State::kOpen) UpdateInterest();
}

bool HttpClient::Connection::FinishConnecting() {
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) {
    FailAll(ConnectErrorCode(error),
            fmt::format("cannot connect to {}: {}", address_.Describe(),
                        std::error_code(error, std::generic_category()).message()));
    return false;
  }
  state_ = State::kOpen;
  return true;
}

void HttpClient::Connection::Flush() {
  if (queue_.empty()) return;
  const SendQueue::State state = queue_.Flush(*stream_);
  blocked_ = state == SendQueue::State::kBlocked;
  write_wants_read_ = blocked_ && stream_->wants_read();
  // A server that refuses a request closes without reading the rest; its answer is still to be
  // read, and the end of the stream after it tells us all.
  if (state == SendQueue::State::kBroken) queue_.Clear();
}

void HttpClient::Connection::ReadSome() {
  for (int reads = 0; state_ == State::kOpen; ++reads) {
    if (reads >= kReadsAtOnce && !stream_->has_buffered()) return;
    const std::span<char> room = reader_->Room();
    const long got = stream_->Read(room.data(), room.size());
    read_wants_write_ = got == 0 && !stream_->wants_read();
    if (got < 0) OnEnd();
    if (got <= 0) return;
    const auto bytes = static_cast<std::size_t>(got);
    reader_->Filled(bytes);
    // As in the server: a short read, or one that ends a body, has emptied the socket.
    const bool more = bytes == room.size() && !reader_->is_whole();
    HandleAnswers();
    if (state_ != State::kOpen || (!more && !stream_->has_buffered())) return;
  }
}

void HttpClient::Connection::OnEnd() {
  if (reader_->until_close()) {
    Slice rest = reader_->TakeRest();
    response_.keep_alive = false;
    Deliver(std::move(rest));
    return;
  }
  FailAll(ErrorCode::kUnavailable,
          fmt::format("{} closed the connection before its answer", address_.Describe()));
}

void HttpClient::Connection::HandleAnswers() {
  while (state_ == State::kOpen) {
    if (!reader_->in_body() && !BeginAnswer()) return;
    Result<std::optional<Slice>> body = reader_->TakeBody();
    if (!body) {
      FailAll(ErrorCode::kInvalidArgument,
              fmt::format("the answer of {}: {}", address_.Describe(), body.error().message));
      return;
    }
    if (!*body) return;
    constexpr int kFirstFinal = 200;
    if (response_.status < kFirstFinal) continue;  // Such as a 100: the answer is yet to come.
    Deliver(std::move(**body));
  }
}

// False: the head is not whole, or was none.
bool HttpClient::Connection::BeginAnswer() {
  const auto refuse = [this](const std::string& why) {
    FailAll(ErrorCode::kInvalidArgument,
            fmt::format("the answer of {}: {}", address_.Describe(), why));
    return false;
  };
  const auto head = reader_->FindHead();
  if (!head) return refuse(head.error().message);
  if (!*head) return false;
  if (pending_.empty()) return refuse("nobody has asked");
  response_ = {};
  Result<HttpFraming> framing = ParseResponseHead(Slice(nullptr, **head), response_);
  if (!framing) return refuse(framing.error().message);
  if (pending_.front().head_only) {
    framing->chunked = framing->until_close = false;
    framing->content_length = 0;
  }
  Result<Slice> copy = reader_->BeginBody(*framing);
  if (!copy) return refuse(copy.error().message);
  MoveHead(response_, std::move(*copy));
  return true;
}

void HttpClient::Connection::Deliver(Slice body) {
  response_.body = std::move(body);
  const Callback callback = std::move(pending_.front().callback);
  pending_.pop_front();
  if (!response_.keep_alive) {
    FailAll(ErrorCode::kUnavailable,
            fmt::format("{} closed the connection before its answer", address_.Describe()));
  }
  callback(std::exchange(response_, {}));
}

void HttpClient::Connection::UpdateInterest() {
  std::uint32_t interest = read_wants_write_ ? EPOLLOUT : EPOLLIN;
  if (blocked_) interest |= write_wants_read_ ? EPOLLIN : EPOLLOUT;
  if (interest == interest_) return;
  interest_ = interest;
  loop_.Change(fd_, interest);
}

HttpClient::HttpClient(Loop& loop, Address address, std::string host, const StreamMaker& streams,
                       std::size_t most_body_bytes)
    : connection_(std::make_shared<Connection>(loop, std::move(address), std::move(host), streams,
                                               most_body_bytes)) {}

HttpClient::~HttpClient() { connection_->Abandon(); }

void HttpClient::Send(const HttpQuestion& question, Callback callback, Leaves leaves) {
  connection_->Send(question, std::move(callback), leaves);
}

void HttpClient::Close() {
  connection_->Break("the connection was closed from this side before the answer");
}

std::size_t HttpClient::pending() const { return connection_->pending(); }

bool HttpClient::connected() const { return connection_->connected(); }

}  // namespace divvy::net
