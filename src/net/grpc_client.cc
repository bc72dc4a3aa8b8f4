#include "net/grpc_client.h"

#include <fmt/format.h>
#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "net/grpc_wire.h"
#include "net/http2.h"

namespace divvy::net {
namespace {

constexpr std::size_t kMostMessage = std::size_t{1} << 30;

// What an answer without grpc-status means: it came from something in between.
GrpcCode CodeOfHttp(std::string_view status) {
  if (status == "401") return GrpcCode::kUnauthenticated;
  if (status == "403") return GrpcCode::kPermissionDenied;
  if (status == "404") return GrpcCode::kUnimplemented;
  if (status == "429" || status == "502" || status == "503" || status == "504") {
    return GrpcCode::kUnavailable;
  }
  return GrpcCode::kUnknown;
}

GrpcCode CodeOfReset(std::uint32_t error) {
  switch (error) {
    case NGHTTP2_REFUSED_STREAM:
      return GrpcCode::kUnavailable;
    case NGHTTP2_CANCEL:
      return GrpcCode::kCancelled;
    case NGHTTP2_ENHANCE_YOUR_CALM:
      return GrpcCode::kResourceExhausted;
    default:
      return GrpcCode::kInternal;
  }
}

// What has come of an answer.
struct Answer {
  std::string http_status;
  std::string grpc_status;
  std::string grpc_message;
  MessageReader reader{kMostMessage};
  std::optional<Slice> message;
};

GrpcStatus StatusOf(const Answer& answer, std::uint32_t error) {
  int code = -1;
  const char* const end = answer.grpc_status.data() + answer.grpc_status.size();
  const bool number = !answer.grpc_status.empty() &&
                      std::from_chars(answer.grpc_status.data(), end, code).ptr == end;
  if (!answer.grpc_status.empty()) {
    // Codes that we do not know count as this one.
    if (!number || code < 0 || code > static_cast<int>(GrpcCode::kUnauthenticated)) code = 2;
    GrpcStatus status{static_cast<GrpcCode>(code), DecodeGrpcMessage(answer.grpc_message)};
    if (status.code == GrpcCode::kOk && !answer.message) {
      return {GrpcCode::kInternal, "the server has answered without a message"};
    }
    return status;
  }
  if (!answer.http_status.empty() && answer.http_status != "200") {
    return {CodeOfHttp(answer.http_status),
            fmt::format("the server has answered HTTP {} without a status", answer.http_status)};
  }
  return {CodeOfReset(error), fmt::format("the server has ended the call without a status: {}",
                                          nghttp2_http2_strerror(error))};
}

}  // namespace

// A call under way.
struct GrpcClient::Pending {
  // Until the server answers.
  Headers headers;
  std::vector<Slice> body;
  std::optional<TimePoint> deadline;
  bool repeated = false;

