#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "serving/dispatcher.h"

// A dispatcher with an executor that does what the test says and a listener that
// remembers. For tests.
namespace divvy::serving {

inline Duration Ms(double ms) { return FromMilliseconds(ms); }
inline TimePoint At(double ms) { return TimePoint(FromMilliseconds(ms)); }

// A table in which a batch of n items takes first + (n - 1) * more milliseconds.
inline LatencyTable Linear(double first, double more, int max_batch) {
  std::vector<Duration> times;
  for (int items = 1; items <= max_batch; ++items) times.push_back(Ms(first + (items - 1) * more));
  return LatencyTable(times);
}

struct Started {
  LaneId lane;
  std::vector<std::uint64_t> tags;
  int items;
  Duration expected;
};

struct Outcome {
  bool answered = false;
  Refusal why{};
  Service service{};
};

class Harness final : public Executor, public Listener {
 public:
  Harness(Setup setup, std::string_view route)
      : setup_(std::move(setup)),
        dispatcher_(setup_, ParseRoute(route).value(), *this, *this, TimePoint{}) {}

  Dispatcher& dispatcher() { return dispatcher_; }

  // Submits a request that arrives at `at_ms` with this much time.
  void Submit(std::uint64_t tag, double at_ms, double slo_ms, int batch = 1, int priority = 0,
              ModelId model = {}) {
    dispatcher_.Submit({tag, model, batch, priority, At(at_ms), At(at_ms + slo_ms)}, At(at_ms));
  }

  void Finish(int lane, double at_ms) {
    dispatcher_.Finished(static_cast<LaneId>(lane), At(at_ms));
  }

  void Start(LaneId lane, std::span<const Request> batch, int items, Duration expected) override {
    Started started{lane, {}, items, expected};
    for (const Request& request : batch) started.tags.push_back(request.tag);
    starts.push_back(started);
  }

  void Answered(const Request& request, const Service& service) override {
    EXPECT_TRUE(outcomes.try_emplace(request.tag, Outcome{true, {}, service}).second)
        << "two outcomes for request " << request.tag;
  }

  void Refused(const Request& request, Refusal why, TimePoint /*now*/) override {
    EXPECT_TRUE(outcomes.try_emplace(request.tag, Outcome{false, why, {}}).second)
        << "two outcomes for request " << request.tag;
  }

  // Why a request was refused; fails the test if it was not.
  Refusal RefusalOf(std::uint64_t tag) const {
    const auto found = outcomes.find(tag);
    EXPECT_TRUE(found != outcomes.end() && !found->second.answered) << "request " << tag;
    return found == outcomes.end() ? Refusal{} : found->second.why;
  }

  std::vector<Started> starts;
  std::map<std::uint64_t, Outcome> outcomes;

 private:
  Setup setup_;
  Dispatcher dispatcher_;
};

// One model on one small replica (10 ms and 8 ms an item) and one large one (6 ms and
// 1 ms an item), at most 8 items. Replica and lane 0 are the small one.
inline Setup SmallAndLarge() {
  return {.models = {"model"},
          .tables = {Linear(10, 8, 8), Linear(6, 1, 8)},
          .replicas = {{.size = 1, .table = 0}, {.size = 7, .table = 1}}};
}

// `count` equal replicas of one model.
inline Setup Equal(int count, int lanes = 1) {
  Setup setup{.models = {"model"}, .tables = {Linear(10, 1, 8)}, .replicas = {}};
  for (int i = 0; i < count; ++i) setup.replicas.push_back({.size = 1, .lanes = lanes, .table = 0});
  return setup;
}

}  // namespace divvy::serving
