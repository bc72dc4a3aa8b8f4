#pragma once

#include <gtest/gtest.h>
#include <nghttp2/nghttp2.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/address.h"
#include "net/grpc_client.h"
#include "net/grpc_server.h"
#include "net/grpc_wire.h"
#include "net/http2.h"
#include "net/loop.h"
#include "net/stream.h"
#include "net/test_grpc_messages.h"

// A server, a client of ours, and one that says whatever it is told to. For tests.
namespace divvy::net {

// Answers by the last part of the method.
class GrpcTestHandler final : public GrpcHandler {
 public:
  void OnMessage(const std::shared_ptr<GrpcCall>& call, Slice message) override {
    ++messages;
    if (call->method() == "/t/Stream") {
      call->Write({message});
    } else {
      last[call.get()] = message;
    }
  }
  bool MayWait(const std::string& method) const override { return method == "/t/Stream"; }
  void OnHalfClose(const std::shared_ptr<GrpcCall>& call) override {
    const Slice message = std::exchange(last[call.get()], Slice());
    last.erase(call.get());
    if (call->method() == "/t/Hold") {
      held.push_back(call);
    } else if (call->method() == "/t/Fail") {
      call->Finish({GrpcCode::kNotFound, "größe 100%\n"});
    } else {
      if (call->method() == "/t/Echo") call->Write({message.Sub(0, 0), message});
      call->Finish({});
    }
  }
  void OnCancelled(const std::shared_ptr<GrpcCall>& call) override {
    ++cancelled;
    EXPECT_TRUE(call->cancelled());
    // Whoever did not hear of it in time answers all the same.
    call->Write({Slice::Static("late")});
    call->Finish({});
  }

  std::map<const GrpcCall*, Slice> last;
  std::vector<std::shared_ptr<GrpcCall>> held;
  int messages = 0;
  int cancelled = 0;
};

// A client that may break the rules: what came back on each of its streams.
class RawClient final : public Http2Owner {
 public:
  struct Seen {
    std::map<std::string, std::string> headers;
    std::string data;
    std::optional<std::uint32_t> closed;
  };

  RawClient(Loop& loop, const Address& address, const StreamMaker& streams) {
    const int fd = *StartConnecting(address);
    http2 = std::make_shared<Http2Connection>(loop, fd, streams.Make(fd),
                                              Http2Settings{.server = false}, *this);
    http2->Start();
  }
  ~RawClient() override { http2->Close(); }

  std::int32_t Open(const std::string& method,
                    Headers more = {{"content-type", "application/grpc"}},
                    const std::string& http_method = "POST") {
    Headers headers{
        {":method", http_method}, {":scheme", "http"}, {":path", method}, {":authority", "t"}};
    headers.insert(headers.end(), more.begin(), more.end());
    return http2->Open(headers);
  }
  void Send(std::int32_t stream, std::string bytes) {
    http2->Write(stream, {Slice(std::move(bytes))});
  }

  void OnBegin(std::int32_t) override {}
  void OnHeader(std::int32_t stream, std::string_view name, std::string_view value) override {
    seen[stream].headers[std::string(name)] = value;
  }
  void OnHeadersEnd(std::int32_t) override {}
  void OnData(std::int32_t stream, std::string_view bytes) override { seen[stream].data += bytes; }
  void OnEnd(std::int32_t) override {}
  void OnStreamClosed(std::int32_t stream, std::uint32_t error) override {
    seen[stream].closed = error;
  }
  void OnGoAway() override { going_away = true; }
  void OnBroken(const std::string&) override { broken = true; }

  std::shared_ptr<Http2Connection> http2;
  std::map<std::int32_t, Seen> seen;
  bool going_away = false;
  bool broken = false;
};

inline constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// What a client sends for one unary call, byte by byte, with these settings.
inline std::string WrittenCall(const std::string& method, const std::string& settings = {}) {
  const auto frame = [](const std::string& payload, char type, char flags, char stream) {
    return std::string(2, '\0') + static_cast<char>(payload.size()) + type + flags +
           std::string(3, '\0') + stream + payload;
  };
  // POST, http, then literals: path, authority, content-type.
  const std::string head = "\x83\x86\x44" + std::string(1, static_cast<char>(method.size())) +
                           method + "\x41\x01t\x5f\x10" + "application/grpc";
  return std::string(kPreface) + frame(settings, 4, 0, 0) + frame(head, 1, 4, 1) +
         frame(Framed("hello"), 0, 1, 1);
}

inline std::string Pattern(std::size_t size, std::uint64_t seed) {
  std::string text(size, '\0');
  std::uint64_t x = seed * 2 + 1;
  for (char& c : text) {
    x = x * 6364136223846793005ULL + 1442695040888963407ULL;
    c = static_cast<char>(x >> 56);
  }
  return text;
}

class GrpcTest : public testing::Test {
 protected:
  void Serve(const GrpcLimits& limits = {}) {
    const Result<int> fd = Listen(*Address::Parse("127.0.0.1:0"), 64);
    ASSERT_TRUE(fd.has_value()) << fd.error().message;
    address = LocalAddress(*fd);
    server = std::make_unique<GrpcServer>(loop, limits, streams, handler);
    server->Serve(*fd);
    client = std::make_unique<GrpcClient>(loop, *address, "t", streams);
  }

  // Rounds until `done`. A hang ends in a failure, not in a clock's verdict.
  void Until(const std::function<bool()>& done) {
    for (int i = 0; i < 1000 && !done(); ++i) loop.Round(std::chrono::milliseconds(20));
    ASSERT_TRUE(done());
  }

  struct Got {
    std::string message;
    GrpcStatus status;
  };
  Got Call(const std::string& method, const std::string& message,
           std::optional<Duration> timeout = std::nullopt) {
    std::optional<Got> got;
    client->Call(method, {}, {Slice(message)}, timeout,
                 [&](const Slice& answer, GrpcStatus status) {
                   got = Got{std::string(answer.view()), std::move(status)};
                 });
    EXPECT_FALSE(got.has_value());  // Never from within.
    Until([&] { return got.has_value(); });
    return got.value_or(Got{});
  }
  void ExpectServes() {
    const Got got = Call("/t/Echo", "still there");
    EXPECT_EQ(got.status.code, GrpcCode::kOk) << got.status.message;
    EXPECT_EQ(got.message, "still there");
  }

  Loop loop;
  PlainStreams streams;
  GrpcTestHandler handler;
  std::optional<Address> address;
  std::unique_ptr<GrpcServer> server;
  std::unique_ptr<GrpcClient> client;
};

}  // namespace divvy::net
