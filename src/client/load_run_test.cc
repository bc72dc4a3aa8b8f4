#include "client/load_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/dialect.h"
#include "client/summary.h"
#include "kserve/describe.h"
#include "kserve/grpc_infer.h"
#include "kserve/http_infer.h"
#include "net/grpc_server.h"
#include "net/http_server.h"

namespace divvy::client {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kEnoughConnections = 64;

// A server of one model, "m", that takes up to 8 items, in the thread of the test.
class TinyServer : public net::GrpcHandler {
 public:
  TinyServer()
      : http_(loop, {}, streams_,
              [this](net::HttpRequest request, std::unique_ptr<net::HttpReply> reply) {
                OnHttp(request, std::move(reply));
              }),
        grpc_(loop, {}, streams_, *this) {
    config_.metadata = {.name = "m",
                        .platform = "test",
                        .max_batch = 8,
                        .inputs = {{"x", kserve::DataType::kFp32, {-1, -1}}},
                        .outputs = {}};
  }

  // A client's connections to it.
  std::unique_ptr<Transport> Connect(const Dialect& dialect, int connections) {
    const auto listening = net::Listen(*net::Address::Parse("127.0.0.1:0"), 128);
    EXPECT_TRUE(listening);
    Peer peer{net::LocalAddress(*listening), "localhost", &streams_, connections};
    if (dialect.grpc) {
      grpc_.Serve(*listening);
      return MakeGrpcTransport(loop, std::move(peer));
    }
    http_.Serve(*listening);
    return MakeHttpTransport(loop, std::move(peer));
  }

  void OnMessage(const std::shared_ptr<net::GrpcCall>& call, net::Slice message) override {
    const std::string method = call->method().substr(call->method().rfind('/') + 1);
    for (const auto& [name, value] : call->metadata()) {
      if (name == "authorization") authorization = value;
    }
    const auto answer = [&](std::string text) {
      call->Write({net::Slice(std::move(text))});
      call->Finish({});
    };
    if (method == "RepositoryIndex") return answer(kserve::ToProto(index_));
    if (method == "ModelMetadata") return answer(kserve::ToProto(config_.metadata));
    if (method == "ModelConfig") return answer(kserve::ToProto(config_));
    const auto infer = kserve::DecodeGrpcRequest(message.view());
    ASSERT_TRUE(infer) << infer.error().message;
    See(infer->request);
    const int status = next_status();
    if (status == 200) return answer("");
    call->Finish({status == 429 ? net::GrpcCode::kResourceExhausted : net::GrpcCode::kInternal,
                  "request " + std::to_string(seen)});
  }
  void OnHalfClose(const std::shared_ptr<net::GrpcCall>&) override {}
  void OnCancelled(const std::shared_ptr<net::GrpcCall>&) override {}

  net::Loop loop;
  std::vector<int> statuses;  // Of the answers, in turn; all 200 when empty; 0: none.
  int seen = 0;               // Inferences.
  std::int64_t items = 0;
  std::string authorization;
  std::vector<std::unique_ptr<net::HttpReply>> kept;  // Those not answered.

 private:
  int next_status() const {
    if (statuses.empty()) return 200;
    return statuses[static_cast<std::size_t>(seen - 1) % statuses.size()];
  }

  void See(const kserve::InferRequest& request) {
    ++seen;
    ASSERT_EQ(request.inputs.size(), 1U);
    const kserve::Tensor& input = request.inputs.front();
    ASSERT_EQ(input.shape.size(), 2U);
    items += input.shape.front();
    EXPECT_TRUE(kserve::CheckBytes(input.type, input.shape, input.bytes, input.name));
  }

  void OnHttp(const net::HttpRequest& request, std::unique_ptr<net::HttpReply> reply) {
    const auto answer = [&](int status, std::string text) {
      net::HttpAnswer out{.status = status, .headers = {}, .body = {}};
      out.body.emplace_back(std::move(text));
      reply->Send(std::move(out));
    };
    authorization = net::FindHeader(request.headers, "Authorization").value_or("");
    if (request.target == "/v2/repository/index") return answer(200, kserve::ToJson(index_));
    if (request.target == "/v2/models/m") return answer(200, kserve::ToJson(config_.metadata));
    if (request.target == "/v2/models/m/config") return answer(200, kserve::ToJson(config_));
    if (request.target != "/v2/models/m/infer") return answer(404, kserve::ErrorJson("no such"));
    const auto length = net::FindHeader(request.headers, "Inference-Header-Content-Length");
    ASSERT_TRUE(length);
    const auto infer = kserve::DecodeHttpRequest(
        request.body.view(), std::stoul(std::string(*length)), kserve::Depth::kFull, nullptr);
    ASSERT_TRUE(infer) << infer.error().message;
    See(infer->request);
    const int status = next_status();
    if (status == 0) {
      kept.push_back(std::move(reply));
    } else if (status == 200) {
      answer(200, R"({"model_name": "m", "outputs": []})");
    } else {
      answer(status, kserve::ErrorJson("request " + std::to_string(seen)));
    }
  }

