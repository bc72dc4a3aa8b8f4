#include "server/router.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "net/http_server.h"
#include "server/test_no_sockets.h"

namespace divvy::server {
namespace {

using std::chrono::milliseconds;

// A worker that answers when the test says so. Runs in the test's own loop.
class FakeWorker {
 public:
  FakeWorker(net::Loop& loop, std::string path)
      : address_(net::Address::Parse("unix:" + path).value()),
        server_(std::make_unique<net::HttpServer>(
            loop, net::HttpLimits{}, streams_,
            [this](net::HttpRequest request, std::unique_ptr<net::HttpReply> reply) {
              asked_.emplace_back(std::string(request.body.view()), std::move(reply));
              const auto batch = net::FindHeader(request.headers, "divvy-batch");
              batches_.push_back(batch ? std::string(*batch) : "");
            })) {
    server_->Serve(net::Listen(address_, 16).value());
  }

  const net::Address& address() const { return address_; }
  std::size_t asked() const { return asked_.size(); }
  const std::vector<std::string>& batches() const { return batches_; }

  // Answers all it was asked with what it was asked.
  void AnswerAll(int status = 200) {
    auto asked = std::exchange(asked_, {});
    for (auto& [body, reply] : asked) {
      net::HttpAnswer answer{.status = status, .headers = {}, .body = {}};
      answer.body.emplace_back("answer to " + body);
      reply->Send(std::move(answer));
    }
  }

  // As if it had been killed.
  void Die() {
    server_.reset();
    asked_.clear();
  }

 private:
  net::Address address_;
  net::PlainStreams streams_;
  std::vector<std::pair<std::string, std::unique_ptr<net::HttpReply>>> asked_;
  std::vector<std::string> batches_;
  std::unique_ptr<net::HttpServer> server_;
};

class RouterTest : public testing::Test {
 protected:
  RouterTest() {
    std::string name = testing::TempDir() + "router-XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~RouterTest() override {
    router_.reset();
    workers_.clear();
    std::filesystem::remove_all(folder_);
  }

  // One model on `replicas` partitions: a batch of n takes n times `each` by the table, up to 4.
  void Make(int replicas, HangLimits hang = {}, Duration each = milliseconds(1)) {
    serving::Setup setup;
    setup.models = {"m"};
    setup.tables.emplace_back(std::vector<Duration>{each, 2 * each, 3 * each, 4 * each});
    std::vector<Metrics::Partition> partitions;
    for (int i = 0; i < replicas; ++i) {
      setup.replicas.push_back({.model = serving::ModelId{0}, .size = 1, .lanes = 1, .table = 0});
      partitions.push_back({"m", std::to_string(i)});
    }
    tally_ = std::make_unique<Tally>(metrics_, setup.models, partitions);
    router_ =
        std::make_unique<Router>(loop_, setup, serving::ParseRoute("divvy").value(), hang, *tally_,
                                 [this](serving::ReplicaId replica, const Error& why) {
                                   broken_.push_back(replica);
                                   ours_ = why.code == ErrorCode::kResourceExhausted;
                                 });
    workers_.resize(static_cast<std::size_t>(replicas));
    for (int i = 0; i < replicas; ++i) Revive(i);
  }

  void Revive(int index) {
    auto& worker = workers_[static_cast<std::size_t>(index)];
    worker = std::make_unique<FakeWorker>(
        loop_, folder_ + "/" + std::to_string(index) + "-" + std::to_string(lives_++));
    router_->BringUp(
        static_cast<serving::ReplicaId>(index),
        std::make_unique<Backend>(loop_, worker->address(), "w", Backend::Kind::kWorker));
  }

  void Ask(const std::string& body, Duration time = std::chrono::seconds(60), int items = 1) {
    Inference inference;
    inference.items = items;
    inference.arrival = loop_.Clock();
    inference.deadline = inference.arrival + time;
    inference.question.target = "/v2/models/m/infer";
    inference.question.body.emplace_back(body);
    inference.done = [this, body](Outcome outcome) {
      if (const auto* answer = std::get_if<Answer>(&outcome)) {
        heard_[body].push_back(std::string(answer->response.body.view()));
      } else {
        heard_[body].push_back(std::string(serving::Describe(std::get<serving::Refusal>(outcome))));
      }
    };
    router_->Infer(std::move(inference));
  }

