// A worker on a unix socket, asked as the router asks it.

#include "engine/worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <future>
#include <mutex>
#include <optional>

#include "base/check.h"
#include "engine/synthetic.h"
#include "kserve/http_infer.h"
#include "net/address.h"
#include "net/http_client.h"

namespace divvy::engine {
namespace {

using net::HttpQuestion;
using net::HttpResponse;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// What the engine was asked to do, seen from the test's thread, and what holds it back.
struct Diary {
  std::mutex mutex;
  std::vector<std::int64_t> runs;  // Items of each.
  std::promise<void> may_load;
  std::promise<void> may_run;
  std::promise<void> runs_now;
  bool held = false;  // Runs tell that they began, and wait until they may.
};

// y = 2x, of any width. Fails when asked to double -1, and blames the input for -2.
class DoublingEngine final : public Engine {
 public:
  explicit DoublingEngine(Diary& diary) : diary_(diary) {
    description_.metadata = {.name = "m",
                             .platform = "test",
                             .max_batch = 8,
                             .inputs = {{.name = "x", .shape = {-1, -1}}},
                             .outputs = {{.name = "y", .shape = {-1, -1}}}};
    description_.backend = "test";
  }
  const Description& description() const override { return description_; }
  [[nodiscard]] Result<std::vector<Output>> Run(std::span<const kserve::Tensor> inputs) override {
    const kserve::Tensor& x = inputs.front();
    {
      const std::lock_guard lock(diary_.mutex);
      diary_.runs.push_back(x.shape.front());
    }
    if (diary_.held) {
      diary_.runs_now.set_value();
      diary_.may_run.get_future().wait();
    }
    const std::shared_ptr<char[]> room = AllocateBytes(x.bytes.size());
    for (std::size_t at = 0; at < x.bytes.size(); at += sizeof(float)) {
      float value = 0;
      std::memcpy(&value, x.bytes.data() + at, sizeof value);
      if (value == -1) return Fail(ErrorCode::kUnavailable, "out of order");
      if (value == -2) return Fail(ErrorCode::kInvalidArgument, "not this");
      value *= 2;
      std::memcpy(room.get() + at, &value, sizeof value);
    }
    return std::vector<Output>{
        {.tensor = {.name = "y", .shape = x.shape, .bytes = {room.get(), x.bytes.size()}},
         .storage = room}};
  }

 private:
  Diary& diary_;
  Description description_;
};

class WorkerTest : public ::testing::Test {
 protected:
  WorkerTest() {
    char pattern[] = "/tmp/divvy-worker-XXXXXX";
    Check(mkdtemp(pattern) != nullptr, "a directory for the socket");
    directory_ = pattern;
  }
  ~WorkerTest() override {
    client_.reset();
    worker_.reset();
    std::filesystem::remove_all(directory_);
  }

  void Start(Lane::MakeEngine make) {
    worker_ = std::make_unique<Worker>(loop_, "m", std::move(make),
                                       [this](Result<void> made) { made_ = std::move(made); });
    const net::Address address = net::Address::Parse("unix:" + directory_ + "/s").value();
    worker_->Serve(net::Listen(address, 16).value());
    client_ = Client();
  }
  void StartReady() {
    Start([this] { return std::make_unique<DoublingEngine>(diary_); });
    Until([this] { return made_.has_value(); });
  }

  std::unique_ptr<net::HttpClient> Client() {
    return std::make_unique<net::HttpClient>(
        loop_, net::Address::Parse("unix:" + directory_ + "/s").value(), "worker", streams_);
  }

  template <typename Condition>
  void Until(Condition holds) {
    while (!holds()) loop_.Round(std::chrono::milliseconds(5));
  }

  // All answers, in order, to questions sent back to back.
  std::vector<HttpResponse> Ask(std::vector<HttpQuestion> questions) {
    std::vector<HttpResponse> answers;
    const std::size_t count = questions.size();
    for (HttpQuestion& question : questions) {
      client_->Send(std::move(question), [&](Result<HttpResponse> answer) {
        ASSERT_TRUE(answer) << answer.error().message;
        answers.push_back(std::move(*answer));
      });
    }
    Until([&] { return answers.size() == count || HasFailure(); });
    answers.resize(count);
    return answers;
  }
  HttpResponse Get(const std::string& target) {
    return Ask({{.method = "GET", .target = target, .headers = {}, .body = {}}}).front();
  }

