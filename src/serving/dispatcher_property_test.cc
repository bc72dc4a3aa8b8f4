// Promises of the dispatcher, held against random histories: requests of all
// kinds, workers that run over, fail, go and come.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "base/random.h"
#include "serving/dispatcher.h"
#include "serving/test_harness.h"

namespace divvy::serving {
namespace {

// Plays a history and checks after every event what must hold always.
class History final : public Executor, public Listener {
 public:
  History(std::uint64_t seed, const std::string& route)
      : random_(seed),
        options_(ParseRoute(route).value()),
        setup_(RandomSetup()),
        dispatcher_(setup_, options_, *this, *this, TimePoint{}) {
    up_.assign(setup_.replicas.size(), true);
  }

  void Play() {
    for (int step = 0; step < 300; ++step) {
      now_ += Ms(random_.Uniform() * 4);
      switch (random_.Below(12)) {
        case 0:
          Toggle();
          break;
        case 1:
          dispatcher_.Expire(now_);
          break;
        case 2:
          EndOne(/*fail=*/true);
          break;
        case 3:
        case 4:
        case 5:
          EndOne(/*fail=*/false);
          break;
        default:
          SubmitOne();
      }
      if (testing::Test::HasFailure()) return;
      CheckWorkConserved();
    }
    while (!running_.empty()) {
      now_ += Ms(1);
      EndOne(false);
    }
    EXPECT_EQ(dispatcher_.waiting(), 0);
    EXPECT_EQ(outcomes_.size(), submitted_.size());
    for (std::size_t i = 0; i < setup_.replicas.size(); ++i) {
      EXPECT_EQ(dispatcher_.board().pending(static_cast<ReplicaId>(i)), 0);
    }
  }

  void Start(LaneId lane, std::span<const Request> batch, int items, Duration expected) override {
    EXPECT_TRUE(running_.try_emplace(lane, std::vector<Request>(batch.begin(), batch.end())).second)
        << "a lane runs one batch at a time";
    const ReplicaSpec& spec =
        setup_.replicas[static_cast<std::size_t>(dispatcher_.replica_of(lane))];
    EXPECT_TRUE(up_[static_cast<std::size_t>(dispatcher_.replica_of(lane))]);
    EXPECT_EQ(expected, setup_.tables[spec.table](items));
    int sum = 0;
    for (const Request& request : batch) {
      sum += request.batch;
      EXPECT_EQ(request.model, spec.model);
      EXPECT_TRUE(waiting_.erase(request.tag)) << "runs twice: " << request.tag;
      if (options_.shed) {
        EXPECT_LE(now_ + expected, request.deadline) << "a batch that is late before it starts";
      }
      if (batch.size() > 1) {
        // Merging made nobody late who would be in time alone.
        const bool alone = now_ + setup_.tables[spec.table](request.batch) <= request.deadline;
        EXPECT_TRUE(!alone || now_ + expected <= request.deadline);
      }
    }
    EXPECT_EQ(sum, items);
    EXPECT_TRUE(options_.merge || batch.size() == 1);
  }

  void Answered(const Request& request, const Service& /*service*/) override { End(request); }
  void Refused(const Request& request, Refusal why, TimePoint now) override {
    if (why == Refusal::kHopeless) {
      EXPECT_TRUE(options_.shed);
      // Other policies may give a request to a lane that is not in time for it.
      if (options_.name != "divvy" || IsCrowded(request.model)) return Forget(request);
      EXPECT_FALSE(AnIdleLaneAnswers(request, now)) << "refused though a lane was idle for it";
    }
    Forget(request);
  }

 private:
  void Forget(const Request& request) {
    waiting_.erase(request.tag);
    End(request);
  }

  Setup RandomSetup() {
    Setup setup;
    setup.models = {"a", "b"};
    for (int table = 0; table < 4; ++table) {
      setup.tables.push_back(Linear(1 + 9 * random_.Uniform(), 2 * random_.Uniform(),
                                    1 + static_cast<int>(random_.Below(12))));
    }
    const auto replicas = 1 + random_.Below(7);
    for (std::uint64_t i = 0; i < replicas; ++i) {
      setup.replicas.push_back({.model = static_cast<ModelId>(random_.Below(2)),
                                .size = 1 + static_cast<int>(random_.Below(3)),
                                .lanes = 1 + static_cast<int>(random_.Below(3)),
                                .table = random_.Below(4)});
    }
    return setup;
  }

