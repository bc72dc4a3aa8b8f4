#include "net/grpc_server.h"

#include <fmt/format.h>
#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "net/grpc_wire.h"
#include "net/http2.h"
#include "net/progress.h"

namespace divvy::net {
namespace {

Headers AnswerHeaders(const char* http_status) {
  return {{":status", http_status},
          {"content-type", "application/grpc"},
          {"grpc-accept-encoding", "identity,deflate,gzip"}};
}

// Others could fill memory: a repeated header is one byte on the wire.
bool IsKept(std::string_view name) {
  return name == "authorization" || name == "content-type" || name == "grpc-encoding" ||
         name == "grpc-timeout" || name == "traceparent" || name == "tracestate";
}

// Of a status: so much is part of call_bytes.
constexpr std::size_t kShortText = 256;

// A larger message would never fit.
std::size_t MostMessageBytes(const GrpcLimits& limits) {
  if (limits.budget == nullptr) return limits.message_bytes;
  return std::min(limits.message_bytes, limits.budget->most());
}

}  // namespace

// A call, as its connection and whoever answers it know it.
class GrpcServer::Call final : public GrpcCall, public std::enable_shared_from_this<Call> {
 public:
  Call(GrpcServer& server, Http2Connection& http2, std::int32_t stream)
      : server_(&server),
        http2_(&http2),
        stream_(stream),
        reader_(MostMessageBytes(server.limits_)),
        budget_(server.limits_.budget),
        share_(budget_.get()),
        kept_bytes_(server.limits_.call_bytes),
        fits_(share_.Set(kept_bytes_)) {}

  const std::string& method() const override { return method_; }
  const Headers& metadata() const override { return metadata_; }
  std::optional<TimePoint> deadline() const override { return deadline_; }
  bool cancelled() const override { return cancelled_; }
  bool finished() const override { return finished_; }
  std::size_t messages() const override { return messages_; }
  void Write(std::vector<Slice> message) override;
  void Finish(GrpcStatus status) override;
  std::size_t unsent() const override { return server_ == nullptr ? 0 : http2_->unsent(stream_); }

  void OnHeader(std::string_view name, std::string_view value);
  void OnHeadersEnd();
  void OnData(std::string_view bytes);
  void OnEnd();
  // Our end of it: the status goes out if it can, and the handler hears that it is over.
  void Fail(const GrpcStatus& status, const char* http_status = "200");
  // The stream has gone.
  void OnGone();
  // The same, and nobody hears of it.
  void Detach();
  // Half a message, or none at all, and nothing more of it since.
  bool IsStuck(TimePoint now) const;

 private:
  bool open() const { return server_ != nullptr && accepted_ && !finished_ && !cancelled_; }
  bool ReadHeaders();
  bool ReadEncodingAndTimeout();
  void SendStatus(GrpcStatus status, const char* http_status);
  void Cancel();
  void Keep(std::string_view name, std::string_view value, std::string& to);