  // {"x": values} of shape [items, values / items], in binary.
  static HttpQuestion Infer(const std::vector<float>& values, std::int64_t items = 1) {
    const std::string bytes(reinterpret_cast<const char*>(values.data()), values.size() * 4);
    kserve::InferRequest request;
    request.inputs = {{.name = "x",
                       .shape = {items, static_cast<std::int64_t>(values.size()) / items},
                       .bytes = bytes}};
    const kserve::HttpMessage message = kserve::EncodeHttpRequest(request);
    return {.target = "/v2/models/m/infer",
            .headers = {{"Inference-Header-Content-Length", std::to_string(message.head.size())}},
            .body = {net::Slice(message.head), net::Slice(bytes)}};
  }
  static HttpQuestion Json(std::string body) {
    return {.target = "/v2/models/m/versions/1/infer",
            .headers = {},
            .body = {net::Slice(std::move(body))}};
  }
  static HttpQuestion First(HttpQuestion question, const std::string& count) {
    question.headers.emplace_back("divvy-batch", count);
    return question;
  }

  static std::string Header(const HttpResponse& answer, std::string_view name) {
    return std::string(net::FindHeader(answer.headers, name).value_or("(none)"));
  }
  // The values of a binary answer's first output.
  static std::vector<float> Values(const HttpResponse& answer) {
    EXPECT_EQ(answer.status, 200) << answer.body.view();
    const auto length = net::FindHeader(answer.headers, "inference-header-content-length");
    const auto decoded = kserve::DecodeHttpResponse(
        answer.body.view(),
        length ? std::optional<std::size_t>(std::stoul(std::string(*length))) : std::nullopt);
    if (!decoded) return {};
    const std::string_view bytes = decoded->response.outputs.at(0).bytes;
    std::vector<float> values(bytes.size() / 4);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  std::vector<std::int64_t> runs() {
    const std::lock_guard lock(diary_.mutex);
    return diary_.runs;
  }

  std::string directory_;
  net::Loop loop_;
  net::PlainStreams streams_;
  Diary diary_;
  std::optional<Result<void>> made_;
  std::unique_ptr<Worker> worker_;
  std::unique_ptr<net::HttpClient> client_;
};

TEST_F(WorkerTest, IsReadyWhenItsEngineIs) {
  Start([this]() -> Result<std::unique_ptr<Engine>> {
    diary_.may_load.get_future().wait();
    return std::make_unique<DoublingEngine>(diary_);
  });
  EXPECT_EQ(Get("/v2/health/live").status, 200);
  EXPECT_EQ(Get("/v2/health/ready").status, 400);
  EXPECT_EQ(Get("/v2/models/m/ready").status, 400);
  EXPECT_EQ(Get("/v2/models/m").status, 503);
  EXPECT_EQ(Ask({Infer({1})}).front().status, 503);
  diary_.may_load.set_value();
  Until([this] { return made_.has_value(); });
  EXPECT_EQ(Get("/v2/health/ready").status, 200);
  EXPECT_EQ(Get("/v2/models/m/versions/1/ready").status, 200);
  EXPECT_THAT(Values(Ask({Infer({1})}).front()), ElementsAre(2));
}

TEST_F(WorkerTest, AnEngineThatCannotBeMadeIsSaid) {
  Start([]() -> Result<std::unique_ptr<Engine>> {
    return Fail(ErrorCode::kInvalidArgument, "no such model");
  });
  Until([this] { return made_.has_value(); });
  ASSERT_FALSE(*made_);
  EXPECT_EQ(made_->error().message, "no such model");
  EXPECT_FALSE(worker_->ready());
}

TEST_F(WorkerTest, DescribesItselfAndItsModel) {
  EngineConfig config{.model = "m",
                      .max_batch = 4,
                      .inputs = {{.name = "x", .shape = {2}}},
                      .outputs = {{.name = "y", .shape = {3}}}};
  Start([config]() -> Result<std::unique_ptr<Engine>> {
    return SyntheticEngine::Make(config, {LatencyTable::Parse("").value(), 0, 1});
  });
  Until([this] { return made_.has_value(); });
  const struct {
    const char* method;
    const char* target;
    int status;
    const char* says;
  } kCases[] = {
      {"GET", "/v2", 200, "divvy-worker"},
      {"GET", "/v2/", 200, "statistics"},
      {"GET", "/v2/models/m", 200, "divvy_synthetic"},
      {"GET", "/v2/models/%6d/versions/1?x=y", 200, "[-1,3]"},
      {"GET", "/v2/models/m/config", 200, "not a real model"},
      {"GET", "/v2/models/m/stats", 200, "model_stats"},
      {"GET", "/v2/models/stats", 200, "model_stats"},
      {"GET", "/v2/models/n", 404, "there is no model 'n' here, only 'm'"},
      {"GET", "/v2/models/m/versions/2", 404, "has no version '2', only 1"},
      {"GET", "/v2/models/m/what", 404, "Not Found"},
      {"GET", "/v2/models/m/ready/x", 404, "Not Found"},
      {"GET", "/v2/health/well", 404, "Not Found"},
      {"GET", "/", 404, "Not Found"},
      {"GET", "/v3/models/m", 404, "Not Found"},
      {"GET", "/v2/models/m/infer", 405, "Method Not Allowed"},
      {"POST", "/v2/models/m", 405, "Method Not Allowed"},
      {"POST", "/v2/models/n/infer", 404, "there is no model 'n'"},
  };
  for (const auto& test : kCases) {
    const HttpResponse answer =
        Ask({{.method = test.method, .target = test.target, .headers = {}, .body = {}}}).front();
    EXPECT_EQ(answer.status, test.status) << test.target;
    EXPECT_THAT(std::string(answer.body.view()), HasSubstr(test.says)) << test.target;
  }
}

TEST_F(WorkerTest, AnEngineThatOnlyTakesTimeTakesItForOneBatchAfterTheOther) {
  const auto start_with = [this](const char* latency) {
    EngineConfig config{.model = "m",
                        .max_batch = 4,
                        .inputs = {{.name = "x", .shape = {1}}},
                        .outputs = {{.name = "y", .shape = {1}}}};
    Start([config, latency]() -> Result<std::unique_ptr<Engine>> {
      return SyntheticEngine::Make(config, {LatencyTable::Parse(latency).value(), 0, 1});
    });
    Until([this] { return made_.has_value(); });
  };
  start_with("2000,3000");
  const TimePoint begin = loop_.Clock();
  const std::vector<HttpResponse> answers =
      Ask({First(Infer({1}), "2"), Infer({2}), Infer({3}), Infer({4})});
  EXPECT_GE(loop_.Clock() - begin, std::chrono::microseconds(3000 + 2000 + 2000));
  for (const HttpResponse& answer : answers) EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(Header(answers[1], "divvy-batch-items"), "2");
  const std::string compute = Header(answers[1], "divvy-compute-us");
  EXPECT_GE(std::stoi(compute.substr(compute.find(' '))), 3000) << compute;

  // Nobody waits for it but who asked: not even its end.
  client_.reset();
  worker_.reset();
  made_.reset();
  std::filesystem::remove(directory_ + "/s");
  start_with("3600000000");
  client_->Send(Infer({1}), [](const Result<HttpResponse>&) { ADD_FAILURE() << "an hour?"; });
  const auto other = Client();
  bool alive = false;
  other->Send({.method = "GET", .target = "/v2/health/live", .headers = {}, .body = {}},
              [&](const Result<HttpResponse>& answer) { alive = answer && answer->status == 200; });
  Until([&] { return alive; });
}

TEST_F(WorkerTest, AnswersInJsonAsTheRequestWasAndInBinaryWhereAsked) {
  StartReady();
  const std::vector<HttpResponse> answers = Ask({
      Json(
          R"({"id": "7", "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1.5, 2]}]})"),
      Json(R"({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}],
               "outputs": [{"name": "y", "parameters": {"binary_data": true}}]})"),
      Json(R"({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 9, 2]}],
               "outputs": [{"name": "y", "parameters": {"classification": 1}}]})"),
  });
  EXPECT_EQ(Header(answers[0], "content-type"), "application/json");
  EXPECT_THAT(std::string(answers[0].body.view()), HasSubstr(R"("id":"7")"));
  EXPECT_THAT(Values(answers[0]), ElementsAre(3, 4));
  EXPECT_EQ(Header(answers[1], "content-type"), "application/octet-stream");
  EXPECT_THAT(Values(answers[1]), ElementsAre(2, 4));
  EXPECT_THAT(std::string(answers[2].body.view()), HasSubstr("18.000000:1"));
}