  net::PlainStreams streams_;
  kserve::ModelConfig config_;
  const std::vector<kserve::IndexEntry> index_ = {{"m", "1", "READY", ""},
                                                  {"n", "1", "LOADING", ""}};
  net::HttpServer http_;
  net::GrpcServer grpc_;
};

// `count` requests, a tenth of a millisecond apart, of 1, 2, 3, 1, ... items.
std::vector<workload::Arrival> Arrivals(int count) {
  std::vector<workload::Arrival> arrivals;
  for (int i = 0; i < count; ++i) arrivals.push_back({microseconds(100) * i, 1 + i % 3});
  return arrivals;
}

Schedule ScheduleOf(const std::vector<workload::Arrival>& arrivals) {
  return Schedule({workload::ArrivalStream(arrivals)}, seconds(60));
}

class LoadRunTest : public ::testing::Test {
 protected:
  explicit LoadRunTest(bool grpc = false) : grpc_(grpc) {}

  void Connect(int connections = kEnoughConnections) {
    const Dialect dialect{.grpc = grpc_, .token = "secret"};
    transport_ = server_.Connect(dialect, connections);
    auto facts = AskForModel(server_.loop, *transport_, dialect, "m", seconds(20));
    ASSERT_TRUE(facts) << facts.error().message;
    EXPECT_TRUE(facts->batched);
    EXPECT_EQ(facts->max_batch, 8);
    auto requests = Requests::Make(dialect, *facts, 3, {});
    ASSERT_TRUE(requests) << requests.error().message;
    requests_.push_back(std::move(*requests));
  }

  LoadRun Make(Schedule schedule, RunOptions options) {
    return LoadRun(server_.loop, *transport_, std::move(schedule), requests_, std::move(options));
  }

  const bool grpc_;
  TinyServer server_;
  std::unique_ptr<Transport> transport_;
  std::vector<Requests> requests_;
};

class BothProtocolsTest : public LoadRunTest, public ::testing::WithParamInterface<bool> {
 protected:
  BothProtocolsTest() : LoadRunTest(GetParam()) {}
};

INSTANTIATE_TEST_SUITE_P(Protocols, BothProtocolsTest, ::testing::Bool(),
                         [](const auto& protocol) { return protocol.param ? "Grpc" : "Http"; });

TEST_P(BothProtocolsTest, FindsTheModelsOfAServer) {
  const Dialect dialect{.grpc = grpc_, .token = ""};
  transport_ = server_.Connect(dialect, 1);
  const auto models = AskForModels(server_.loop, *transport_, dialect, seconds(20));
  ASSERT_TRUE(models) << models.error().message;
  ASSERT_EQ(models->size(), 2U);
  EXPECT_EQ(models->front().name, "m");
  EXPECT_EQ(models->back().state, "LOADING");
}

TEST_P(BothProtocolsTest, EveryRequestOfTheScheduleIsSentAndItsFateIsKnown) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  server_.statuses = {200, 429, 200, 500};
  const auto arrivals = Arrivals(40);
  const auto warm_up = Arrivals(8);
  Schedule schedule({workload::ArrivalStream(arrivals)}, seconds(60),
                    {workload::ArrivalStream(warm_up)}, milliseconds(2));
  LoadRun run = Make(std::move(schedule), {.slos = {seconds(60)}});
  const RunLog log = run.Run();

  EXPECT_EQ(server_.seen, 48);
  EXPECT_EQ(server_.items, 15 + 79);
  ASSERT_EQ(log.records.size(), 40U);
  EXPECT_FALSE(log.cut_short);
  for (std::size_t i = 0; i < log.records.size(); ++i) {
    const Record& record = log.records[i];
    EXPECT_EQ(record.scheduled, arrivals[i].at);
    EXPECT_EQ(record.items, arrivals[i].batch);
    EXPECT_LE(record.scheduled, record.issued);
    EXPECT_LE(record.issued, record.sent);
    EXPECT_LE(record.sent, record.done);
  }
  const std::vector<std::optional<Duration>> slos = {seconds(60)};
  const Summary summary = Summarise(log, slos);
  EXPECT_EQ(summary.all.in_time, 20U);
  EXPECT_EQ(summary.all.refused, 10U);
  EXPECT_EQ(summary.all.failed, 10U);
  // Messages that differ in their figures are of one kind.
  EXPECT_EQ(summary.reasons.size(), 2U);
  EXPECT_EQ(server_.authorization, "Bearer secret");
}