  Answer answer{};
  Loop::TimerId timer{};
  Callback callback;
};

// One HTTP/2 connection and the calls that are under way on it.
class GrpcClient::Connection final : public Http2Owner,
                                     public std::enable_shared_from_this<Connection> {
 public:
  explicit Connection(GrpcClient& client) : client_(&client), loop_(client.loop_) {}
  ~Connection() override { Abandon(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void Start();
  bool takes_calls() const;
  void Begin(Pending call);
  // No callback is called any more.
  void Abandon();
  // Ends with its last call.
  void Retire();

  void OnBegin(std::int32_t) override {}
  void OnHeader(std::int32_t stream, std::string_view name, std::string_view value) override;
  void OnHeadersEnd(std::int32_t) override {}
  void OnData(std::int32_t stream, std::string_view bytes) override;
  void OnEnd(std::int32_t stream) override;
  void OnStreamClosed(std::int32_t stream, std::uint32_t error) override;
  void OnGoAway() override { Retire(); }
  void OnBroken(const std::string& why) override;

 private:
  // Takes the call out and tells its caller; after this, nothing of the connection may be used that
  // Abandon ends.
  void End(std::int32_t stream, GrpcStatus status, bool reset);

  GrpcClient* client_;  // Null once abandoned.
  Loop& loop_;
  std::shared_ptr<Http2Connection> http2_;  // Null when no socket could be had.
  std::int32_t never_sent_ = 0;             // Below zero: calls without http2_.
  std::unordered_map<std::int32_t, Pending> calls_;
  bool retired_ = false;
};

void GrpcClient::Connection::Start() {
  const Result<int> fd = StartConnecting(client_->address_);
  if (!fd) {
    // Not from within Call.
    loop_.Post([weak = weak_from_this(), why = fd.error().message] {
      if (const auto self = weak.lock()) self->OnBroken(why);
    });
    return;
  }
  http2_ = std::make_shared<Http2Connection>(loop_, *fd, client_->streams_.Make(*fd),
                                             Http2Settings{.server = false}, *this);
  http2_->Start();
}

bool GrpcClient::Connection::takes_calls() const {
  return !retired_ && (http2_ == nullptr || http2_->takes_requests());
}

void GrpcClient::Connection::Begin(Pending call) {
  std::int32_t stream = --never_sent_;
  if (http2_ != nullptr) {
    stream = http2_->Open(call.headers);
    http2_->Write(stream, call.body);
    http2_->End(stream, {});
  }
  if (call.deadline) {
    call.timer = loop_.At(*call.deadline, [this, stream] {
      End(stream, {GrpcCode::kDeadlineExceeded, "the deadline of the call has passed"}, true);
    });
  }
  calls_.emplace(stream, std::move(call));
}

void GrpcClient::Connection::Abandon() {
  client_ = nullptr;
  for (const auto& [stream, pending] : calls_) loop_.Cancel(pending.timer);
  calls_.clear();
  if (http2_ != nullptr) http2_->Close();
}

void GrpcClient::Connection::Retire() {
  retired_ = true;
  if (!calls_.empty() || client_ == nullptr) return;
  const auto self = shared_from_this();
  client_->Drop(this);
  Abandon();
}

void GrpcClient::Connection::OnHeader(std::int32_t stream, std::string_view name,
                                      std::string_view value) {
  const auto found = calls_.find(stream);
  if (found == calls_.end()) return;
  Answer& answer = found->second.answer;
  if (name == ":status") {
    answer.http_status = value;
    found->second.body.clear();
  } else if (name == "grpc-status") {
    answer.grpc_status = value;
  } else if (name == "grpc-message") {
    answer.grpc_message = value;
  } else if (name == "grpc-encoding") {
    answer.reader.set_encoding(ParseGrpcEncoding(value).value_or(GrpcEncoding::kIdentity));
  }
}

void GrpcClient::Connection::OnData(std::int32_t stream, std::string_view bytes) {
  const auto found = calls_.find(stream);
  if (found == calls_.end()) return;
  Answer& answer = found->second.answer;
  while (!bytes.empty()) {
    MessageReader::Taken taken = answer.reader.Take(bytes);
    if (taken.message && answer.message) {
      taken.status = {GrpcCode::kInternal, "the server has answered with more than one message"};
    }
    if (taken.status.code != GrpcCode::kOk) return End(stream, std::move(taken.status), true);
    if (taken.message) answer.message = std::move(taken.message);
  }
}

void GrpcClient::Connection::OnEnd(std::int32_t stream) {
  const auto found = calls_.find(stream);
  if (found == calls_.end()) return;
  // A server may answer before it has heard all: the rest is not sent.
  const bool more = http2_->unsent(stream) > 0;
  End(stream, StatusOf(found->second.answer, NGHTTP2_NO_ERROR), more);
}

void GrpcClient::Connection::OnStreamClosed(std::int32_t stream, std::uint32_t error) {
  const auto found = calls_.find(stream);
  if (found == calls_.end()) return;
  Pending& call = found->second;
  const bool unheard = error == NGHTTP2_REFUSED_STREAM && call.answer.http_status.empty();
  if (!unheard || std::exchange(call.repeated, true)) {
    return End(stream, StatusOf(call.answer, error), false);
  }
  const auto self = shared_from_this();
  loop_.Cancel(call.timer);
  client_->Send(std::move(calls_.extract(found).mapped()));
  if (retired_) Retire();
}

void GrpcClient::Connection::End(std::int32_t stream, GrpcStatus status, bool reset) {
  const auto self = shared_from_this();
  auto node = calls_.extract(stream);
  Pending& pending = node.mapped();
  loop_.Cancel(pending.timer);
  if (reset && http2_ != nullptr) http2_->Reset(stream, NGHTTP2_CANCEL);
  Slice message;
  if (status.code == GrpcCode::kOk) message = *std::move(pending.answer.message);
  if (retired_) Retire();
  pending.callback(std::move(message), std::move(status));
}

void GrpcClient::Connection::OnBroken(const std::string& why) {
  const auto self = shared_from_this();
  retired_ = true;
  if (calls_.empty()) return Retire();
  // A callback may destroy the client, which leaves no calls here; the last one retires this.
  while (!calls_.empty()) End(calls_.begin()->first, {GrpcCode::kUnavailable, why}, false);
}

GrpcClient::GrpcClient(Loop& loop, Address address, std::string authority,
                       const StreamMaker& streams)
    : loop_(loop), address_(address), authority_(std::move(authority)), streams_(streams) {}

GrpcClient::~GrpcClient() {
  for (const auto& connection : connections_) connection->Abandon();
}

void GrpcClient::Drop(const Connection* connection) {
  std::erase_if(connections_, [&](const auto& other) { return other.get() == connection; });
}

void GrpcClient::Send(Pending call) {
  if (!connections_.empty() && !connections_.back()->takes_calls()) connections_.back()->Retire();
  if (connections_.empty() || !connections_.back()->takes_calls()) {
    connections_.push_back(std::make_shared<Connection>(*this));
    connections_.back()->Start();
  }
  connections_.back()->Begin(std::move(call));
}

void GrpcClient::Call(const std::string& method, const Headers& metadata,
                      std::vector<Slice> message, std::optional<Duration> timeout,
                      Callback callback) {
  Pending call{.headers = {{":method", "POST"},
                           {":scheme", "http"},
                           {":path", method},
                           {":authority", authority_},
                           {"te", "trailers"},
                           {"content-type", "application/grpc"}},
               .body = std::move(message),
               .deadline = {},
               .callback = std::move(callback)};
  if (timeout) {
    timeout = std::max(*timeout, Duration::zero());
    call.deadline = loop_.now() + *timeout;
    call.headers.emplace_back("grpc-timeout", FormatGrpcTimeout(*timeout));
  }
  call.headers.insert(call.headers.end(), metadata.begin(), metadata.end());
  std::size_t size = 0;
  for (const Slice& slice : call.body) size += slice.size();
  call.body.insert(call.body.begin(), MessagePrefix(size));
  Send(std::move(call));
}

}  // namespace divvy::net