  void SubmitOne() {
    const Request request{submitted_.size(),
                          static_cast<ModelId>(random_.Below(2)),
                          1 + static_cast<int>(random_.Below(12)),
                          static_cast<int>(random_.Below(3)),
                          now_,
                          now_ + Ms(random_.Uniform() * 60)};
    submitted_.insert(request.tag);
    waiting_[request.tag] = request;
    dispatcher_.Submit(request, now_);
  }

  void EndOne(bool fail) {
    if (running_.empty()) return;
    auto chosen = running_.begin();
    std::advance(chosen, static_cast<long>(random_.Below(running_.size())));
    const auto [lane, batch] = *chosen;
    running_.erase(chosen);
    if (fail) {
      for (const Request& request : batch) waiting_[request.tag] = request;
      dispatcher_.Failed(lane, now_);
    } else {
      dispatcher_.Finished(lane, now_);
    }
  }

  void Toggle() {
    const auto replica = random_.Below(setup_.replicas.size());
    const auto id = static_cast<ReplicaId>(replica);
    up_[replica] = !up_[replica];
    if (up_[replica]) {
      dispatcher_.SetUp(id, now_);
    } else {
      dispatcher_.SetDown(id, now_);
    }
  }

  void End(const Request& request) {
    EXPECT_TRUE(submitted_.contains(request.tag));
    EXPECT_TRUE(outcomes_.insert(request.tag).second) << "two outcomes for " << request.tag;
  }

  // More waits than all lanes take at once: then some are refused for the others' sake.
  bool IsCrowded(ModelId model) const {
    int waiting = 0;
    for (const auto& [tag, request] : waiting_) {
      if (request.model == model) waiting += request.batch;
    }
    int at_once = 0;
    for (std::size_t i = 0; i < setup_.replicas.size(); ++i) {
      const ReplicaSpec& spec = setup_.replicas[i];
      if (!up_[i] || spec.model != model) continue;
      at_once += spec.lanes * setup_.tables[spec.table].max_batch();
    }
    return options_.merge && waiting > at_once;
  }

  bool LaneIsIdle(std::size_t replica) const {
    const auto first =
        static_cast<std::uint32_t>(dispatcher_.first_lane(static_cast<ReplicaId>(replica)));
    for (int lane = 0; lane < setup_.replicas[replica].lanes; ++lane) {
      if (!running_.contains(static_cast<LaneId>(first + static_cast<std::uint32_t>(lane))))
        return true;
    }
    return false;
  }

  bool AnIdleLaneAnswers(const Request& request, TimePoint now) const {
    for (std::size_t i = 0; i < setup_.replicas.size(); ++i) {
      const ReplicaSpec& spec = setup_.replicas[i];
      const LatencyTable& table = setup_.tables[spec.table];
      const double factor = dispatcher_.board().group_of(static_cast<ReplicaId>(i)).error.factor();
      if (!up_[i] || spec.model != request.model || request.batch > table.max_batch()) continue;
      if (!LaneIsIdle(i)) continue;
      if (now + Ms(Milliseconds(table(request.batch)) * factor) <= request.deadline) return true;
    }
    return false;
  }

  // No request waits that an idle lane answers in time.
  void CheckWorkConserved() {
    if (options_.name != "divvy") return;
    for (const auto& [tag, request] : waiting_) {
      EXPECT_FALSE(AnIdleLaneAnswers(request, now_)) << "request " << tag << " waits for nothing";
    }
  }

  Random random_;
  RouteOptions options_;
  Setup setup_;
  TimePoint now_{};
  std::map<LaneId, std::vector<Request>> running_;
  std::map<std::uint64_t, Request> waiting_;
  std::set<std::uint64_t> submitted_;
  std::set<std::uint64_t> outcomes_;
  std::vector<bool> up_;
  Dispatcher dispatcher_;
};

class DispatcherPropertyTest : public testing::TestWithParam<const char*> {};

TEST_P(DispatcherPropertyTest, EveryRequestHasOneOutcomeAndNoPromiseIsBroken) {
  for (std::uint64_t seed = 0; seed < 300 && !HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << GetParam() << ", seed " << seed);
    History(seed, GetParam()).Play();
  }
}

INSTANTIATE_TEST_SUITE_P(Routes, DispatcherPropertyTest,
                         testing::Values("divvy", "divvy-merge", "elsa", "elsa+merge+shed+learn",
                                         "fifs", "fifs+merge+shed", "shortest-queue+merge",
                                         "weighted+shed"));

}  // namespace
}  // namespace divvy::serving