// Were requests held back while the server is busy, the last one would never be issued.
TEST_F(LoadRunTest, ALoopThatIsOpenDoesNotWaitForAnswers) {
  ASSERT_NO_FATAL_FAILURE(Connect(1));
  server_.statuses.assign(20, 200);
  server_.statuses.front() = 0;
  const auto arrivals = Arrivals(20);
  LoadRun run = Make(ScheduleOf(arrivals), {.slos = {std::nullopt}, .precise = true});
  const std::function<void()> look = [&] {
    if (run.issued() == 20 && !server_.kept.empty()) {
      server_.kept.front()->Send({});
    } else if (run.position() > seconds(20)) {
      ADD_FAILURE() << "only " << run.issued() << " of 20 were issued";
      run.Stop();
      run.Stop();
    } else {
      server_.loop.At(server_.loop.Clock() + microseconds(100), look);
    }
  };
  look();
  const RunLog log = run.Run();

  ASSERT_EQ(log.records.size(), 20U);
  for (std::size_t i = 1; i < 20; ++i) {
    const Record& record = log.records[i];
    EXPECT_EQ(record.outcome, Outcome::kAnswered);
    EXPECT_LE(record.issued, log.records.front().done);
    EXPECT_GE(record.sent, log.records.front().done);
    // The wait for the connection is part of its latency.
    EXPECT_GE(record.latency(), log.records.front().done - record.scheduled);
  }
}

TEST_F(LoadRunTest, WhatIsNeverAnsweredEndsWithPatience) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  server_.statuses = {200, 0};
  const auto arrivals = Arrivals(10);
  LoadRun run = Make(ScheduleOf(arrivals), {.slos = {std::nullopt}, .patience = milliseconds(50)});
  const RunLog log = run.Run();
  const auto unanswered = std::ranges::count(log.records, Outcome::kUnanswered, &Record::outcome);
  // Under load an answer may miss the end too; none that was kept is heard.
  EXPECT_GE(unanswered, 5);
  EXPECT_EQ(log.records.size(), 10U);
}

TEST_F(LoadRunTest, AStopEndsTheScheduleAndKeepsWhatWasMeasured) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  std::vector<workload::Arrival> arrivals = Arrivals(5);
  arrivals.push_back({std::chrono::hours(1), 1});
  LoadRun run = Make(Schedule({workload::ArrivalStream(arrivals)}, std::chrono::hours(2)),
                     {.slos = {std::nullopt}});
  const std::function<void()> look = [&] {
    if (run.done() == 5) return run.Stop();
    server_.loop.At(server_.loop.Clock() + microseconds(100), look);
  };
  look();
  const RunLog log = run.Run();
  EXPECT_TRUE(log.cut_short);
  EXPECT_EQ(log.records.size(), 5U);
  EXPECT_LT(log.elapsed, std::chrono::hours(1));
}

TEST_F(LoadRunTest, ARunThatCannotSucceedAnyMoreGivesUp) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  server_.statuses = {429};
  std::vector<workload::Arrival> arrivals = Arrivals(5);
  arrivals.push_back({std::chrono::hours(1), 1});
  LoadRun run = Make(Schedule({workload::ArrivalStream(arrivals)}, std::chrono::hours(2)),
                     {.slos = {seconds(60)}, .give_up_after = 3});
  const RunLog log = run.Run();
  const auto refused = std::ranges::count(log.records, Outcome::kRefused, &Record::outcome);
  EXPECT_TRUE(log.gave_up);
  EXPECT_GE(refused, 4);
  EXPECT_LE(refused, 5);
}

TEST(TransportTest, AServerThatIsNotThereIsNamedInTheError) {
  net::Loop loop;
  const net::PlainStreams streams;
  Peer peer{*net::Address::Parse("unix:/nonexistent/divvy.sock"), "localhost", &streams, 2};
  const auto transport = MakeHttpTransport(loop, peer);
  const auto facts = AskForModel(loop, *transport, {}, "m", seconds(20));
  ASSERT_FALSE(facts);
  EXPECT_EQ(facts.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(facts.error().message.find("/nonexistent/divvy.sock"), std::string::npos)
      << facts.error().message;
}

}  // namespace
}  // namespace divvy::client
