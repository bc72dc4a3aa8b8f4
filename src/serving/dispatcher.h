#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "base/time.h"
#include "serving/board.h"
#include "serving/policy.h"
#include "serving/request.h"
#include "serving/request_queue.h"
#include "serving/setup.h"

namespace divvy::serving {

// Runs batches. The server hands them to worker processes, the simulator to its
// event queue.
class Executor {
 public:
  virtual ~Executor() = default;

  // Begins a batch on a free lane, without waiting for it; when it is done, somebody
  // calls Dispatcher::Finished (or Failed), not from within Start. `batch` is valid
  // during the call only. `expected` is what the table says.
  virtual void Start(LaneId lane, std::span<const Request> batch, int items, Duration expected) = 0;
};

// How a request was served.
struct Service {
  ReplicaId replica{};
  TimePoint started{};
  TimePoint finished{};
  int items = 0;  // Of its whole batch.
};

// Hears what becomes of every request: of each that was submitted, exactly one
// call. May not call the dispatcher.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void Answered(const Request& request, const Service& service) = 0;
  virtual void Refused(const Request& request, Refusal why, TimePoint now) = 0;
};

// The routing core: takes requests, queues them, forms batches, sheds what is
// hopeless. Reads no clock: every call says what time it is, and time never goes
// back. The same object serves in the simulator and in the server.
//
// Order. A queue goes by key: the deadline (or the arrival, where the policy says
// so) plus, for each level of priority, once more the request's own SLO. So among
// requests of one SLO and one queue, one of level p stands behind none that came more
// than p SLOs later. Out of turn go only requests that a lane can answer in time when
// it cannot answer, or not with a fair yield, those before them. With shedding nobody
// waits beyond his deadline: he is refused.
//
// Work conservation. Under the policy `divvy` a lane never rests while a request
// waits that it could answer in time among the first kLookAhead of its queue; under
// the others, while a request waits in its own queue that it may run.
//
// Batches. A batch begins as soon as a lane is free, never waiting to fill up. With
// merging it holds the first request that fits and then, in order, all that fit
// without pushing a member past its deadline. With shedding a lane passes over
// requests that it cannot answer in time but others can; it always passes over
// those that are too large for it.
//
// Overload. Batches of less than kFairYield of the best throughput are run only when
// nothing better can be; requests that could run in no other are refused first. So
// what is answered in time does not collapse as load grows.
//
// Failure. None of the calls fails; what cannot be served is refused. In a steady
// state nothing is allocated.
//
// Threads. One at a time: a server gives each dispatcher, with models of its own,
// to one event loop.
class Dispatcher {
 public:
  static constexpr std::size_t kLookAhead = 64;

  // `setup`'s tables, `executor` and `listener` outlive the dispatcher.
  Dispatcher(const Setup& setup, const RouteOptions& options, Executor& executor,
             Listener& listener, TimePoint now);

  // REQUIRES: a known model, batch > 0, arrival <= now, a deadline within ten years of it,
  // 0 <= priority <= 7.
  void Submit(const Request& request, TimePoint now);

  // The batch on `lane` is done. REQUIRES: it was started.
  // `learn`: how long it took says something of batches like it.
  void Finished(LaneId lane, TimePoint now, bool learn = true);

  // The batch on `lane` is lost. Its requests are routed again where time allows,
  // ahead of later ones since they keep their keys; others are refused.
  void Failed(LaneId lane, TimePoint now);

  // Takes a replica out: what it runs is finished, what it has queued goes
  // elsewhere. Or brings it in.
  void SetDown(ReplicaId replica, TimePoint now);
  void SetUp(ReplicaId replica, TimePoint now);

  // Refuses what waits beyond hope among the first kLookAhead of each queue; a worker
  // that hangs does not call Finished, so a server calls this every few milliseconds.
  // Without shedding it does nothing.
  void Expire(TimePoint now);