  GrpcServer* server_;      // Null once the stream has gone.
  Http2Connection* http2_;  // Valid as long as server_ is.
  std::int32_t stream_;
  std::string http_method_;
  std::string method_;
  Headers metadata_;
  std::size_t metadata_bytes_ = 0;
  MessageReader reader_;
  std::shared_ptr<ByteBudget> budget_;  // Of the server, which this may outlive.
  BudgetShare share_;
  std::size_t kept_bytes_;  // Of the call itself and its metadata.
  bool fits_;               // They are in the budget.
  Progress heard_;
  std::optional<TimePoint> deadline_;
  Loop::TimerId timer_{};
  std::size_t messages_ = 0;
  bool headers_ended_ = false;
  bool accepted_ = false;
  bool known_ = false;  // The handler has heard of it.
  bool responded_ = false;
  bool finished_ = false;   // By who answers it.
  bool cancelled_ = false;  // By the client, or by us.
};

void GrpcServer::Call::Write(std::vector<Slice> message) {
  Check(!finished_, "no message after the status");
  if (server_ == nullptr || cancelled_) return;
  std::size_t size = 0;
  for (const Slice& slice : message) size += slice.size();
  Check(size <= UINT32_MAX, "a message below 4 GiB");
  message.insert(message.begin(), MessagePrefix(size));
  if (!std::exchange(responded_, true)) http2_->Respond(stream_, AnswerHeaders("200"));
  http2_->Write(stream_, std::move(message));
}

void GrpcServer::Call::Finish(GrpcStatus status) {
  Check(!std::exchange(finished_, true), "one status a call");
  if (server_ == nullptr || cancelled_) return;
  server_->loop_.Cancel(timer_);
  SendStatus(std::move(status), "200");
}

void GrpcServer::Call::SendStatus(GrpcStatus status, const char* http_status) {
  // It waits for as long as the client does not take what comes before it.
  const std::size_t text = status.message.size();
  if (text > kShortText && !share_.Set(kept_bytes_ + reader_.held() + text)) {
    status.message.resize(kShortText);
  }
  Headers headers = responded_ ? Headers() : AnswerHeaders(http_status);
  AppendStatus(status, headers);
  if (responded_) {
    http2_->End(stream_, std::move(headers));
  } else {
    http2_->Answer(stream_, headers);
  }
}

void GrpcServer::Call::Fail(const GrpcStatus& status, const char* http_status) {
  if (server_ == nullptr || cancelled_) return;
  // No status may follow half a message, nor another status.
  if (unsent() > 0 || finished_) {
    http2_->Reset(stream_, NGHTTP2_CANCEL);
  } else {
    SendStatus(status, http_status);
  }
  Cancel();
}

void GrpcServer::Call::Cancel() {
  server_->loop_.Cancel(timer_);
  if (finished_ || std::exchange(cancelled_, true) || !known_) return;
  server_->handler_.OnCancelled(shared_from_this());
}

void GrpcServer::Call::OnGone() {
  if (server_ == nullptr) return;
  Cancel();
  Detach();
}

void GrpcServer::Call::Detach() {
  if (server_ == nullptr) return;
  server_->loop_.Cancel(timer_);
  (void)share_.Set(0);
  server_ = nullptr;
}

void GrpcServer::Call::OnHeader(std::string_view name, std::string_view value) {
  if (headers_ended_) return;                          // Trailers of a client mean nothing.
  metadata_bytes_ += name.size() + value.size() + 32;  // As HTTP/2 counts a header.
  if (metadata_bytes_ > server_->limits_.metadata_bytes) return;
  if (name == ":path") {
    Keep(name, value, method_);
  } else if (name == ":method") {
    Keep(name, value, http_method_);
  } else if (fits_ && IsKept(name)) {
    Keep(name, value, metadata_.emplace_back(name, "").second);
  }
}

void GrpcServer::Call::Keep(std::string_view name, std::string_view value, std::string& to) {
  kept_bytes_ += name.size() + value.size() + sizeof(Headers::value_type);
  fits_ = fits_ && share_.Set(kept_bytes_);
  if (fits_) to = value;
}

bool GrpcServer::Call::IsStuck(TimePoint now) const {
  if (!open() || (messages_ > 0 && !reader_.in_message())) return false;
  const GrpcLimits& limits = server_->limits_;
  const bool waits = !reader_.in_message() && server_->handler_.MayWait(method_);
  return heard_.since() < now - (waits ? limits.idle_time : limits.stall_time);
}

void GrpcServer::Call::OnHeadersEnd() {
  if (std::exchange(headers_ended_, true)) return;
  heard_.Restart(server_->loop_.now());
  accepted_ = ReadHeaders();
  if (!accepted_ || !deadline_) return;
  // Cancelled before the call goes.
  timer_ = server_->loop_.At(*deadline_, [this] {
    if (open()) Fail({GrpcCode::kDeadlineExceeded, "the deadline of the call has passed"});
  });
}

bool GrpcServer::Call::ReadHeaders() {
  const std::size_t most = server_->limits_.metadata_bytes;
  std::string_view content_type;
  for (const auto& [name, value] : metadata_) {
    if (name == "content-type") content_type = value;
  }
  if (!fits_) {
    Fail({GrpcCode::kResourceExhausted,
          fmt::format("requests of {} bytes are held already", budget_->taken())});
  } else if (metadata_bytes_ > most) {
    Fail({GrpcCode::kResourceExhausted,
          fmt::format("metadata of {} bytes is larger than {}", metadata_bytes_, most)});
  } else if (http_method_ != "POST") {
    Fail({GrpcCode::kInvalidArgument, fmt::format("gRPC calls are POST, not {}", http_method_)},
         "405");
  } else if (!IsGrpcContentType(content_type)) {
    Fail({GrpcCode::kInvalidArgument,
          fmt::format("content-type is '{}', not application/grpc", content_type)},
         "415");
  } else {
    return ReadEncodingAndTimeout();
  }
  return false;
}

bool GrpcServer::Call::ReadEncodingAndTimeout() {
  for (const auto& [name, value] : metadata_) {
    if (name == "grpc-encoding") {
      const std::optional<GrpcEncoding> encoding = ParseGrpcEncoding(value);
      if (!encoding) {
        Fail({GrpcCode::kUnimplemented,
              fmt::format("grpc-encoding is '{}', not identity, deflate or gzip", value)});
        return false;
      }
      reader_.set_encoding(*encoding);
    } else if (name == "grpc-timeout") {
      const std::optional<Duration> timeout = ParseGrpcTimeout(value);
      if (!timeout) {
        Fail(
            {GrpcCode::kInvalidArgument,
             fmt::format("grpc-timeout is '{}', not up to eight digits and one of HMSmun", value)});
        return false;
      }
      deadline_ = server_->loop_.now() + *timeout;
    }
  }
  return true;
}

void GrpcServer::Call::OnData(std::string_view bytes) {
  const TimePoint now = server_->loop_.now();
  if (reader_.in_message()) {
    heard_.Moved(bytes.size(), now);
  } else {
    heard_.Restart(now);
  }
  while (open()) {
    MessageReader::Taken taken = reader_.Take(bytes);
    const bool fits = share_.Set(kept_bytes_ + reader_.held());
    if (taken.status.code != GrpcCode::kOk) return Fail(taken.status);
    if (!fits) {
      return Fail({GrpcCode::kResourceExhausted,
                   fmt::format("requests of {} bytes are held already", budget_->taken())});
    }
    if (!taken.message) return;
    heard_.Restart(now);
    known_ = true;
    ++messages_;
    server_->handler_.OnMessage(shared_from_this(), *std::move(taken.message));
  }
}

void GrpcServer::Call::OnEnd() {
  if (!open()) return;
  if (reader_.in_message()) {
    return Fail({GrpcCode::kInternal, "the client has ended the call within a message"});
  }
  known_ = true;
  server_->handler_.OnHalfClose(shared_from_this());
}

// A client's connection with its calls.
class GrpcServer::Connection final : public Http2Owner,
                                     public std::enable_shared_from_this<Connection> {
 public:
  Connection(GrpcServer& server, int fd);
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void Start();
  void Drain();

  void OnBegin(std::int32_t stream) override;
  void OnHeader(std::int32_t stream, std::string_view name, std::string_view value) override;
  void OnHeadersEnd(std::int32_t stream) override;
  void OnData(std::int32_t stream, std::string_view bytes) override;
  void OnEnd(std::int32_t stream) override;
  void OnStreamClosed(std::int32_t stream, std::uint32_t error) override;
  void OnGoAway() override {}  // It has calls under way, or closes.
  void OnBroken(const std::string& why) override;

 private:
  // Kept, since what is called may end the stream and with it the place in calls_.
  std::shared_ptr<Call> Find(std::int32_t stream) const;
  void Tick();
  void TickLater();

  GrpcServer& server_;
  int fd_;
  std::shared_ptr<Http2Connection> http2_;
  std::unordered_map<std::int32_t, std::shared_ptr<Call>> calls_;
  TimePoint idle_since_;
  Loop::TimerId tick_{};
  bool draining_ = false;
};

GrpcServer::Connection::Connection(GrpcServer& server, int fd)
    : server_(server), fd_(fd), idle_since_(server.loop_.now()) {
  const Http2Settings settings{
      .server = true,
      .streams = static_cast<std::uint32_t>(server.limits_.streams),
      .header_bytes = static_cast<std::uint32_t>(server.limits_.metadata_bytes),
      .resets = server.limits_.resets};
  http2_ = std::make_shared<Http2Connection>(server.loop_, fd, server.streams_.Make(fd), settings,
                                             *this);
}

GrpcServer::Connection::~Connection() {
  http2_->Close();
  server_.loop_.Cancel(tick_);
  for (const auto& [stream, call] : calls_) call->Detach();
}

void GrpcServer::Connection::Start() {
  http2_->Start();
  TickLater();
}

void GrpcServer::Connection::Drain() {
  if (std::exchange(draining_, true)) return;
  http2_->GoAway();
  if (calls_.empty()) http2_->CloseGently();
}

std::shared_ptr<GrpcServer::Call> GrpcServer::Connection::Find(std::int32_t stream) const {
  const auto found = calls_.find(stream);
  return found == calls_.end() ? nullptr : found->second;
}

void GrpcServer::Connection::OnBegin(std::int32_t stream) {
  calls_.emplace(stream, std::make_shared<Call>(server_, *http2_, stream));
}

void GrpcServer::Connection::OnHeader(std::int32_t stream, std::string_view name,
                                      std::string_view value) {
  if (const auto call = Find(stream)) call->OnHeader(name, value);
}

void GrpcServer::Connection::OnHeadersEnd(std::int32_t stream) {
  if (const auto call = Find(stream)) call->OnHeadersEnd();
}

void GrpcServer::Connection::OnData(std::int32_t stream, std::string_view bytes) {
  if (const auto call = Find(stream)) call->OnData(bytes);
}

void GrpcServer::Connection::OnEnd(std::int32_t stream) {
  if (const auto call = Find(stream)) call->OnEnd();
}

void GrpcServer::Connection::OnStreamClosed(std::int32_t stream, std::uint32_t) {
  const auto call = Find(stream);
  if (call == nullptr) return;
  calls_.erase(stream);
  idle_since_ = server_.loop_.now();
  call->OnGone();
  if (draining_ && calls_.empty()) http2_->CloseGently();
}

void GrpcServer::Connection::OnBroken(const std::string&) {
  const auto self = shared_from_this();
  for (const auto& [stream, call] : std::exchange(calls_, {})) call->OnGone();
  server_.Closed(fd_);
}

void GrpcServer::Connection::TickLater() {
  const GrpcLimits& limits = server_.limits_;
  const Duration often = std::min({limits.stall_time, limits.idle_time, limits.handshake_time}) / 4;
  tick_ = server_.loop_.At(
      server_.loop_.now() + std::max<Duration>(often, std::chrono::milliseconds(1)),
      [this] { Tick(); });
}

void GrpcServer::Connection::Tick() {
  const auto self = shared_from_this();
  const TimePoint now = server_.loop_.now();
  const TimePoint then = now - server_.limits_.stall_time;
  const bool mute = !http2_->heard_anything() && http2_->heard() < then;
  const bool unshaken = http2_->handshaking() && idle_since_ < now - server_.limits_.handshake_time;
  if (mute || unshaken || http2_->SocketStalledSince(then)) {
    http2_->Close();
    return OnBroken("stalled");
  }
  std::vector<std::shared_ptr<Call>> stuck;
  for (const std::int32_t stream : http2_->StalledSince(then)) {
    if (auto call = Find(stream)) stuck.push_back(std::move(call));
  }
  for (const auto& [stream, call] : calls_) {
    if (call->IsStuck(now)) stuck.push_back(call);
  }
  for (const auto& call : stuck) {
    call->Fail({GrpcCode::kDeadlineExceeded, "the call has not moved for too long"});
  }
  const TimePoint active = std::max(http2_->heard(), idle_since_);
  if (calls_.empty() && active < now - server_.limits_.idle_time) Drain();
  TickLater();
}

GrpcServer::GrpcServer(Loop& loop, GrpcLimits limits, const StreamMaker& streams,
                       GrpcHandler& handler)
    : loop_(loop),
      limits_(std::move(limits)),
      streams_(streams),
      handler_(handler),
      acceptor_(
          loop, [this] { return connections_.size() < limits_.connections; },
          [this](int fd) {
            const auto connection = std::make_shared<Connection>(*this, fd);
            connections_.emplace(fd, connection);
            connection->Start();
          }) {}

GrpcServer::~GrpcServer() {
  acceptor_.Close();
  connections_.clear();
}

void GrpcServer::Serve(int listening) { acceptor_.Serve(listening); }

void GrpcServer::Closed(int fd) {
  connections_.erase(fd);
  if (drained_ == nullptr) return acceptor_.Resume();
  if (connections_.empty()) loop_.Post(std::exchange(drained_, nullptr));
}

void GrpcServer::Drain(std::function<void()> done) {
  acceptor_.Close();
  if (connections_.empty()) return loop_.Post(std::move(done));
  drained_ = std::move(done);
  std::vector<std::shared_ptr<Connection>> all;
  for (const auto& [fd, connection] : connections_) all.push_back(connection);
  for (const auto& connection : all) connection->Drain();
}

}  // namespace divvy::net
