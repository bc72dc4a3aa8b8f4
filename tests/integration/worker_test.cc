// divvy-worker as the router runs it.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <optional>

#include "base/check.h"
#include "kserve/http_infer.h"
#include "net/address.h"
#include "net/http_client.h"
#include "net/loop.h"
#include "net/stream.h"
#include "program.h"

namespace divvy::test {
namespace {

using net::HttpQuestion;
using net::HttpResponse;
using ::testing::HasSubstr;

class WorkerProgramTest : public ::testing::Test {
 protected:
  WorkerProgramTest() {
    char pattern[] = "/tmp/divvy-worker-XXXXXX";
    Check(mkdtemp(pattern) != nullptr, "a directory for the socket");
    directory_ = pattern;
  }
  ~WorkerProgramTest() override { std::filesystem::remove_all(directory_); }

  std::vector<std::string> Command(const std::vector<std::string>& more) const {
    std::vector<std::string> words = {DIVVY_WORKER_PATH, "--listen", Socket(), "--model", "m"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::vector<std::string> Synthetic(const std::vector<std::string>& more) const {
    std::vector<std::string> words = Command({"--engine", "synthetic", "--input", "x:FP32:2",
                                              "--output", "y:FP32:2", "--max-batch", "4"});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::string Socket() const { return "unix:" + directory_ + "/s"; }
  std::unique_ptr<net::HttpClient> Client() {
    return std::make_unique<net::HttpClient>(loop_, net::Address::Parse(Socket()).value(), "worker",
                                             streams_);
  }
  template <typename Condition>
  void Until(Condition holds) {
    while (!holds()) loop_.Round(std::chrono::seconds(10));
  }
  int Get(net::HttpClient& client, const std::string& target) {
    std::optional<int> status;
    client.Send({.method = "GET", .target = target, .headers = {}, .body = {}},
                [&](Result<HttpResponse> answer) { status = answer ? answer->status : 0; });
    Until([&] { return status.has_value(); });
    return *status;
  }

  // One item of `values`, in binary.
  static HttpQuestion Infer(const std::string& input, kserve::Shape shape,
                            const std::vector<float>& values) {
    const std::string bytes(reinterpret_cast<const char*>(values.data()), values.size() * 4);
    kserve::InferRequest request;
    request.inputs = {{.name = input, .shape = std::move(shape), .bytes = bytes}};
    const kserve::HttpMessage message = kserve::EncodeHttpRequest(request);
    return {.target = "/v2/models/m/infer",
            .headers = {{"Inference-Header-Content-Length", std::to_string(message.head.size())}},
            .body = {net::Slice(message.head), net::Slice(bytes)}};
  }

  std::string directory_;
  net::Loop loop_;
  net::PlainStreams streams_;
};

TEST_F(WorkerProgramTest, SaysWhatItIsAndWhatItCannotDo) {
  const Finished help = RunProgram({DIVVY_WORKER_PATH, "--help"}, {});
  EXPECT_EQ(help.exit_status, 0);
  EXPECT_THAT(help.out, HasSubstr("--latency-us"));
  const Finished described = RunProgram(Synthetic({"--describe"}), {});
  EXPECT_EQ(described.exit_status, 0) << described.err;
  EXPECT_THAT(described.out, HasSubstr("divvy_synthetic"));
  const Finished slip = RunProgram(Synthetic({"--max-bach", "3"}), {});
  EXPECT_EQ(slip.exit_status, 2);
  EXPECT_THAT(slip.err, HasSubstr("did you mean '--max-batch'?"));
  const Finished nowhere = RunProgram(Command({"--engine", "/nowhere.so"}), {});
  EXPECT_EQ(nowhere.exit_status, 1);
  EXPECT_THAT(nowhere.err, HasSubstr("/nowhere.so"));
}

TEST_F(WorkerProgramTest, OnSigtermAnswersWhatRunsAndExitsWithZero) {
  RunningProgram worker(Synthetic({"--latency-us", "300000"}), {});
  ASSERT_TRUE(worker.AwaitOutput("ready"));
  const auto asking = Client();
  const auto watching = Client();
  EXPECT_EQ(Get(*asking, "/v2/health/ready"), 200);
  EXPECT_EQ(Get(*watching, "/v2/health/ready"), 200);
  std::optional<Result<HttpResponse>> answer;
  asking->Send(Infer("x", {1, 2}, {1, 2}),
               [&](Result<HttpResponse> response) { answer = std::move(response); });
  // Sent after it: when this is answered the worker has the other one.
  EXPECT_EQ(Get(*watching, "/v2/health/live"), 200);
  EXPECT_FALSE(answer);
  worker.Signal(SIGTERM);
  Until([&] { return answer.has_value(); });
  ASSERT_TRUE(*answer) << answer->error().message;
  EXPECT_EQ((*answer)->status, 200) << (*answer)->body.view();
  const Finished finished = worker.Wait();
  EXPECT_EQ(finished.exit_status, 0) << finished.err;
}

TEST_F(WorkerProgramTest, GoesWhenWhoeverStartedItHasGone) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  ASSERT_EQ(fcntl(ends[0], F_SETFD, 0), 0);
  RunningProgram worker(Synthetic({"--parent-fd", std::to_string(ends[0])}), {});
  ASSERT_TRUE(worker.AwaitOutput("ready"));
  close(ends[1]);
  EXPECT_EQ(worker.Wait().exit_status, 0);
  close(ends[0]);
}

#ifdef TORCH_ENGINE_PATH
TEST_F(WorkerProgramTest, TorchModelsAnswerTheSameAloneAndInABatch) {
  const std::string model = directory_ + "/mlp.pt";
  ASSERT_EQ(RunProgram({MAKE_TORCHSCRIPT_PATH, model, "mlp"}, {}).exit_status, 0);
  // What libtorch keeps until the end is not ours to free.
  RunningProgram worker(
      Command({"--engine", TORCH_ENGINE_PATH, "--artifact", model, "--input", "x:FP32:64",
               "--output", "y:FP32:10", "--max-batch", "4", "--threads", "1"}),
      {{"ASAN_OPTIONS", "detect_leaks=0"}});
  ASSERT_TRUE(worker.AwaitOutput("ready")) << worker.Wait().err;
  const auto client = Client();
  std::vector<std::vector<float>> answers;
  const auto ask = [&](float value, const char* batch) {
    HttpQuestion question = Infer("x", {1, 64}, std::vector<float>(64, value));
    if (batch != nullptr) question.headers.emplace_back("divvy-batch", batch);
    client->Send(std::move(question), [&](Result<HttpResponse> answer) {
      ASSERT_TRUE(answer) << answer.error().message;
      ASSERT_EQ(answer->status, 200) << answer->body.view();
      std::vector<float> values(10);
      const std::string_view body = answer->body.view();
      ASSERT_GE(body.size(), 40U);
      std::memcpy(values.data(), body.data() + body.size() - 40, 40);
      answers.push_back(std::move(values));
    });
  };
  ask(1, nullptr);
  ask(-1, nullptr);
  ask(1, "2");
  ask(-1, nullptr);
  Until([&] { return answers.size() == 4 || HasFailure(); });
  ASSERT_EQ(answers.size(), 4U);
  for (std::size_t i = 0; i < 10; ++i) {
    EXPECT_NEAR(answers[0][i], answers[2][i], 1e-5);
    EXPECT_NEAR(answers[1][i], answers[3][i], 1e-5);
  }
  float sum = 0;
  for (const float value : answers[0]) sum += value;
  EXPECT_NEAR(sum, 1, 1e-5);  // The model ends in a softmax.
  EXPECT_NE(answers[0], answers[1]);
  worker.Signal(SIGTERM);
  EXPECT_EQ(worker.Wait().exit_status, 0);

  const Finished wrong =
      RunProgram(Command({"--engine", TORCH_ENGINE_PATH, "--artifact", model, "--input",
                          "x:FP32:64", "--input", "z:FP32:1", "--describe"}),
                 {{"ASAN_OPTIONS", "detect_leaks=0"}});
  EXPECT_EQ(wrong.exit_status, 1);
  EXPECT_THAT(wrong.err, HasSubstr("forward takes 1 inputs, but 2 are declared"));
}

TEST_F(WorkerProgramTest, TorchSaysWhatFailsAndTakesItsOptions) {
  const std::string model = directory_ + "/mlp.pt";
  ASSERT_EQ(RunProgram({MAKE_TORCHSCRIPT_PATH, model, "mlp"}, {}).exit_status, 0);
  const auto describe = [&](const char* input, const char* option) {
    return RunProgram(Command({"--engine", TORCH_ENGINE_PATH, "--artifact", model, "--input", input,
                               "--option", option, "--describe"}),
                      {{"ASAN_OPTIONS", "detect_leaks=0"}});
  };
  for (const char* option : {"fusion=on", "fusion=off"}) {
    EXPECT_EQ(describe("x:FP32:64", option).exit_status, 0) << option;
  }
  EXPECT_THAT(describe("x:FP32:64", "fusion=perhaps").err, HasSubstr("fusion"));
  EXPECT_THAT(describe("x:FP32:63", "fusion=off").err, HasSubstr("63"));
}
#endif

}  // namespace
}  // namespace divvy::test
