#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "net/loop.h"
#include "server/backend.h"
#include "server/inference.h"
#include "server/metrics.h"
#include "serving/dispatcher.h"
#include "serving/policy.h"
#include "serving/setup.h"

namespace divvy::server {

// How long beyond its expected time a batch may take before its worker is given up.
struct HangLimits {
  double factor = 10;
  Duration least = std::chrono::seconds(2);
};

// Joins the routing core to the world: the loop's clock, and backends as executors. Every
// inference handed in is answered exactly once. For the loop's thread alone.
//
// A worker runs one batch at a time, and while its answers are on their way it has nothing to do.
// Where batches take no longer than that way it is sent some ahead: its replica has several lanes.
// Elsewhere it would gain little and bind requests to a batch too early.
class Router final : private serving::Executor, private serving::Listener {
 public:
  // `loop` and `tally` outlive it. All replicas, of one lane each in `setup`, begin without a
  // backend, down.
  // `broken` is called for a replica that was taken down because its batch failed or takes far too
  // long; whoever supervises it brings up another. kResourceExhausted: nothing is wrong with it, we
  // could not connect to it; it is to be brought up again later.
  Router(net::Loop& loop, serving::Setup setup, const serving::RouteOptions& route, HangLimits hang,
         Tally& tally, std::function<void(serving::ReplicaId, Error why)> broken);
  ~Router() override;

  // REQUIRES: a model of the setup, items > 0, 0 <= priority <= 7.
  void Infer(Inference inference);

  // The replica takes requests from now on. REQUIRES: it is down.
  void BringUp(serving::ReplicaId replica, std::unique_ptr<Backend> backend);
  // It takes none any more; what it ran is routed again where time allows. `failed`: it ended by
  // itself, perhaps by what it ran. Without effect when down.
  void TakeDown(serving::ReplicaId replica, bool failed);
  // It has a batch.
  [[nodiscard]] bool IsBusy(serving::ReplicaId replica);
  bool is_up(serving::ReplicaId replica) const { return backend(replica) != nullptr; }
  // Replicas of the model that are up.
  int up(serving::ModelId model) const;

  // Inferences not yet answered.
  std::size_t pending() const { return pending_; }
  // Of them, those that wait for a lane.
  int waiting() const { return dispatcher_.waiting(); }
  // Calls `idle` once nothing is pending.
  void WhenIdle(std::function<void()> idle);

 private:
  struct Lane {
    TimePoint started{};
    std::uint64_t order = 0;  // Of its batch among all that were started.
    Duration expected{};
    int items = 0;
    TimePoint hangs_at = TimePoint::max();
    std::vector<net::HttpResponse> responses;  // Of the batch that has just ended.
    std::vector<std::uint64_t> tags;           // Whose they are.
    std::uint64_t batches = 0;
    bool running = false;  // The dispatcher has a batch there.
  };

  void Start(serving::LaneId lane, std::span<const serving::Request> batch, int items,
             Duration expected) override;
  void Answered(const serving::Request& request, const serving::Service& service) override;
  void Refused(const serving::Request& request, serving::Refusal why, TimePoint now) override;

  void Ended(serving::LaneId lane, Result<std::vector<net::HttpResponse>> responses);
  void Drop(serving::ReplicaId replica, bool failed);
  [[nodiscard]] bool IsPoison(std::uint64_t tag) const;
  [[nodiscard]] serving::Request AsAsked(serving::Request request) const;
  // Never goes back, and is never before a request that has come.
  TimePoint Now() { return now_ = std::max({now_, loop_.now(), loop_.Clock()}); }
  void Tick();
  void KeepTicking();
  void Deliver();
  Lane& of(serving::LaneId lane) { return lanes_[static_cast<std::size_t>(lane)]; }
  std::span<Lane> lanes(serving::ReplicaId replica) {
    const auto& spec = setup_.replicas[static_cast<std::size_t>(replica)];
    return {&of(dispatcher_.first_lane(replica)), static_cast<std::size_t>(spec.lanes)};
  }
  std::unique_ptr<Backend>& backend(serving::ReplicaId replica) {
    return backends_[static_cast<std::size_t>(replica)];
  }
  const std::unique_ptr<Backend>& backend(serving::ReplicaId replica) const {
    return backends_[static_cast<std::size_t>(replica)];
  }

  net::Loop& loop_;
  serving::Setup setup_;
  HangLimits hang_;
  Tally& tally_;
  std::function<void(serving::ReplicaId, Error why)> broken_;
  serving::Dispatcher dispatcher_;
  std::vector<std::unique_ptr<Backend>> backends_;  // By replica; null: it is down.
  std::vector<Lane> lanes_;
  std::vector<const net::HttpQuestion*> questions_;  // Scratch.
  // What Answered answers with, while Finished is called.
  Lane* finishing_ = nullptr;
  std::vector<Inference> inferences_;
  std::vector<std::uint32_t> free_;
  std::size_t pending_ = 0;
  std::uint64_t started_ = 0;  // Batches.
  TimePoint now_{};
  // Answers are handed out after the dispatcher has returned: whoever gets one may ask at once.
  std::vector<std::pair<std::function<void(Outcome)>, Outcome>> outcomes_;
  bool delivering_ = false;
  bool ticking_ = false;
  net::Loop::TimerId tick_{};
  std::function<void()> idle_;
};

}  // namespace divvy::server