TEST_F(WorkerTest, ABatchRunsOnceAndEachGetsItsOwn) {
  StartReady();
  const std::vector<HttpResponse> answers =
      Ask({First(Infer({1, 2}), "3"), Infer({3, 4, 5, 6}, 2), Infer({7, 8}), Infer({9, 9})});
  EXPECT_THAT(Values(answers[0]), ElementsAre(2, 4));
  EXPECT_THAT(Values(answers[1]), ElementsAre(6, 8, 10, 12));
  EXPECT_THAT(Values(answers[2]), ElementsAre(14, 16));
  EXPECT_THAT(Values(answers[3]), ElementsAre(18, 18));
  EXPECT_THAT(runs(), ElementsAre(4, 1));
  for (const std::size_t i : {0, 1, 2}) {
    EXPECT_EQ(Header(answers[i], "divvy-batch-items"), "4");
    EXPECT_EQ(Header(answers[i], "divvy-compute-us"), Header(answers[0], "divvy-compute-us"));
  }
  EXPECT_EQ(Header(answers[3], "divvy-batch-items"), "1");
  const std::string statistics(Get("/v2/models/m/stats").body.view());
  EXPECT_THAT(statistics, HasSubstr(R"("inference_count":5)"));
  EXPECT_THAT(statistics, HasSubstr(R"("execution_count":2)"));
}