  template <typename Condition>
  void Until(Condition holds) {
    for (int i = 0; i < 20'000 && !holds(); ++i) loop_.Round(milliseconds(1));
    ASSERT_TRUE(holds());
  }

  std::size_t asked() const {
    std::size_t sum = 0;
    for (const auto& worker : workers_) sum += worker->asked();
    return sum;
  }

  net::Loop loop_;
  std::string folder_;
  Metrics metrics_;
  std::unique_ptr<Tally> tally_;
  std::unique_ptr<Router> router_;
  std::vector<std::unique_ptr<FakeWorker>> workers_;
  std::vector<serving::ReplicaId> broken_;
  bool ours_ = false;  // The last of them, as we were told.
  std::map<std::string, std::vector<std::string>> heard_;
  int lives_ = 0;
};

TEST_F(RouterTest, AnswersGoBackToWhoAsked) {
  Make(2);
  Ask("a");
  Ask("b");
  Until([&] { return asked() == 2; });
  EXPECT_EQ(router_->pending(), 2U);
  for (const auto& worker : workers_) worker->AnswerAll();
  Until([&] { return heard_.size() == 2; });
  EXPECT_EQ(heard_["a"], std::vector<std::string>{"answer to a"});
  EXPECT_EQ(heard_["b"], std::vector<std::string>{"answer to b"});
  EXPECT_EQ(router_->pending(), 0U);
}

TEST_F(RouterTest, RequestsThatWaitedGoTogetherAndSaySo) {
  Make(1);
  Ask("first");
  Until([&] { return asked() == 1; });
  for (const char* body : {"b", "c", "d"}) Ask(body);
  EXPECT_EQ(router_->waiting(), 3);
  workers_[0]->AnswerAll();
  Until([&] { return asked() == 3; });
  workers_[0]->AnswerAll();
  Until([&] { return heard_.size() == 4; });
  EXPECT_EQ(workers_[0]->batches(), (std::vector<std::string>{"", "3", "", ""}));
  EXPECT_EQ(heard_["d"], std::vector<std::string>{"answer to d"});
}

TEST_F(RouterTest, OfQuickBatchesOneIsSentAhead) {
  Make(1, {}, std::chrono::microseconds(40));
  for (const char* body : {"a", "b", "c"}) Ask(body);
  EXPECT_EQ(router_->waiting(), 1);
  Until([&] { return asked() == 2; });
  workers_[0]->AnswerAll();
  Until([&] { return asked() == 1; });
  workers_[0]->AnswerAll();
  Until([&] { return heard_.size() == 3; });
  for (const char* body : {"a", "b", "c"}) {
    EXPECT_EQ(heard_[body], std::vector<std::string>{std::string("answer to ") + body});
  }
}

TEST_F(RouterTest, BothBatchesOfADeadWorkerGoToAnother) {
  Make(2, {}, std::chrono::microseconds(40));
  for (const char* body : {"a", "b", "c", "d"}) Ask(body);
  Until([&] { return asked() == 4; });
  workers_[0]->Die();
  Until([&] { return broken_.size() == 1; });
  for (int i = 0; i < 2; ++i) {
    Until([&] { return workers_[1]->asked() == 2; });
    workers_[1]->AnswerAll();
  }
  Until([&] { return heard_.size() == 4; });
  for (const char* body : {"a", "b", "c", "d"}) {
    EXPECT_EQ(heard_[body], std::vector<std::string>{std::string("answer to ") + body});
  }
}

TEST_F(RouterTest, AWorkersErrorIsItsAnswer) {
  Make(1);
  Ask("a");
  Until([&] { return asked() == 1; });
  workers_[0]->AnswerAll(400);
  Until([&] { return heard_.size() == 1; });
  EXPECT_EQ(heard_["a"], std::vector<std::string>{"answer to a"});
  EXPECT_TRUE(broken_.empty());
}

TEST_F(RouterTest, WhatADeadWorkerRanGoesToAnother) {
  Make(2);
  Ask("a");
  Until([&] { return asked() == 1; });
  const int dead = workers_[0]->asked() == 1 ? 0 : 1;
  workers_[static_cast<std::size_t>(dead)]->Die();
  Until([&] { return workers_[static_cast<std::size_t>(1 - dead)]->asked() == 1; });
  EXPECT_EQ(broken_, std::vector{static_cast<serving::ReplicaId>(dead)});
  EXPECT_FALSE(router_->is_up(static_cast<serving::ReplicaId>(dead)));
  workers_[static_cast<std::size_t>(1 - dead)]->AnswerAll();
  Until([&] { return heard_.size() == 1; });
  EXPECT_EQ(heard_["a"], std::vector<std::string>{"answer to a"});
}

TEST_F(RouterTest, WithoutAnotherItIsRefusedNotForgotten) {
  Make(1);
  Ask("a");
  Until([&] { return asked() == 1; });
  workers_[0]->Die();
  Until([&] { return heard_.size() == 1; });
  EXPECT_EQ(heard_["a"].size(), 1U);
  Ask("b");
  EXPECT_EQ(heard_["b"], std::vector<std::string>{"no replica"});
}

TEST_F(RouterTest, AWorkerThatHangsIsGivenUp) {
  Make(2, {.factor = 1, .least = milliseconds(20)});
  Ask("a");
  Until([&] { return !broken_.empty(); });
  EXPECT_FALSE(router_->is_up(broken_[0]));
  const auto other = static_cast<std::size_t>(1 - static_cast<int>(broken_[0]));
  Until([&] { return workers_[other]->asked() == 1; });
  workers_[other]->AnswerAll();
  Until([&] { return heard_.size() == 1; });
  // The first one wakes up: its answer is nobody's.
  workers_[1 - other]->AnswerAll();
  for (int i = 0; i < 20; ++i) loop_.Round(milliseconds(1));
  EXPECT_EQ(heard_["a"], std::vector<std::string>{"answer to a"});
}

TEST_F(RouterTest, WhatTakesWorkersDownIsNotTriedForEver) {
  Make(4);
  Ask("poison");
  for (int i = 0; i < 3; ++i) {
    Until([&] { return asked() == 1; });
    for (const auto& worker : workers_) {
      if (worker->asked() == 1) worker->Die();
    }
    Until([&] { return broken_.size() == static_cast<std::size_t>(i + 1); });
  }
  Until([&] { return heard_.size() == 1; });
  EXPECT_NE(heard_["poison"].front().find("three workers failed"), std::string::npos);
  EXPECT_EQ(broken_.size(), 3U);
  // The fourth is unharmed.
  Ask("b");
  Until([&] { return asked() == 1; });
  for (const auto& worker : workers_) worker->AnswerAll();
  Until([&] { return heard_.size() == 2; });
}

TEST_F(RouterTest, WhatWeCannotConnectToIsNotBlamed) {
  // One that takes three workers down is given up.
  constexpr int kReplicas = 5;
  Make(kReplicas);
  {
    const NoSockets none;
    Ask("a");
    Until([&] { return heard_["a"].size() == 1; });
  }
  EXPECT_EQ(heard_["a"], std::vector<std::string>{"lost"});
  EXPECT_EQ(broken_.size(), kReplicas);
  EXPECT_TRUE(ours_);
  for (int i = 0; i < kReplicas; ++i) Revive(i);
  Ask("b");
  Until([&] { return asked() == 1; });
  for (const auto& worker : workers_) worker->AnswerAll();
  Until([&] { return !heard_["b"].empty(); });
  EXPECT_EQ(heard_["b"], std::vector<std::string>{"answer to b"});
}

TEST_F(RouterTest, HopelessAndTooLargeAreRefusedAtOnce) {
  Make(1);
  Ask("late", std::chrono::microseconds(1));
  EXPECT_EQ(heard_["late"], std::vector<std::string>{"hopeless"});
  Ask("large", std::chrono::seconds(60), 5);
  EXPECT_EQ(heard_["large"], std::vector<std::string>{"too large"});
}

TEST_F(RouterTest, TimeIsKeptForTheWayToTheClient) {
  Make(1, {}, std::chrono::seconds(10));
  Ask("just", std::chrono::milliseconds(10'001));
  EXPECT_EQ(heard_["just"], std::vector<std::string>{"hopeless"});
  Ask("well", std::chrono::seconds(11));
  EXPECT_EQ(heard_.count("well"), 0U);
}

TEST_F(RouterTest, WhoHearsAnAnswerMayAskAtOnce) {
  Make(1);
  Inference inference;
  inference.arrival = loop_.Clock();
  inference.deadline = inference.arrival + std::chrono::seconds(60);
  inference.question.target = "/v2/models/m/infer";
  inference.question.body.emplace_back("a");
  inference.done = [this](const Outcome&) { Ask("b"); };
  router_->Infer(std::move(inference));
  Until([&] { return asked() == 1; });
  workers_[0]->AnswerAll();
  Until([&] { return asked() == 1; });
  workers_[0]->AnswerAll();
  Until([&] { return heard_.size() == 1; });
}

// With one batch at a worker, with one ahead, and with as many as ever.
class RouterFaultTest : public RouterTest, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Microseconds, RouterFaultTest, testing::Values(1000, 40, 1));

TEST_P(RouterFaultTest, EveryRequestIsAnsweredOnceWhateverDies) {
  Make(3, {}, std::chrono::microseconds(GetParam()));
  std::mt19937_64 random(71);
  int made = 0;
  bool idle = false;
  for (int step = 0; step < 600; ++step) {
    const auto index = static_cast<std::size_t>(random() % 3);
    const auto replica = static_cast<serving::ReplicaId>(index);
    switch (random() % 6) {
      case 0:
      case 1:
      case 2:
        Ask(std::to_string(made++), milliseconds(random() % 50 == 0 ? 0 : 60'000),
            static_cast<int>(random() % 4) + 1);
        break;
      case 3:
        workers_[index]->AnswerAll();
        break;
      case 4:
        if (random() % 8 == 0) workers_[index]->Die();
        if (random() % 8 == 0) router_->TakeDown(replica, random() % 2 == 0);
        break;
      default:
        if (!router_->is_up(replica)) Revive(static_cast<int>(index));
        break;
    }
    loop_.Round(Duration::zero());
  }
  router_->WhenIdle([&] { idle = true; });
  Until([&] {
    for (std::size_t i = 0; i < 3; ++i) {
      workers_[i]->AnswerAll();
      if (!router_->is_up(static_cast<serving::ReplicaId>(i))) Revive(static_cast<int>(i));
    }
    return idle;
  });
  ASSERT_EQ(heard_.size(), static_cast<std::size_t>(made));
  int answered = 0;
  for (const auto& [body, heard] : heard_) {
    ASSERT_EQ(heard.size(), 1U) << body;
    if (heard[0] == "answer to " + body) ++answered;
  }
  EXPECT_GT(answered, made / 2);
}

}  // namespace
}  // namespace divvy::server
