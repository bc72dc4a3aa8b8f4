#include "server/worker_process.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "net/http_server.h"
#include "net/test_peer.h"
#include "server/test_no_sockets.h"

namespace divvy::server {
namespace {

using testing::HasSubstr;

// Somebody else's server, which can come, go and change.
class UrlTest : public testing::Test {
 protected:
  UrlTest() : log_(file_) {
    spec_.name = "0";
    spec_.model = "m";
    spec_.url = "http://elsewhere:1";
    spec_.check = std::chrono::milliseconds(1);
    spec_.address = net::Address::Parse("unix:" + folder_.File("s")).value();
  }
  ~UrlTest() override {
    worker_.reset();
    server_.reset();
    std::fclose(file_);
    std::free(text_);
  }

  void Begin() {
    worker_ = std::make_unique<WorkerProcess>(
        loop_, spec_, log_,
        WorkerProcess::Events{.up =
                                  [this](std::unique_ptr<Backend>, kserve::ModelMetadata metadata) {
                                    happened_.push_back(
                                        fmt::format("up {}", metadata.inputs.at(0).name));
                                  },
                              .down = [this] { happened_.emplace_back("down"); },
                              .restarted = {}});
    worker_->Start();
  }

  void Come() {
    server_ = std::make_unique<net::HttpServer>(
        loop_, net::HttpLimits(), streams_,
        [this](const net::HttpRequest& request, std::unique_ptr<net::HttpReply> reply) {
          ++asked_;
          net::HttpAnswer answer;
          if (request.target == "/v2/models/m/ready") {
            answer.status = ready_ ? 200 : 400;
          } else if (request.target == "/v2/models/m") {
            answer.body.emplace_back(fmt::format(
                R"({{"name":"m","platform":"p","inputs":[{{"name":"{}","datatype":"FP32","shape":[1]}}],"outputs":[]}})",
                input_));
          } else {
            answer.status = 404;
          }
          reply->Send(std::move(answer));
        });
    server_->Serve(net::Listen(*spec_.address, 8).value());
  }

  void Until(std::vector<std::string> happened) {
    net::RunUntil(loop_, [&] { return happened_.size() >= happened.size(); });
    EXPECT_EQ(happened_, happened);
  }
  // A few looks, none of which may change anything.
  void Looks() {
    const int before = asked_;
    net::RunUntil(loop_, [&] { return asked_ > before + 10; });
  }
  int Said(std::string_view what) {
    int count = 0;
    const std::string text(text_, size_);
    for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
      ++count;
    }
    return count;
  }

  net::TempFolder folder_;
  net::Loop loop_;
  net::PlainStreams streams_;
  char* text_ = nullptr;
  std::size_t size_ = 0;
  std::FILE* file_ = open_memstream(&text_, &size_);
  Log log_;
  WorkerSpec spec_;
  std::unique_ptr<net::HttpServer> server_;
  std::unique_ptr<WorkerProcess> worker_;
  std::vector<std::string> happened_;
  std::string input_ = "x";
  bool ready_ = true;
  int asked_ = 0;
};

TEST_F(UrlTest, OneThatIsDownAtTheStartIsNamedOnceAndNoticedWhenItComes) {
  Begin();
  const TimePoint later = loop_.Clock() + std::chrono::milliseconds(20);
  net::RunUntil(loop_, [&] { return loop_.Clock() > later; });
  EXPECT_EQ(Said("server is down"), 1);
  EXPECT_EQ(Said("url=http://elsewhere:1"), 1);
  Come();
  Until({"up x"});
  Looks();
  EXPECT_EQ(happened_.size(), 1U);
}

TEST_F(UrlTest, OneThatIsNotReadyIsDownUntilItIs) {
  Come();
  Begin();
  Until({"up x"});
  ready_ = false;
  Until({"up x", "down"});
  EXPECT_EQ(Said("server went down"), 1);
  EXPECT_EQ(Said("it answers 400"), 1);
  ready_ = true;
  Until({"up x", "down", "up x"});
}

TEST_F(UrlTest, OneThatGoesIsDownAndAnotherInItsPlaceIsTakenAsItIs) {
  Come();
  Begin();
  Until({"up x"});
  server_.reset();
  Until({"up x", "down"});
  input_ = "y";
  Come();
  Until({"up x", "down", "up y"});
  // And when nobody saw it go.
  input_ = "z";
  Until({"up x", "down", "up y", "down", "up z"});
  EXPECT_EQ(Said("server has become another"), 1);
}

TEST_F(UrlTest, OneThatWeCannotReachForWantOfDescriptorsIsNotCalledDown) {
  Come();
  {
    const NoSockets none;
    Begin();
    net::RunUntil(loop_, [&] { return Said("no connection to a worker can be made") > 0; });
    // A second try is no second line.
    const TimePoint later = loop_.Clock() + std::chrono::milliseconds(150);
    net::RunUntil(loop_, [&] { return loop_.Clock() > later; });
  }
  Until({"up x"});
  EXPECT_EQ(Said("no connection to a worker can be made"), 1);
  EXPECT_EQ(Said("is down"), 0);
  // The next time it is told again.
  worker_->ReachAgain("no descriptors");
  Until({"up x", "up x"});
  EXPECT_EQ(Said("no connection to a worker can be made"), 2);
}

TEST_F(UrlTest, AConnectionThatClosesIsNoReason) {
  Come();
  Begin();
  Until({"up x"});
  for (int i = 0; i < 5; ++i) {
    // The socket's file is replaced: only connections that stood are lost.
    Come();
    Looks();
  }
  EXPECT_EQ(happened_.size(), 1U);
}

}  // namespace
}  // namespace divvy::server