TEST_F(WorkerTest, WhatDoesNotFitTogetherRunsOneAfterTheOther) {
  StartReady();
  const std::vector<HttpResponse> answers =
      Ask({First(Infer({1, 2}), "3"), Infer({3}), Infer({5, 6})});
  EXPECT_THAT(Values(answers[0]), ElementsAre(2, 4));
  EXPECT_THAT(Values(answers[1]), ElementsAre(6));
  EXPECT_THAT(Values(answers[2]), ElementsAre(10, 12));
  EXPECT_THAT(runs(), ElementsAre(2, 1));
}

TEST_F(WorkerTest, AMalformedMemberGetsItsOwnErrorAndTheOthersRun) {
  StartReady();
  HttpQuestion bad_length = Infer({1});
  bad_length.headers.front().second = "9999";
  HttpQuestion zipped = Infer({1});
  zipped.headers.emplace_back("Content-Encoding", "gzip");
  HttpQuestion elsewhere = Infer({1});
  elsewhere.target = "/v2/models/n/infer";
  const struct {
    HttpQuestion question;
    int status;
    const char* says;
  } kCases[] = {
      {Json("{"), 400, "error"},
      {Json(R"({"inputs": []})"), 400, "error"},
      {Infer({1, 2, 3, 4, 5, 6, 7, 8, 9}, 9), 400, "9 items; model 'm' takes 1 to 8"},
      {bad_length, 400, "inference-header-content-length"},
      {zipped, 501, "gzip"},
      {elsewhere, 404, "no model 'n'"},
  };
  for (const auto& test : kCases) {
    diary_.runs.clear();
    const std::vector<HttpResponse> answers =
        Ask({First(Infer({1}), "3"), test.question, Infer({2})});
    EXPECT_THAT(Values(answers[0]), ElementsAre(2));
    EXPECT_EQ(answers[1].status, test.status);
    EXPECT_THAT(std::string(answers[1].body.view()), HasSubstr(test.says));
    EXPECT_THAT(Header(answers[1], "divvy-compute-us"), "0 0 0");
    EXPECT_THAT(Values(answers[2]), ElementsAre(4));
    EXPECT_THAT(runs(), ElementsAre(2));
  }
}

