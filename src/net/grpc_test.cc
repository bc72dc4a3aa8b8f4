#include <gtest/gtest.h>
#include <nghttp2/nghttp2.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
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

#include "base/random.h"
#include "net/address.h"
#include "net/grpc_client.h"
#include "net/grpc_server.h"
#include "net/grpc_wire.h"
#include "net/http2.h"
#include "net/loop.h"
#include "net/stream.h"
#include "net/test_grpc_messages.h"

namespace divvy::net {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Answers by the last part of the method.
class Handler final : public GrpcHandler {
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

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// What a client sends for one unary call, byte by byte, with these settings.
std::string WrittenCall(const std::string& method, const std::string& settings = {}) {
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

std::string Pattern(std::size_t size, std::uint64_t seed) {
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
    for (int i = 0; i < 1000 && !done(); ++i) loop.Round(milliseconds(20));
    ASSERT_TRUE(done());
  }

  struct Got {
    std::string message;
    GrpcStatus status;
  };
  Got Call(const std::string& method, const std::string& message,
           std::optional<Duration> timeout = std::nullopt) {
    std::optional<Got> got;
    client->Call(method, {}, {Slice(message)}, timeout, [&](Slice answer, GrpcStatus status) {
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
  Handler handler;
  std::optional<Address> address;
  std::unique_ptr<GrpcServer> server;
  std::unique_ptr<GrpcClient> client;
};

TEST_F(GrpcTest, AnswersOfAllSizesComeBackAsTheyWent) {
  Serve();
  for (const std::size_t size : {0, 1, 1023, 1025, 16384, 600 << 10, 9 << 20}) {
    const std::string message = Pattern(size, size);
    const Got got = Call("/t/Echo", message);
    EXPECT_EQ(got.status.code, GrpcCode::kOk) << got.status.message;
    EXPECT_TRUE(got.message == message) << size;
  }
  EXPECT_EQ(server->connections(), 1U);
}

TEST_F(GrpcTest, StatusesCarryTheirText) {
  Serve();
  const Got got = Call("/t/Fail", "x");
  EXPECT_EQ(got.status.code, GrpcCode::kNotFound);
  EXPECT_EQ(got.status.message, "größe 100%\n");
  // OK, but no message: that is no answer to a unary call.
  EXPECT_EQ(Call("/t/Nothing", "x").status.code, GrpcCode::kInternal);
}

TEST_F(GrpcTest, ManyCallsShareAConnectionBeyondItsLimitOfStreams) {
  Serve({.streams = 7});
  int good = 0;
  for (std::uint64_t i = 0; i < 300; ++i) {
    const std::string message = Pattern(i * 97, i);
    client->Call("/t/Echo", {{"x-number", std::to_string(i)}}, {Slice(message)}, hours(1),
                 [&good, message](Slice answer, const GrpcStatus& status) {
                   good += status.code == GrpcCode::kOk && answer.view() == message ? 1 : 0;
                 });
  }
  Until([&] { return good == 300; });
  EXPECT_EQ(server->connections(), 1U);
}

TEST_F(GrpcTest, AStreamAnswersMessageByMessage) {
  Serve();
  RawClient raw(loop, *address, streams);
  const std::int32_t stream = raw.Open("/t/Stream");
  std::string expected;
  for (const std::string message : {"a", "", "long enough to be more than one"}) {
    // Cut where it hurts: within the prefix.
    const std::string framed = Framed(message);
    raw.Send(stream, framed.substr(0, 3));
    raw.Send(stream, framed.substr(3));
    expected += framed;
    Until([&] { return raw.seen[stream].data == expected; });
  }
  EXPECT_FALSE(raw.seen[stream].closed);
  raw.http2->End(stream, {});
  Until([&] { return raw.seen[stream].closed.has_value(); });
  EXPECT_EQ(raw.seen[stream].headers["grpc-status"], "0");
  EXPECT_EQ(raw.seen[stream].closed, NGHTTP2_NO_ERROR);
  EXPECT_EQ(handler.cancelled, 0);
}

TEST_F(GrpcTest, CompressedMessagesAreUndone) {
  Serve({.message_bytes = 1 << 20});
  RawClient raw(loop, *address, streams);
  const std::string text = Pattern(1000, 1) + std::string(500'000, 'x');
  for (const bool gzip : {true, false}) {
    const std::int32_t stream = raw.Open("/t/Echo", {{"content-type", "application/grpc+proto"},
                                                     {"grpc-encoding", gzip ? "gzip" : "deflate"}});
    raw.Send(stream, Framed(Compressed(text, gzip), 1));
    raw.http2->End(stream, {});
    Until([&] { return raw.seen[stream].closed.has_value(); });
    EXPECT_TRUE(raw.seen[stream].data == Framed(text));
    // What would be too large then is told so, with the limit.
    const std::int32_t large = raw.Open("/t/Echo", {{"content-type", "application/grpc+proto"},
                                                    {"grpc-encoding", gzip ? "gzip" : "deflate"}});
    raw.Send(large, Framed(Compressed(std::string((1 << 20) + 1, 'x'), gzip), 1));
    Until([&] { return raw.seen[large].closed.has_value(); });
    EXPECT_EQ(raw.seen[large].headers["grpc-status"], "8");
    EXPECT_NE(raw.seen[large].headers["grpc-message"].find("1048576"), std::string::npos);
  }
}

TEST_F(GrpcTest, WhatIsNoCallIsRefusedWithAReason) {
  Serve({.message_bytes = 100, .metadata_bytes = 2000});
  struct Case {
    Headers headers;
    std::string http_method;
    std::string body;
    std::string http_status;
    GrpcCode code;
  };
  const std::pair<std::string, std::string> type{"content-type", "application/grpc"};
  const std::vector<Case> cases{
      {{{"content-type", "application/json"}}, "POST", "{}", "415", GrpcCode::kInvalidArgument},
      {{{"content-type", "application/grpcx"}}, "POST", "", "415", GrpcCode::kInvalidArgument},
      {{}, "POST", "", "415", GrpcCode::kInvalidArgument},
      {{type}, "GET", "", "405", GrpcCode::kInvalidArgument},
      {{type, {"grpc-encoding", "zstd"}}, "POST", "", "200", GrpcCode::kUnimplemented},
      {{type, {"grpc-timeout", "1x"}}, "POST", "", "200", GrpcCode::kInvalidArgument},
      {{type, {"x", std::string(2000, 'x')}}, "POST", "", "200", GrpcCode::kResourceExhausted},
      {{type}, "POST", Framed(std::string(101, 'x')), "200", GrpcCode::kResourceExhausted},
      {{type}, "POST", std::string("\0\xff\xff\xff\xff", 5), "200", GrpcCode::kResourceExhausted},
      {{type}, "POST", Framed("whole").substr(0, 7), "200", GrpcCode::kInternal},
      {{type}, "POST", Framed("whole").substr(0, 3), "200", GrpcCode::kInternal},
      {{type}, "POST", "\7garbage", "200", GrpcCode::kResourceExhausted}};
  RawClient raw(loop, *address, streams);
  for (const Case& c : cases) {
    const std::int32_t stream = raw.Open("/t/Echo", c.headers, c.http_method);
    raw.Send(stream, c.body);
    raw.http2->End(stream, {});
    RawClient::Seen& seen = raw.seen[stream];
    Until([&] { return seen.closed.has_value(); });
    EXPECT_EQ(seen.headers[":status"], c.http_status) << &c - cases.data();
    EXPECT_EQ(seen.headers["grpc-status"], std::to_string(static_cast<int>(c.code)))
        << &c - cases.data();
    EXPECT_NE(seen.headers["grpc-message"], "");
  }
  EXPECT_EQ(handler.messages + handler.cancelled, 0);
  ExpectServes();
}

TEST_F(GrpcTest, AnAnswerBeforeTheEndOfTheQuestionStopsIt) {
  Serve({.message_bytes = 1 << 20});
  // 64 MiB is far beyond what the windows take, so this ends only if the client is told to stop.
  const Got got = Call("/t/Echo", std::string(64 << 20, 'x'));
  EXPECT_EQ(got.status.code, GrpcCode::kResourceExhausted) << got.status.message;
  ExpectServes();
  EXPECT_EQ(server->connections(), 1U);
}

TEST_F(GrpcTest, UnfinishedMessagesOfAllTogetherAreLimited) {
  // Room for two calls, and one half message.
  const GrpcLimits limits{.budget = std::make_shared<ByteBudget>(1000 + 400), .call_bytes = 100};
  Serve(limits);
  RawClient raw(loop, *address, streams);
  const std::string half = Framed(std::string(800, 'x')).substr(0, 705);
  const std::int32_t first = raw.Open("/t/Echo");
  raw.Send(first, half);
  const std::int32_t second = raw.Open("/t/Echo");
  raw.Send(second, half);
  Until([&] { return raw.seen[second].closed.has_value(); });
  EXPECT_EQ(raw.seen[second].headers["grpc-status"], "8");
  // The first goes on, and when it is whole there is room for another: what was held is given back.
  const auto finish = [&](std::int32_t stream) {
    raw.Send(stream, std::string(100, 'x'));
    raw.http2->End(stream, {});
    Until([&] { return raw.seen[stream].closed.has_value(); });
    EXPECT_EQ(raw.seen[stream].headers["grpc-status"], "0");
  };
  finish(first);
  const std::int32_t third = raw.Open("/t/Echo");
  raw.Send(third, half);
  for (int i = 0; i < 5; ++i) loop.Round(Duration::zero());
  finish(third);
}

TEST_F(GrpcTest, OfMetadataOnlyWhatIsUsedTakesRoomAndThatIsCounted) {
  const auto budget = std::make_shared<ByteBudget>(20'000);
  Serve({.budget = budget, .stall_time = hours(1)});
  RawClient raw(loop, *address, streams);
  const auto open = [&](const std::string& name) {
    return raw.Open("/t/Echo",
                    {{"content-type", "application/grpc"}, {name, std::string(15'000, 'x')}});
  };
  for (int i = 0; i < 5; ++i) open("junk");
  Until([&] { return budget->taken() > 5 * 1024; });
  EXPECT_LT(budget->taken(), 10'000U);
  const std::int32_t first = open("authorization");
  Until([&] { return raw.seen[first].closed.has_value(); });
  EXPECT_EQ(raw.seen[first].headers["grpc-status"], "8");
  raw.http2->Close();
  Until([&] { return budget->taken() == 0; });
}

TEST_F(GrpcTest, CallsWithoutAMessageAreLetGoUnlessTheyMayWait) {
  Serve({.idle_time = hours(1), .stall_time = milliseconds(40)});
  RawClient raw(loop, *address, streams);
  const std::int32_t waits = raw.Open("/t/Stream");
  const std::int32_t mute = raw.Open("/t/Echo");
  Until([&] { return raw.seen[mute].closed.has_value(); });
  EXPECT_EQ(raw.seen[mute].headers["grpc-status"], "4");
  raw.Send(waits, Framed("x"));
  Until([&] { return raw.seen[waits].data == Framed("x"); });
}

TEST_F(GrpcTest, ACallThatIsResetOrCutOffIsCancelled) {
  Serve();
  RawClient raw(loop, *address, streams);
  std::vector<std::int32_t> calls;
  for (int i = 0; i < 3; ++i) {
    calls.push_back(raw.Open("/t/Hold"));
    raw.Send(calls.back(), Framed("x"));
    raw.http2->End(calls.back(), {});
  }
  Until([&] { return handler.held.size() == 3; });
  raw.http2->Reset(calls[1], NGHTTP2_CANCEL);
  Until([&] { return handler.cancelled == 1; });
  EXPECT_FALSE(handler.held[0]->cancelled());
  EXPECT_TRUE(handler.held[1]->cancelled());
  handler.held[0]->Write({Slice::Static("answer")});
  handler.held[0]->Finish({});
  Until([&] { return raw.seen[calls[0]].closed.has_value(); });
  EXPECT_EQ(raw.seen[calls[0]].data, Framed("answer"));
  raw.http2->Close();
  Until([&] { return handler.cancelled == 2; });
  EXPECT_TRUE(handler.held[2]->cancelled());
  EXPECT_EQ(server->connections(), 0U);
  ExpectServes();
}

TEST_F(GrpcTest, TheServerKeepsTheDeadline) {
  Serve();
  RawClient raw(loop, *address, streams);
  const std::int32_t stream =
      raw.Open("/t/Hold", {{"content-type", "application/grpc"}, {"grpc-timeout", "30m"}});
  raw.Send(stream, Framed("x"));
  raw.http2->End(stream, {});
  Until([&] { return raw.seen[stream].closed.has_value(); });
  EXPECT_EQ(raw.seen[stream].headers["grpc-status"], "4");
  EXPECT_EQ(handler.cancelled, 1);
  ASSERT_EQ(handler.held.size(), 1U);
  EXPECT_LE(*handler.held[0]->deadline(), loop.now());
  EXPECT_EQ(raw.seen[stream].data, "");
}

TEST_F(GrpcTest, TheClientKeepsTheDeadlineAndTellsTheServer) {
  Serve();
  std::optional<GrpcStatus> got;
  // The server believes the last timeout it hears, so only the client's reset can cancel this.
  client->Call("/t/Hold", {{"grpc-timeout", "1H"}}, {Slice::Static("x")}, milliseconds(30),
               [&](Slice, GrpcStatus status) { got = std::move(status); });
  Until([&] { return got.has_value() && handler.cancelled == 1; });
  EXPECT_EQ(got->code, GrpcCode::kDeadlineExceeded);
  // Nobody accepts: the client's clock alone.
  const int fd = *Listen(*Address::Parse("127.0.0.1:0"), 1);
  client = std::make_unique<GrpcClient>(loop, LocalAddress(fd), "t", streams);
  EXPECT_EQ(Call("/t/Echo", "x", milliseconds(1)).status.code, GrpcCode::kDeadlineExceeded);
  close(fd);
}

TEST_F(GrpcTest, ABrokenConnectionFailsItsCallsAndTheNextOneConnects) {
  Serve();
  const auto at = *address;
  int failed = 0;
  for (int i = 0; i < 3; ++i) {
    client->Call("/t/Hold", {}, {Slice::Static("x")}, {}, [&](Slice, const GrpcStatus& status) {
      EXPECT_EQ(status.code, GrpcCode::kUnavailable);
      ++failed;
    });
  }
  Until([&] { return handler.held.size() == 3; });
  server.reset();
  Until([&] { return failed == 3; });
  // What is held is dropped: nobody is there any more.
  for (const auto& call : handler.held) call->Finish({});

  const Got refused = Call("/t/Echo", "x");
  EXPECT_EQ(refused.status.code, GrpcCode::kUnavailable);
  EXPECT_EQ(refused.status.message, "Connection refused");

  server = std::make_unique<GrpcServer>(loop, GrpcLimits{}, streams, handler);
  server->Serve(*Listen(at, 64));
  ExpectServes();
}

TEST_F(GrpcTest, ACallbackMayDestroyTheClient) {
  Serve();
  int called = 0;
  for (int i = 0; i < 3; ++i) {
    client->Call("/t/Hold", {}, {Slice::Static("x")}, {}, [&](Slice, const GrpcStatus&) {
      ++called;
      client.reset();
    });
  }
  Until([&] { return handler.held.size() == 3; });
  server.reset();
  Until([&] { return called == 1; });
  for (int i = 0; i < 5; ++i) loop.Round(Duration::zero());
  EXPECT_EQ(called, 1);
}

TEST_F(GrpcTest, ADrainFinishesWhatIsUnderWayAndRefusesTheRest) {
  Serve();
  std::optional<GrpcStatus> first;
  client->Call("/t/Hold", {}, {Slice::Static("x")}, {},
               [&](Slice, GrpcStatus status) { first = std::move(status); });
  RawClient idle(loop, *address, streams);
  Until([&] { return handler.held.size() == 1 && server->connections() == 2; });
  bool drained = false;
  server->Drain([&] { drained = true; });
  EXPECT_FALSE(drained);
  Until([&] { return idle.broken && idle.going_away; });
  EXPECT_FALSE(drained);
  EXPECT_EQ(Call("/t/Echo", "x").status.code, GrpcCode::kUnavailable);
  handler.held[0]->Write({Slice::Static("answer")});
  handler.held[0]->Finish({});
  Until([&] { return first.has_value() && drained; });
  EXPECT_EQ(first->code, GrpcCode::kOk);
  EXPECT_EQ(handler.cancelled, 0);
  EXPECT_EQ(server->connections(), 0U);
}

TEST_F(GrpcTest, ClientsThatResetTooMuchAreSentAway) {
  Serve({.resets = 20});
  RawClient raw(loop, *address, streams);
  for (int i = 0; i < 200 && !raw.broken; ++i) {
    if (!raw.http2->takes_requests()) break;
    const std::int32_t stream = raw.Open("/t/Hold");
    raw.Send(stream, Framed("x"));
    for (int round = 0; round < 3; ++round) loop.Round(Duration::zero());
    if (!raw.broken) raw.http2->Reset(stream, NGHTTP2_CANCEL);
  }
  Until([&] { return raw.broken || raw.going_away; });
  EXPECT_LT(handler.cancelled, 150);
  ExpectServes();
}

TEST_F(GrpcTest, PeersThatDoNotMoveAreLetGo) {
  Serve({.connections = 3, .idle_time = milliseconds(80), .stall_time = milliseconds(40)});
  // Says nothing at all.
  const int mute = *StartConnecting(*address);
  // Half a message.
  RawClient half(loop, *address, streams);
  const std::int32_t stuck = half.Open("/t/Stream");
  half.Send(stuck, Framed("one") + Framed(std::string(1 << 20, 'x')).substr(0, 6));
  // Byte by byte is no better.
  for (int i = 0; i < 500'000 && !half.seen[stuck].closed; ++i) {
    half.Send(stuck, "x");
    loop.Round(Duration::zero());
  }
  ASSERT_TRUE(half.seen[stuck].closed);
  EXPECT_EQ(half.seen[stuck].headers["grpc-status"], "4");
  EXPECT_EQ(handler.cancelled, 1);
  // And all of them, being idle after that.
  Until([&] { return half.broken && server->connections() == 0; });
  close(mute);
  ExpectServes();
}

TEST_F(GrpcTest, ConnectionsBeyondTheLimitWaitForTheirTurn) {
  Serve({.connections = 1});
  ExpectServes();
  RawClient second(loop, *address, streams);
  const std::int32_t stream = second.Open("/t/Echo");
  second.Send(stream, Framed("x"));
  second.http2->End(stream, {});
  ExpectServes();
  EXPECT_FALSE(second.seen[stream].closed);
  client.reset();
  Until([&] { return second.seen[stream].closed.has_value(); });
  EXPECT_EQ(second.seen[stream].data, Framed("x"));
}

TEST_F(GrpcTest, ClientsThatTakeNothingAreLetGo) {
  Serve({.stall_time = milliseconds(40)});
  const int fd = *StartConnecting(*address);
  // SETTINGS_INITIAL_WINDOW_SIZE 0: no byte of an answer may be sent.
  const std::string bytes = WrittenCall("/t/Hold", std::string("\0\4\0\0\0\0", 6));
  Until([&] { return server->connections() == 1; });
  ASSERT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), std::ssize(bytes));
  Until([&] { return handler.held.size() == 1; });
  handler.held[0]->Write({Slice::Static("answer")});
  for (int i = 0; i < 3; ++i) loop.Round(Duration::zero());
  EXPECT_EQ(handler.held[0]->unsent(), 11U);
  Until([&] { return handler.cancelled == 1; });
  EXPECT_EQ(handler.held[0]->unsent(), 0U);
  close(fd);
  Until([&] { return server->connections() == 0; });
}

// A client that opens its window by one byte at a time holds nothing for ever, be it done or not.
TEST_F(GrpcTest, ClientsThatTakeAnswersByteByByteAreLetGo) {
  const auto budget = std::make_shared<ByteBudget>(1 << 20);
  Serve({.budget = budget, .idle_time = hours(1), .stall_time = milliseconds(40)});
  const int fd = *StartConnecting(*address);
  // No window for the stream, and 2 MiB more for the connection.
  const std::string bytes = WrittenCall("/t/Hold", std::string("\0\4\0\0\0\0", 6)) +
                            std::string("\0\0\4\10\0\0\0\0\0\0\40\0\0", 13);
  Until([&] { return server->connections() == 1; });
  ASSERT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), std::ssize(bytes));
  Until([&] { return handler.held.size() == 1; });
  handler.held[0]->Write({Slice(std::string(1 << 20, 'x'))});
  handler.held[0]->Finish({GrpcCode::kAborted, std::string(3000, 'y')});
  EXPECT_GT(budget->taken(), 1024U + 3000U) << "the status waits, too";
  // WINDOW_UPDATE of stream 1. The answer takes more rounds than there are here.
  const std::string more("\0\0\4\10\0\0\0\0\1\0\0\0\1", 13);
  for (int i = 0; i < 500'000 && budget->taken() > 0; ++i) {
    ASSERT_EQ(send(fd, more.data(), more.size(), MSG_NOSIGNAL), std::ssize(more));
    std::array<char, 4096> answer;
    while (recv(fd, answer.data(), answer.size(), 0) > 0) {
    }
    loop.Round(Duration::zero());
  }
  EXPECT_EQ(budget->taken(), 0U);
  EXPECT_EQ(server->connections(), 1U);
  close(fd);
}

// All bytes are out, and the window is closed: only the end is missing.
TEST_F(GrpcTest, ClientsThatDoNotTakeTheStatusAreLetGo) {
  const auto budget = std::make_shared<ByteBudget>(3000);
  Serve({.budget = budget, .idle_time = hours(1), .stall_time = milliseconds(40)});
  const int fd = *StartConnecting(*address);
  const std::string bytes = WrittenCall("/t/Hold", std::string("\0\4\0\0\0\13", 6));
  Until([&] { return server->connections() == 1; });
  ASSERT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), std::ssize(bytes));
  Until([&] { return handler.held.size() == 1; });
  handler.held[0]->Write({Slice::Static("answer")});
  Until([&] { return handler.held[0]->unsent() == 0; });
  const std::size_t before = budget->taken();
  handler.held[0]->Finish({GrpcCode::kAborted, std::string(3000, 'y')});
  EXPECT_EQ(budget->taken(), before) << "what has no room is cut off";
  Until([&] { return budget->taken() == 0; });
  EXPECT_EQ(server->connections(), 1U);
  close(fd);
}

// Sends bytes and waits until the server has closed, or until it has taken them and stays.
void Attack(Loop& loop, const GrpcServer& server, const Address& address,
            const std::string& bytes) {
  const int fd = *StartConnecting(address);
  while (server.connections() == 0) loop.Round(milliseconds(20));
  std::size_t sent = 0;
  for (int idle = 0; idle < 3 && server.connections() > 0;) {
    const ssize_t put = send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (put > 0) sent += static_cast<std::size_t>(put);
    std::array<char, 4096> answer;
    const bool got = recv(fd, answer.data(), answer.size(), 0) > 0;
    idle = put > 0 || got ? 0 : idle + 1;
    loop.Round(Duration::zero());
  }
  close(fd);
  while (server.connections() > 0) loop.Round(milliseconds(20));
}

TEST_F(GrpcTest, AnyBytesEndInAClosedConnectionAndNothingWorse) {
  Serve({.message_bytes = 1 << 16});
  client.reset();
  const std::string call = WrittenCall("/t/Echo");
  const std::string greeting = call.substr(0, kPreface.size() + 9);
  Attack(loop, *server, *address, call);
  EXPECT_EQ(handler.messages, 1) << "the call to be damaged is none";

  Random random(20260101);
  Attack(loop, *server, *address, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  for (int i = 0; i < 150; ++i) {
    std::string bytes = call;
    const int kind = i % 3;
    if (kind == 0) bytes = greeting;
    if (kind < 2) {
      const std::size_t more = random.Below(400);
      for (std::size_t k = 0; k < more; ++k) bytes += static_cast<char>(random.Below(256));
    }
    if (kind > 0) {
      for (std::size_t k = 0; k <= random.Below(4); ++k) {
        bytes[kPreface.size() + random.Below(call.size() - kPreface.size())] =
            static_cast<char>(random.Below(256));
      }
    }
    Attack(loop, *server, *address, bytes);
  }
  handler.held.clear();
  client = std::make_unique<GrpcClient>(loop, *address, "t", streams);
  ExpectServes();
}

}  // namespace
}  // namespace divvy::net
