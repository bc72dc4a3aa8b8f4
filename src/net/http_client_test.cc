#include "net/http_client.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "net/test_peer.h"

namespace divvy::net {
namespace {

// A server of our own words, one connection at a time.
class HttpClientTest : public testing::Test {
 protected:
  HttpClientTest() : address_(Address::Parse("unix:" + folder_.File("s")).value()) {
    const Result<int> fd = Listen(address_, 4);
    EXPECT_TRUE(fd);
    listening_ = fd.value_or(-1);
  }
  ~HttpClientTest() override {
    if (accepted_ >= 0) close(accepted_);
    close(listening_);
  }
  HttpClientTest(const HttpClientTest&) = delete;
  HttpClientTest& operator=(const HttpClientTest&) = delete;

  void Ask(HttpClient& client, std::string method = "GET") {
    client.Send({.method = std::move(method), .target = "/", .headers = {}, .body = {}},
                [this](Result<HttpResponse> response) { log_.push_back(Describe(response)); });
  }
  static std::string Describe(const Result<HttpResponse>& response) {
    if (!response) return fmt::format("error {}", static_cast<int>(response.error().code));
    return fmt::format("{} {}", response->status, response->body.view());
  }
  void Accept() {
    RunUntil(loop_, [this] {
      accepted_ = accept(listening_, nullptr, nullptr);
      return accepted_ >= 0;
    });
  }
  void Answer(std::string_view text) {
    ASSERT_EQ(send(accepted_, text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  void HangUp() {
    // With what was asked unread, closing would be a reset.
    char bytes[4096];
    RunUntil(loop_, [&] { return recv(accepted_, bytes, sizeof bytes, MSG_DONTWAIT) > 0; });
    close(std::exchange(accepted_, -1));
  }
  void WaitFor(std::size_t answers) {
    RunUntil(loop_, [this, answers] { return log_.size() >= answers; });
  }

  TempFolder folder_;
  Loop loop_;
  PlainStreams streams_;
  Address address_;
  int listening_ = -1;
  int accepted_ = -1;
  std::vector<std::string> log_;
};

TEST_F(HttpClientTest, ReadsAllKindsOfAnswers) {
  HttpClient client(loop_, address_, "h", streams_, 10);
  Ask(client);
  Ask(client, "HEAD");
  Ask(client);
  Ask(client);
  Ask(client);
  Accept();
  Answer(
      "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab"
      "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"
      "HTTP/1.1 204 No Content\r\n\r\n"
      "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n2\r\ncd\r\n0\r\n\r\n"
      "HTTP/1.1 200 OK\r\n\r\nto the end");
  WaitFor(4);
  HangUp();
  WaitFor(5);
  EXPECT_EQ(log_, (std::vector<std::string>{"200 ab", "200 ", "204 ", "404 cd", "200 to the end"}));
  EXPECT_FALSE(client.connected());
}

TEST_F(HttpClientTest, FailuresReachAllThatWaitOnceAndTheNextConnectsAnew) {
  const std::pair<std::string_view, std::string> cases[] = {
      {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na", "error 5"},
      {"", "error 5"},
      {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\na", "200 a"},
      {"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n", "error 0"},
      {"SSH-2.0\r\n", "error 5"},
      {"SSH-2.0\r\n\r\n", "error 0"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", "error 0"},
  };
  HttpClient client(loop_, address_, "h", streams_, 10);
  for (const auto& [answer, expected] : cases) {
    log_.clear();
    Ask(client);
    Ask(client);
    Accept();
    Answer(answer);
    HangUp();
    WaitFor(2);
    EXPECT_EQ(log_[0], expected) << answer;
    EXPECT_EQ(log_[1], expected.starts_with("error") ? expected : "error 5") << answer;
    EXPECT_EQ(client.pending(), 0U);
  }
}

TEST_F(HttpClientTest, CallbacksMayDoAnythingAndNoneComesFromWithin) {
  auto client = std::make_unique<HttpClient>(loop_, address_, "h", streams_);
  Ask(*client);
  Accept();
  client->Close();
  EXPECT_TRUE(log_.empty()) << "not from within Close";
  EXPECT_EQ(client->pending(), 1U);
  WaitFor(1);
  close(std::exchange(accepted_, -1));

  client->Send({.method = "GET", .target = "/", .headers = {}, .body = {}},
               [this, &client](Result<HttpResponse> response) {
                 log_.push_back(Describe(response));
                 client.reset();
               });
  Ask(*client);  // Is never told.
  Accept();
  Answer(
      "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nb");
  WaitFor(2);
  loop_.Round(Duration::zero());
  EXPECT_EQ(log_, (std::vector<std::string>{"error 5", "200 a"}));
}

TEST_F(HttpClientTest, NobodyThereIsAnErrorForTheCaller) {
  HttpClient client(loop_, Address::Parse("unix:" + folder_.File("nobody")).value(), "h", streams_);
  Ask(client);
  EXPECT_TRUE(log_.empty()) << "not from within Send";
  WaitFor(1);
  EXPECT_EQ(log_[0], "error 5");
}

}  // namespace
}  // namespace divvy::net
