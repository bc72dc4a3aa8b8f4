// Calls: what is asked and answered, and how calls end.

#include <unistd.h>

#include "net/test_grpc_server.h"

namespace divvy::net {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

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

}  // namespace
}  // namespace divvy::net
