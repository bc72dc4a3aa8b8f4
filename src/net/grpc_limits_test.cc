// What clients may not do to a server: take its memory, its time or its connections.

#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "base/random.h"
#include "net/progress.h"
#include "net/test_grpc_server.h"

namespace divvy::net {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

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
  Until([&] { return budget->taken() > std::size_t{5} * 1024; });
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
  // WINDOW_UPDATE of stream 1, half as often as would do.
  const std::string more("\0\0\4\10\0\0\0\0\1\0\0\0\1", 13);
  constexpr Duration kPause = Duration(milliseconds(40)) * 2 / Progress::kLeast;
  TimePoint next = loop.Clock();
  Until([&] {
    for (; next < loop.Clock(); next += kPause) send(fd, more.data(), more.size(), MSG_NOSIGNAL);
    std::array<char, 4096> answer;
    while (recv(fd, answer.data(), answer.size(), 0) > 0) {
    }
    return budget->taken() == 0;
  });
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