  // Lanes are numbered through the replicas.
  LaneId first_lane(ReplicaId replica) const { return of(replica).first_lane; }
  ReplicaId replica_of(LaneId lane) const { return lanes_[static_cast<std::size_t>(lane)].replica; }
  int lanes() const { return static_cast<int>(lanes_.size()); }

  const Board& board() const { return board_; }

  // Requests that wait, over all queues.
  int waiting() const { return waiting_; }

 private:
  struct Lane {
    ReplicaId replica{};
    SlotIndex batch = kNoSlot;  // Requests that run, chained.
    int items = 0;
    TimePoint started{};
    TimePoint expected_end{};
  };
  struct Replica {
    LaneId first_lane{};
    int lanes = 0;
    int idle = 0;
    bool up = false;
    std::size_t queue = 0;
    ModelId model{};
    Group* group = nullptr;
  };
  // What a batch holds while it is formed.
  struct Batch {
    int items = 0;
    TimePoint deadline = TimePoint::max();  // The earliest of members that can still meet theirs.
  };

  // When more items wait than `from`, requests with less time than `least` are in the way.
  struct Crowd {
    std::int64_t from = std::numeric_limits<std::int64_t>::max();
    Duration least{};
  };

  Replica& of(ReplicaId replica) { return replicas_[static_cast<std::size_t>(replica)]; }
  const Replica& of(ReplicaId replica) const {
    return replicas_[static_cast<std::size_t>(replica)];
  }

  void Route(const Request& request, TimePoint key, TimePoint now);
  void Enqueue(std::size_t queue, SlotIndex slot, Duration work);
  void Dequeue(const Replica& replica, SlotIndex slot);
  void RefuseQueued(ReplicaId replica, SlotIndex slot, TimePoint now);
  void StartWhatFits(ReplicaId replica, TimePoint now);
  void UseIdleLanes(ReplicaId replica, TimePoint now);
  void WakeOthers(TimePoint now);
  void OfferToIdle(ModelId model, TimePoint now);
  [[nodiscard]] bool StartBatch(ReplicaId replica, TimePoint now);
  [[nodiscard]] Crowd CrowdAt(const Replica& replica) const;
  void LookAhead(ReplicaId replica, TimePoint now);
  [[nodiscard]] std::size_t FirstToServe(const Replica& replica, TimePoint now) const;
  [[nodiscard]] int Form(ReplicaId replica, TimePoint now);
  void OfferWhatWaits(const Replica& replica, TimePoint now);
  void RefuseAtOnce(const Request& request, TimePoint now);
  [[nodiscard]] bool IsSure(const Replica& replica, const Request& request, TimePoint now) const;
  [[nodiscard]] bool WorthATry(const Group& group, const Request& request, TimePoint now) const;
  [[nodiscard]] bool Admits(const Replica& replica, const Batch& batch, const Request& request,
                            TimePoint now) const;
  [[nodiscard]] bool Hopeless(const Replica& replica, const Request& request, TimePoint now) const;
  [[nodiscard]] Refusal WhyNobody(ModelId model) const;
  void UpdateFreeAt(ReplicaId replica, TimePoint now);
  [[nodiscard]] Duration QueuedWork(const Replica& replica) const;
  [[nodiscard]] TimePoint KeyOf(const Request& request) const;

  RouteOptions options_;
  Executor& executor_;
  Listener& listener_;
  Board board_;
  std::unique_ptr<Policy> policy_;
  bool late_;
  std::vector<Lane> lanes_;
  std::vector<Replica> replicas_;
  std::vector<RequestQueue> queues_;    // One a replica, or one a model.
  std::vector<ReplicaId> queue_users_;  // A replica for each queue that may hold requests, in
                                        // order of their ids.
  RequestPool pool_;
  std::vector<SlotIndex> window_;     // Scratch.
  std::vector<SlotIndex> forming_;    // Scratch.
  std::vector<Request> batch_;        // Scratch, for Executor::Start.
  std::vector<SlotIndex> displaced_;  // Scratch, for SetDown and Failed.
  int waiting_ = 0;
  bool sight_moved_ = false;  // See WakeOthers.
};

}  // namespace divvy::serving