TEST_F(WorkerTest, AFailedRunIsSaidToAllWhoseRunItWas) {
  StartReady();
  const std::vector<HttpResponse> answers =
      Ask({First(Infer({1}), "2"), Infer({-1}), Infer({-2}), Infer({3})});
  EXPECT_EQ(answers[0].status, 500);
  EXPECT_EQ(answers[1].status, 500);
  EXPECT_THAT(std::string(answers[1].body.view()), HasSubstr("out of order"));
  EXPECT_EQ(answers[2].status, 400);
  EXPECT_THAT(Values(answers[3]), ElementsAre(6));
}

TEST_F(WorkerTest, ABrokenHeaderOrABatchThatIsCutShortIsRefused) {
  StartReady();
  for (const char* count : {"0", "-1", "x", "65537", ""}) {
    const HttpResponse answer = Ask({First(Infer({1}), count)}).front();
    EXPECT_EQ(answer.status, 400) << count;
    EXPECT_THAT(std::string(answer.body.view()), HasSubstr("divvy-batch")) << count;
  }
  EXPECT_THAT(runs(), IsEmpty());
  const std::vector<HttpResponse> answers =
      Ask({First(Infer({1}), "3"), Infer({2}), First(Infer({3}), "2"), Infer({4})});
  EXPECT_EQ(answers[0].status, 400);
  EXPECT_THAT(std::string(answers[1].body.view()), HasSubstr("of 3 requests, but after 2 another"));
  EXPECT_THAT(Values(answers[3]), ElementsAre(8));
  EXPECT_THAT(runs(), ElementsAre(2));
}

TEST_F(WorkerTest, BatchesOfTwoConnectionsDoNotMixAndABrokenOneIsDropped) {
  StartReady();
  std::optional<bool> lost;
  const auto other = Client();
  other->Send(First(Infer({100}), "2"), [&](Result<HttpResponse> answer) { lost = !answer; });
  other->Send({.method = "GET", .target = "/v2", .headers = {}, .body = {}},
              [](const Result<HttpResponse>&) {});
  std::vector<HttpResponse> answers = Ask({First(Infer({1}), "2"), Infer({2})});
  EXPECT_THAT(Values(answers[1]), ElementsAre(4));
  other->Close();
  Until([&] { return lost.has_value(); });
  EXPECT_TRUE(*lost);
  answers = Ask({Infer({3})});
  EXPECT_THAT(Values(answers[0]), ElementsAre(6));
  EXPECT_THAT(runs(), ElementsAre(2, 1));
}

TEST_F(WorkerTest, DrainingAnswersWhatRunsAndRefusesWhatIsNotWhole) {
  diary_.held = true;
  StartReady();
  std::optional<Result<HttpResponse>> running;
  std::optional<Result<HttpResponse>> waiting;
  client_->Send(Infer({4}), [&](Result<HttpResponse> answer) { running = std::move(answer); });
  const auto other = Client();
  other->Send(First(Infer({5}), "2"),
              [&](Result<HttpResponse> answer) { waiting = std::move(answer); });
  std::future<void> began = diary_.runs_now.get_future();
  Until([&] { return began.wait_for(std::chrono::seconds(0)) == std::future_status::ready; });
  bool drained = false;
  worker_->Drain([&] { drained = true; });
  EXPECT_FALSE(drained);
  diary_.may_run.set_value();
  Until([&] { return drained && running && waiting; });
  ASSERT_TRUE(*running) << running->error().message;
  EXPECT_THAT(Values(**running), ElementsAre(8));
  // Refused when it had come, not accepted when it had not.
  if (*waiting) {
    EXPECT_EQ((*waiting)->status, 503);
  }
}

}  // namespace
}  // namespace divvy::engine
