#include "net/http_server.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <memory>
#include <utility>

#include "base/random.h"
#include "net/http_client.h"
#include "net/test_peer.h"

namespace divvy::net {
namespace {

// A server that says what it got, and keeps the replies to requests for /later.
class HttpServerTest : public testing::Test {
 protected:
  void Serve(HttpLimits limits = {}) {
    const auto address = Address::Parse("unix:" + folder_.File("s"));
    ASSERT_TRUE(address);
    const auto fd = Listen(*address, 64);
    ASSERT_TRUE(fd) << fd.error().message;
    address_ = *address;
    server_ = std::make_unique<HttpServer>(
        loop_, limits, streams_, [this](HttpRequest request, std::unique_ptr<HttpReply> reply) {
          Handle(std::move(request), std::move(reply));
        });
    server_->Serve(*fd);
  }

  void Handle(HttpRequest request, std::unique_ptr<HttpReply> reply) {
    heard_.push_back(fmt::format("{} {} {}", request.method, request.target,
                                 request.body.size() > 64 ? std::to_string(request.body.size())
                                                          : std::string(request.body.view())));
    bodies_ += request.body.size();
    if (request.target.starts_with("/later")) {
      later_.push_back(std::move(reply));
    } else if (request.target != "/dropped") {
      HttpAnswer answer;
      answer.body.push_back(request.body);
      reply->Send(std::move(answer));
    }
  }

  static HttpAnswer Text(std::string text) {
    HttpAnswer answer;
    answer.body.emplace_back(std::move(text));
    return answer;
  }

  TempFolder folder_;
  Loop loop_;
  PlainStreams streams_;
  Address address_;
  std::vector<std::string> heard_;
  std::size_t bodies_ = 0;
  std::vector<std::unique_ptr<HttpReply>> later_;
  std::unique_ptr<HttpServer> server_;
};

constexpr std::string_view kEcho =
    "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello";
constexpr std::string_view kEchoed = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

TEST_F(HttpServerTest, RequestsCutAnywhereAreTheSame) {
  Serve();
  Peer peer(loop_, address_);
  for (std::size_t cut = 1; cut < kEcho.size(); ++cut) {
    ASSERT_TRUE(peer.Send(kEcho.substr(0, cut)));
    loop_.Round(Duration::zero());
    ASSERT_TRUE(peer.Send(kEcho.substr(cut)));
    ASSERT_EQ(peer.Receive(kEchoed.size()), kEchoed) << "cut at " << cut;
  }
  EXPECT_EQ(server_->connections(), 1U);
}

TEST_F(HttpServerTest, ClientAndServerAgree) {
  Serve();
  HttpClient client(loop_, address_, "h", streams_);
  int answers = 0;
  for (int i = 0; i < 300; ++i) {
    HttpQuestion question{.method = "POST", .target = "/echo", .headers = {}, .body = {}};
    question.body.emplace_back(std::to_string(i));
    client.Send(std::move(question), [&answers, i](Result<HttpResponse> response) {
      ASSERT_TRUE(response) << response.error().message;
      EXPECT_EQ(response->status, 200);
      EXPECT_EQ(response->body.view(), std::to_string(i));
      ++answers;
    });
  }
  RunUntil(loop_, [&answers] { return answers == 300; });
  EXPECT_EQ(client.pending(), 0U);
}

TEST_F(HttpServerTest, ManyPipelinedRequestsInOneSend) {
  HttpLimits limits;
  limits.pipelined = 3;  // It stops hearing again and again, with whole requests in its buffer.
  Serve(limits);
  Peer peer(loop_, address_);
  constexpr std::size_t kMany = 500;
  std::string requests;
  for (std::size_t i = 0; i < kMany; ++i) requests += kEcho;
  ASSERT_TRUE(peer.Send(requests));
  std::string expected;
  for (std::size_t i = 0; i < kMany; ++i) expected += kEchoed;
  EXPECT_EQ(peer.Receive(expected.size()), expected);
}

// Streams whose peer takes all at once, however much.
class GreedyStreams final : public StreamMaker {
 public:
  std::unique_ptr<Stream> Make(int fd) const override { return std::make_unique<Greedy>(fd); }

