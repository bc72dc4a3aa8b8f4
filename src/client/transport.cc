#include "client/transport.h"

#include <fmt/format.h>

#include <deque>
#include <optional>
#include <utility>

#include "kserve/json.h"
#include "net/grpc_client.h"
#include "net/http_client.h"

namespace divvy::client {
namespace {

constexpr std::size_t kLongestReason = 160;

std::string Cut(std::string text) {
  if (text.size() > kLongestReason) text.resize(kLongestReason);
  return text;
}

// The text of {"error": "..."}; nothing of what is something else.
std::string ErrorText(std::string_view body) {
  std::string text;
  kserve::JsonReader reader(body);
  reader.BeginObject();
  while (const auto key = reader.Key()) {
    if (*key == "error" && reader.Peek() == kserve::JsonKind::kString) {
      text = reader.String().Text();
    } else {
      reader.Skip();
    }
  }
  return reader.ok() ? text : "";
}

Reply ReplyOf(Result<net::HttpResponse> response) {
  if (!response) return {Outcome::kFailed, Cut(std::move(response.error().message)), {}};
  constexpr int kOk = 200;
  constexpr int kTooMany = 429;
  constexpr int kUnavailable = 503;
  const int status = response->status;
  if (status == kOk) return {Outcome::kAnswered, {}, std::move(response->body)};
  const std::string text = ErrorText(response->body.view());
  return {status == kTooMany || status == kUnavailable ? Outcome::kRefused : Outcome::kFailed,
          Cut(fmt::format("HTTP {}{}{}", status, text.empty() ? "" : ": ", text)),
          {}};
}

std::string_view NameOf(net::GrpcCode code) {
  static constexpr std::string_view kNames[] = {"OK",
                                                "CANCELLED",
                                                "UNKNOWN",
                                                "INVALID_ARGUMENT",
                                                "DEADLINE_EXCEEDED",
                                                "NOT_FOUND",
                                                "ALREADY_EXISTS",
                                                "PERMISSION_DENIED",
                                                "RESOURCE_EXHAUSTED",
                                                "FAILED_PRECONDITION",
                                                "ABORTED",
                                                "OUT_OF_RANGE",
                                                "UNIMPLEMENTED",
                                                "INTERNAL",
                                                "UNAVAILABLE",
                                                "DATA_LOSS",
                                                "UNAUTHENTICATED"};
  const auto index = static_cast<std::size_t>(code);
  return index < std::size(kNames) ? kNames[index] : "an unknown status";
}

Reply ReplyOf(net::Slice message, const net::GrpcStatus& status) {
  if (status.code == net::GrpcCode::kOk) return {Outcome::kAnswered, {}, std::move(message)};
  const bool refused = status.code == net::GrpcCode::kResourceExhausted;
  return {refused ? Outcome::kRefused : Outcome::kFailed,
          Cut(fmt::format("{}{}{}", NameOf(status.code), status.message.empty() ? "" : ": ",
                          status.message)),
          {}};
}

class HttpTransport final : public Transport {
 public:
  HttpTransport(net::Loop& loop, Peer peer) : loop_(loop), peer_(std::move(peer)) {}

  void Send(const Call& call, std::function<void()> sent,
            std::function<void(Reply)> done) override {
    Waiting request{&call, std::move(sent), std::move(done)};
    if (!idle_.empty()) {
      // The last one to become idle: its connection is the least likely to have been closed.
      const std::size_t connection = idle_.back();
      idle_.pop_back();
      Start(connection, std::move(request));
    } else if (connections_.size() < static_cast<std::size_t>(peer_.connections)) {
      connections_.push_back(
          std::make_unique<net::HttpClient>(loop_, peer_.address, peer_.host, *peer_.streams));
      Start(connections_.size() - 1, std::move(request));
    } else {
      waiting_.push_back(std::move(request));
    }
  }

  void Drop() override {
    connections_.clear();
    idle_.clear();
    waiting_.clear();
  }

 private:
  struct Waiting {
    const Call* call;
    std::function<void()> sent;
    std::function<void(Reply)> done;
  };

  void Start(std::size_t connection, Waiting request) {
    request.sent();
    const Call& call = *request.call;
    connections_[connection]->Send(
        {.method = call.verb, .target = call.target, .headers = call.headers, .body = call.body},
        [this, connection, done = std::move(request.done)](Result<net::HttpResponse> response) {
          // First of all: the time that sending the next one takes is not this one's.
          done(ReplyOf(std::move(response)));
          if (waiting_.empty()) {
            idle_.push_back(connection);
            return;
          }
          Waiting next = std::move(waiting_.front());
          waiting_.pop_front();
          Start(connection, std::move(next));
        });
  }

  net::Loop& loop_;
  const Peer peer_;
  std::vector<std::unique_ptr<net::HttpClient>> connections_;
  std::vector<std::size_t> idle_;
  std::deque<Waiting> waiting_;
};

class GrpcTransport final : public Transport {
 public:
  GrpcTransport(net::Loop& loop, Peer peer) : loop_(loop), peer_(std::move(peer)) {}

  void Send(const Call& call, std::function<void()> sent,
            std::function<void(Reply)> done) override {
    if (connections_.size() < static_cast<std::size_t>(peer_.connections)) {
      connections_.push_back(
          std::make_unique<net::GrpcClient>(loop_, peer_.address, peer_.host, *peer_.streams));
      next_ = connections_.size() - 1;
    }
    net::GrpcClient& connection = *connections_[next_];
    next_ = (next_ + 1) % connections_.size();
    sent();
    connection.Call(call.target, call.headers, call.body, std::nullopt,
                    [done = std::move(done)](net::Slice message, const net::GrpcStatus& status) {
                      done(ReplyOf(std::move(message), status));
                    });
  }

  void Drop() override { connections_.clear(); }

 private:
  net::Loop& loop_;
  const Peer peer_;
  std::vector<std::unique_ptr<net::GrpcClient>> connections_;
  std::size_t next_ = 0;
};

}  // namespace

std::string_view Name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kAnswered:
      return "answered";
    case Outcome::kRefused:
      return "refused";
    case Outcome::kFailed:
      return "failed";
    case Outcome::kUnanswered:
      break;
  }
  return "unanswered";
}

std::unique_ptr<Transport> MakeHttpTransport(net::Loop& loop, Peer peer) {
  return std::make_unique<HttpTransport>(loop, std::move(peer));
}

std::unique_ptr<Transport> MakeGrpcTransport(net::Loop& loop, Peer peer) {
  return std::make_unique<GrpcTransport>(loop, std::move(peer));
}

}  // namespace divvy::client