 private:
  class Greedy final : public Stream {
   public:
    explicit Greedy(int fd) : plain_(PlainStreams().Make(fd)) {}
    long Read(char* to, std::size_t size) override { return plain_->Read(to, size); }
    long Write(const iovec* from, int count) override {
      long total = 0;
      for (int i = 0; i < count; ++i) total += static_cast<long>(from[i].iov_len);
      return total;
    }
    bool wants_read() const override { return true; }
    bool has_buffered() const override { return false; }

   private:
    std::unique_ptr<Stream> plain_;
  };
};

TEST_F(HttpServerTest, RequestsThatWaitBehindABigAnswerAreHeardWithoutAnotherEvent) {
  const GreedyStreams greedy;
  int heard = 0;
  HttpServer server(loop_, {}, greedy, [&](HttpRequest, std::unique_ptr<HttpReply> reply) {
    ++heard;
    reply->Send(Text(std::string(2 << 20, 'x')));
  });
  const Address address = Address::Parse("unix:" + folder_.File("greedy")).value();
  server.Serve(Listen(address, 4).value());
  Peer peer(loop_, address);
  std::string requests;
  for (int i = 0; i < 5; ++i) requests += kEcho;
  ASSERT_TRUE(peer.Send(requests));
  RunUntil(loop_, [&heard] { return heard == 5; });
}

TEST_F(HttpServerTest, AnswersGoOutInTheOrderOfTheRequests) {
  HttpLimits limits;
  limits.pipelined = 3;
  Serve(limits);
  Peer peer(loop_, address_);
  std::string requests;
  for (int i = 0; i < 5; ++i)
    requests += fmt::format("GET /later{} HTTP/1.1\r\nHost: h\r\n\r\n", i);
  ASSERT_TRUE(peer.Send(requests));
  RunUntil(loop_, [this] { return later_.size() == 3; });
  loop_.Round(Duration::zero());
  EXPECT_EQ(later_.size(), 3U) << "no more than this many at once";
  later_[2]->Send(Text("2"));
  later_[1]->Send(Text("1"));
  loop_.Round(Duration::zero());
  peer.Take();
  EXPECT_EQ(peer.received(), "") << "the first is not answered yet";
  later_[0]->Send(Text("0"));
  RunUntil(loop_, [this] { return later_.size() == 5; });
  later_[4]->Send(Text("4"));
  later_[3]->Send(Text("3"));
  std::string expected;
  for (int i = 0; i < 5; ++i) {
    expected += fmt::format("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{}", i);
  }
  EXPECT_EQ(peer.Receive(expected.size()), expected);
}

TEST_F(HttpServerTest, BigBodiesGoBothWays) {
  Serve();
  HttpClient client(loop_, address_, "h", streams_);
  std::string big(8 << 20, '\0');
  for (std::size_t i = 0; i < big.size(); i += 997) big[i] = static_cast<char>(i / 997);
  const Slice body(std::move(big));
  int answers = 0;
  for (int i = 0; i < 2; ++i) {
    client.Send({.method = "POST", .target = "/echo", .headers = {}, .body = {body}},
                [&](Result<HttpResponse> response) {
                  ASSERT_TRUE(response) << response.error().message;
                  EXPECT_TRUE(response->body.view() == body.view());
                  ++answers;
                });
  }
  RunUntil(loop_, [&answers] { return answers == 2; });
}

struct ExchangeCase {
  std::string_view sent;
  std::string_view received;  // All of it, to the end.
};

TEST_F(HttpServerTest, WhatClosesTheConnectionAndHow) {
  HttpLimits limits;
  limits.head_bytes = 256;
  limits.body_bytes = 100;
  Serve(limits);
  const std::string long_header = fmt::format("GET / HTTP/1.1\r\nHost: h\r\nA: {:0300}\r\n\r\n", 0);
  const ExchangeCase cases[] = {
      {"GET /1 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
       "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"},
      {"GET /2 HTTP/1.0\r\n\r\n",
       "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"},
      {"GET /3 HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /3 HTTP/1.0\r\n\r\n",
       "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n"
       "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"},
      {"HEAD /4 HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc",
       "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\n"},
      {"POST /5 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
       "2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
       "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc"},
      {"GET /6 HTTP/1.1\r\nHost: h\r\n\r\nGET /7 HTTP/1.1\r\nbad header\r\n\r\nGET /never "
       "HTTP/1.1\r\n",
       "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
       "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: 37\r\n"
       "Connection: close\r\n\r\n{\"error\":\"'bad header' is no header\"}"},
      {"GET\"\\ / HTTP/1.1\r\n\r\n",
       "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: 34\r\n"
       "Connection: close\r\n\r\n{\"error\":\"'GET\\\"\\\\' is no method\"}"},
      {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n", "HTTP/1.1 501 "},
      {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 101\r\n\r\n", "HTTP/1.1 413 "},
      {"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 101\r\n\r\n",
       "HTTP/1.1 413 "},
      {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n", "HTTP/1.1 413 "},
      {long_header, "HTTP/1.1 431 "},
      {"GET /dropped HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
       "HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\n"},
  };
  for (const ExchangeCase& one : cases) {
    Peer peer(loop_, address_);
    ASSERT_TRUE(peer.Send(one.sent));
    const std::string received = peer.ReceiveAll();
    EXPECT_EQ(received.substr(0, one.received.size()), one.received) << one.sent;
    if (one.received.starts_with("HTTP/1.1 200")) {
      EXPECT_EQ(received, one.received);
    }
  }
  RunUntil(loop_, [this] { return server_->connections() == 0; });
  for (const std::string& heard : heard_) EXPECT_EQ(heard.find("never"), std::string::npos);
}

// The client is still sending when it is refused: a reset would take the answer from it.
TEST_F(HttpServerTest, ARefusedClientGetsItsAnswerThoughItSendsOn) {
  HttpLimits limits;
  limits.body_bytes = 100;
  Serve(limits);
  const Result<int> listening = Listen(Address::Parse("127.0.0.1:0").value(), 4);
  ASSERT_TRUE(listening);
  const Address address = LocalAddress(*listening);
  server_->Serve(*listening);
  Peer peer(loop_, address);
  ASSERT_TRUE(peer.Send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4000000\r\n\r\n"));
  ASSERT_TRUE(peer.Send(std::string(4000000, 'x')));
  EXPECT_EQ(peer.ReceiveAll().substr(0, 13), "HTTP/1.1 413 ");
}

TEST_F(HttpServerTest, AskingBeforeTheBody) {
  Serve();
  Peer peer(loop_, address_);
  const std::string_view continued = "HTTP/1.1 100 Continue\r\n\r\n";
  const std::string head =
      "POST /echo HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
  ASSERT_TRUE(peer.Send(head));
  EXPECT_EQ(peer.Receive(continued.size()), continued);
  ASSERT_TRUE(peer.Send("hello"));
  EXPECT_EQ(peer.Receive(kEchoed.size()), kEchoed);
  // A body that has come needs no leave, and a leave does not overtake an earlier answer.
  ASSERT_TRUE(peer.Send(head + "hello"));
  EXPECT_EQ(peer.Receive(kEchoed.size()), kEchoed);
  ASSERT_TRUE(peer.Send("GET /later HTTP/1.1\r\nHost: h\r\n\r\n" + head));
  RunUntil(loop_, [this] { return later_.size() == 1; });
  peer.Take();
  EXPECT_EQ(peer.received(), "");
  later_[0]->Send(Text(""));
  EXPECT_TRUE(peer.ReceiveUntil("\r\n\r\n").starts_with("HTTP/1.1 200"));
  EXPECT_EQ(peer.Receive(continued.size()), continued);
}

TEST_F(HttpServerTest, SlowClientsAreNotWaitedForForEver) {
  HttpLimits limits;
  limits.head_time = limits.idle_time = std::chrono::milliseconds(5);
  limits.stall_time = std::chrono::milliseconds(40);
  Serve(limits);
  const ExchangeCase cases[] = {
      {"", ""},                       // Never asks.
      {"\r\n", ""},                   // Nor does this.
      {"GET / HT", "HTTP/1.1 408 "},  // Half a head.
      {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhe", "HTTP/1.1 408 "},
      {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5", "HTTP/1.1 408 "},
      {kEcho, kEchoed},  // And then nothing.
  };
  for (const ExchangeCase& one : cases) {
    Peer peer(loop_, address_);
    if (!peer.Send(one.sent)) continue;  // Too slow for the limit, on a busy machine.
    EXPECT_EQ(peer.ReceiveAll().substr(0, one.received.size()), one.received) << one.sent;
  }
  // One that trickles makes no progress either.
  Peer trickling(loop_, address_);
  trickling.Send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n");
  for (int i = 0; i < 2000 && !trickling.ended(); ++i) {
    trickling.Send("x");
    loop_.Round(std::chrono::milliseconds(1));
    trickling.Take();
  }
  EXPECT_TRUE(trickling.ended());
  EXPECT_EQ(trickling.ReceiveAll().substr(0, 13), "HTTP/1.1 408 ");
  RunUntil(loop_, [this] { return server_->connections() == 0; });
}

TEST_F(HttpServerTest, AClientThatTakesNoAnswerIsClosedAndOneThatThinksIsNot) {
  HttpLimits limits;
  limits.stall_time = std::chrono::milliseconds(5);
  limits.idle_time = std::chrono::milliseconds(5);
  Serve(limits);
  Peer deaf(loop_, address_);
  Peer waiting(loop_, address_);
  ASSERT_TRUE(waiting.Send("GET /later HTTP/1.1\r\nHost: h\r\n\r\n"));
  ASSERT_TRUE(deaf.Send("GET /later HTTP/1.1\r\nHost: h\r\n\r\n"));
  RunUntil(loop_, [this] { return later_.size() == 2; });
  later_[1]->Send(Text(std::string(4 << 20, 'x')));
  RunUntil(loop_, [this] { return server_->connections() == 1; });
  later_[0]->Send(Text("patience"));
  EXPECT_NE(waiting.ReceiveAll().find("patience"), std::string::npos);
}

TEST_F(HttpServerTest, AClientThatSendsOnWithoutReadingIsHeardNoMore) {
  Serve();
  Peer peer(loop_, address_);
  const std::string request =
      "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n" + std::string(100000, 'x');
  // As much as the sockets and the server take, which is not without end.
  std::size_t sent = 0;
  for (int refused = 0; refused < 50;) {
    const ssize_t put = send(peer.fd(), request.data() + sent % request.size(),
                             request.size() - sent % request.size(), MSG_NOSIGNAL);
    if (put > 0) sent += static_cast<std::size_t>(put);
    refused = put > 0 ? 0 : refused + 1;
    ASSERT_LT(sent, 64U << 20) << "the answers pile up";
    loop_.Round(Duration::zero());
  }
  ASSERT_TRUE(peer.Send("")) << "it is still there";
  RunUntil(loop_, [&] {
    peer.Take();
    return peer.received().size() >= sent / request.size() * 100000;
  });
}

TEST_F(HttpServerTest, WhoWaitsHearsThatTheClientHasGone) {
  Serve();
  int gone = 0;
  {
    Peer peer(loop_, address_);
    ASSERT_TRUE(
        peer.Send("GET /later HTTP/1.1\r\nHost: h\r\n\r\nGET /later HTTP/1.1\r\nHost: h\r\n\r\n"
                  "GET /later HTTP/1.1\r\nHost: h\r\n\r\n"));
    RunUntil(loop_, [this] { return later_.size() == 3; });
    later_[0]->OnGone([&gone] { gone += 100; });
    later_[0]->Send(Text("in time"));
    later_[1]->OnGone([&] {
      ++gone;
      later_[2]->Send(Text("to nobody"));  // From within.
    });
    loop_.Round(Duration::zero());
  }
  RunUntil(loop_, [&gone] { return gone > 0; });
  EXPECT_EQ(gone, 1) << "not for what is answered";
  EXPECT_EQ(server_->connections(), 0U);
  later_[1]->Send(Text("to nobody"));
  later_.clear();
  // Who asks too late is told at once.
  Peer peer(loop_, address_);
  ASSERT_TRUE(peer.Send("GET /later HTTP/1.1\r\nHost: h\r\n\r\n"));
  RunUntil(loop_, [this] { return later_.size() == 1; });
  peer.Close();
  RunUntil(loop_, [this] { return server_->connections() == 0; });
  later_[0]->OnGone([&gone] { ++gone; });
  EXPECT_EQ(gone, 2);
}

TEST_F(HttpServerTest, AClientThatEndsItsSideStillGetsWhatIsOnItsWay) {
  Serve();
  Peer peer(loop_, address_);
  const std::string big(4 << 20, 'x');
  ASSERT_TRUE(peer.Send(
      fmt::format("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", big.size()) +
      big));
  peer.EndSending();
  EXPECT_EQ(peer.ReceiveAll().size(), big.size() + 44);
}

TEST_F(HttpServerTest, AClientThatEndsItsSideIsAnsweredWhatItAsked) {
  Serve();
  Peer peer(loop_, address_);
  const std::string ask = "GET /later HTTP/1.1\r\nHost: h\r\n\r\n";
  ASSERT_TRUE(
      peer.Send(ask + ask + "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhe"));
  peer.EndSending();
  RunUntil(loop_, [this] { return later_.size() == 2; });
  bool gone = false;
  later_[0]->OnGone([&gone] { gone = true; });
  for (int i = 0; i < 5; ++i) loop_.Round(Duration::zero());
  EXPECT_FALSE(gone);
  later_[1]->Send(Text("second"));
  later_[0]->Send(Text("first"));
  EXPECT_EQ(peer.ReceiveAll(),
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst"
            "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nsecond");
  RunUntil(loop_, [this] { return server_->connections() == 0; });
  // And if it goes after all, who waits hears of it.
  Peer other(loop_, address_);
  ASSERT_TRUE(other.Send(ask));
  other.EndSending();
  RunUntil(loop_, [this] { return later_.size() == 3; });
  later_[2]->OnGone([&gone] { gone = true; });
  loop_.Round(Duration::zero());
  other.Close();
  RunUntil(loop_, [&gone] { return gone; });
}

TEST_F(HttpServerTest, WhatIsHalfReceivedCountsInTheBudget) {
  HttpLimits limits;
  limits.budget = std::make_shared<ByteBudget>(100'000);
  Serve(limits);
  const std::string head = "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 70000\r\n\r\n";
  const std::string chunked =
      "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n11170\r\n";
  for (const std::string& second : {head, chunked}) {
    Peer first(loop_, address_);
    ASSERT_TRUE(first.Send(head + std::string(69'000, 'x')));
    RunUntil(loop_, [&] { return limits.budget->taken() > 69'000; });
    Peer late(loop_, address_);
    ASSERT_TRUE(late.Send(second + std::string(60'000, 'x')));
    const std::string refusal = late.ReceiveAll();
    EXPECT_TRUE(refusal.starts_with("HTTP/1.1 429 ")) << refusal;
    EXPECT_NE(refusal.find("\r\nRetry-After: 1\r\n"), std::string::npos);
    // The first goes on, and what it held is given back.
    ASSERT_TRUE(first.Send(std::string(1000, 'x')));
    EXPECT_TRUE(first.ReceiveUntil("\r\n\r\n").starts_with("HTTP/1.1 200 "));
    EXPECT_EQ(limits.budget->taken(), 0U);
    ASSERT_TRUE(first.Send(head + std::string(50'000, 'x')));
    RunUntil(loop_, [&] { return limits.budget->taken() > 50'000; });
  }
  // Also by those that went away.
  RunUntil(loop_, [this] { return server_->connections() == 0; });
  EXPECT_EQ(limits.budget->taken(), 0U);
}

TEST_F(HttpServerTest, WhatCanNeverFitIsTooLargeAndWhatDoesNotFitNowIsBusy) {
  HttpLimits limits;
  limits.budget = std::make_shared<ByteBudget>(1000);
  limits.busy_status = 503;
  Serve(limits);
  Peer large(loop_, address_);
  ASSERT_TRUE(large.Send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n"));
  EXPECT_TRUE(large.ReceiveAll().starts_with("HTTP/1.1 413 "));
  ASSERT_TRUE(limits.budget->Take(900));
  Peer busy(loop_, address_);
  ASSERT_TRUE(busy.Send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 999\r\n\r\n" +
                        std::string(200, 'x')));
  const std::string refusal = busy.ReceiveAll();
  EXPECT_TRUE(refusal.starts_with("HTTP/1.1 503 ")) << refusal;
  EXPECT_NE(refusal.find("\r\nRetry-After: 1\r\n"), std::string::npos);
}

TEST_F(HttpServerTest, DrainAnswersWhatIsUnderWayAndClosesTheRest) {
  Serve();
  Peer idle(loop_, address_);
  Peer busy(loop_, address_);
  Peer midway(loop_, address_);
  ASSERT_TRUE(idle.Send(kEcho));
  ASSERT_EQ(idle.Receive(kEchoed.size()), kEchoed);
  ASSERT_TRUE(busy.Send("GET /later HTTP/1.1\r\nHost: h\r\n\r\n"));
  ASSERT_TRUE(midway.Send(kEcho.substr(0, 20)));
  RunUntil(loop_, [this] { return later_.size() == 1; });
  bool drained = false;
  server_->Drain([&] {
    drained = true;
    server_.reset();
  });
  EXPECT_EQ(idle.ReceiveAll(), "");
  EXPECT_FALSE(drained);
  ASSERT_TRUE(midway.Send(kEcho.substr(20)));
  EXPECT_EQ(midway.ReceiveAll(),
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello");
  later_[0]->Send(Text("done"));
  EXPECT_EQ(busy.ReceiveAll(),
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\ndone");
  RunUntil(loop_, [&drained] { return drained; });
  EXPECT_FALSE(server_);
}

TEST_F(HttpServerTest, AnIdleConnectionMayAskOnceMoreWhileDraining) {
  HttpLimits limits;
  limits.drain_time = std::chrono::hours(1);
  Serve(limits);
  Peer idle(loop_, address_);
  ASSERT_TRUE(idle.Send(kEcho));
  ASSERT_EQ(idle.Receive(kEchoed.size()), kEchoed);
  bool drained = false;
  server_->Drain([&drained] { drained = true; });
  for (int i = 0; i < 5; ++i) loop_.Round(Duration::zero());
  EXPECT_FALSE(drained);
  ASSERT_TRUE(idle.Send(kEcho));
  EXPECT_EQ(idle.ReceiveAll(),
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello");
  RunUntil(loop_, [&drained] { return drained; });
}

TEST_F(HttpServerTest, AnIdleConnectionClosesWhenTheTimeToDrainIsOver) {
  HttpLimits limits;
  limits.drain_time = std::chrono::milliseconds(5);
  Serve(limits);
  Peer idle(loop_, address_);
  ASSERT_TRUE(idle.Send(kEcho));
  ASSERT_EQ(idle.Receive(kEchoed.size()), kEchoed);
  bool drained = false;
  server_->Drain([&drained] { drained = true; });
  RunUntil(loop_, [&drained] { return drained; });
  EXPECT_EQ(idle.ReceiveAll(), "");
}

TEST_F(HttpServerTest, DrainOfNothingIsDoneSoon) {
  Serve();
  bool drained = false;
  server_->Drain([&drained] { drained = true; });
  EXPECT_FALSE(drained) << "not from within";
  RunUntil(loop_, [&drained] { return drained; });
}

TEST_F(HttpServerTest, MoreConnectionsThanAllowedWaitForOneToClose) {
  HttpLimits limits;
  limits.connections = 2;
  Serve(limits);
  std::vector<std::unique_ptr<Peer>> peers;
  for (int i = 0; i < 3; ++i) {
    peers.push_back(std::make_unique<Peer>(loop_, address_));
    ASSERT_TRUE(peers.back()->Send(kEcho));
  }
  EXPECT_EQ(peers[0]->Receive(kEchoed.size()), kEchoed);
  EXPECT_EQ(peers[1]->Receive(kEchoed.size()), kEchoed);
  for (int i = 0; i < 3; ++i) loop_.Round(Duration::zero());
  EXPECT_EQ(server_->connections(), 2U);
  peers.erase(peers.begin());
  EXPECT_EQ(peers[1]->Receive(kEchoed.size()), kEchoed);
}

TEST_F(HttpServerTest, WithoutDescriptorsItWaitsAndGoesOn) {
  Serve();
  Peer peer(loop_, address_);
  ASSERT_TRUE(peer.Send(kEcho));
  ASSERT_EQ(peer.Receive(kEchoed.size()), kEchoed);
  const Result<int> second = StartConnecting(address_);  // Is in the backlog.
  ASSERT_TRUE(second);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{.rlim_cur = 3, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  int error = 0;
  server_->OnAcceptFailure([&error](int why) { error = why; });
  loop_.Round(Duration::zero());
  // Had it gone on watching, every round would return at once. Some may, when its timer is due.
  constexpr Duration kRound = std::chrono::milliseconds(20);
  bool waited = false;
  for (int i = 0; i < 20 && !waited; ++i) {
    const TimePoint before = loop_.Clock();
    loop_.Round(kRound);
    waited = loop_.Clock() - before >= kRound;
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_TRUE(waited) << "it spins";
  EXPECT_EQ(error, EMFILE);
  ASSERT_TRUE(peer.Send(kEcho)) << "those that are there are served";
  EXPECT_EQ(peer.Receive(kEchoed.size()), kEchoed);
  RunUntil(loop_, [this] { return server_->connections() == 2; });
  close(*second);
}

TEST_F(HttpServerTest, RandomBytesNeverHangNorCrashIt) {
  HttpLimits limits;
  limits.head_time = limits.idle_time = limits.stall_time = std::chrono::milliseconds(20);
  Serve(limits);
  Random random(11);
  const std::string valid = std::string(kEcho) +
                            "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
                            "5\r\nhello\r\n0\r\n\r\n";
  for (int i = 0; i < 200; ++i) {
    std::string bytes = valid;
    for (std::uint64_t n = 1 + random.Below(4); n > 0; --n) {
      bytes[random.Below(bytes.size())] = static_cast<char>(random.Below(256));
    }
    Peer peer(loop_, address_);
    peer.Send(bytes);
    peer.EndSending();
    peer.ReceiveAll();
  }
  RunUntil(loop_, [this] { return server_->connections() == 0; });
  EXPECT_GT(heard_.size(), 50U);
}

TEST_F(HttpServerTest, AServerThatGoesTakesItsConnectionsWithIt) {
  Serve();
  Peer peer(loop_, address_);
  ASSERT_TRUE(peer.Send("GET /later HTTP/1.1\r\nHost: h\r\n\r\n"));
  RunUntil(loop_, [this] { return later_.size() == 1; });
  server_.reset();
  later_[0]->Send(Text("too late"));
  EXPECT_EQ(peer.ReceiveAll(), "");
}

}  // namespace
}  // namespace divvy::net
