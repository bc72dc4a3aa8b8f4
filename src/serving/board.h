#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "base/time.h"
#include "serving/estimate_error.h"
#include "serving/least.h"
#include "serving/request.h"
#include "serving/setup.h"

namespace divvy::serving {

// A batch is worth running when it answers at least this share of the items a second
// that the best batch does. With less, bursts of small requests end in collapse; with
// 1, a lane would wait for batches that never fill.
inline constexpr double kFairYield = 0.9;

// Replicas of one model that are alike: same size, same latencies, same lanes. Of those
// that are down it knows nothing, so that a decision costs the same however many are.
struct Group {
  static constexpr ReplicaId kNobody{0xffffffff};

  int size = 0;
  int lanes = 1;
  const LatencyTable* table = nullptr;
  int fair_batch = 1;                    // The fewest items that make a batch of kFairYield.
  std::vector<ReplicaId> replicas = {};  // That are up, in order of their ids.
  Least free_at{0};                      // By position in `replicas`: when its queue would be
                                         // done, by estimate.
  ReplicaId idle_head = kNobody;         // Of those with a free lane, who has waited longest
  ReplicaId idle_tail = kNobody;         // and who shortest.
  EstimateError error = {};

  bool takes(int items) const { return !replicas.empty() && items <= table->max_batch(); }
  bool has_idle() const { return idle_head != kNobody; }

  // What a batch takes, by what has been learned so far: at most (but for one in twenty), and
  // typically. Promises go by the former; a request is without hope when the latter is too long.
  // REQUIRES: takes(items).
  Duration Estimate(int items) const { return error.AtMost((*table)(items)); }
  Duration Typical(int items) const { return error.Typically((*table)(items)); }

  // The most items whose batch is expected to take no longer than `time`; 0 if none.
  int ItemsWithin(Duration time) const;
};

// What policies see of the replicas: groups from small to large per model, their
// queues and idle lanes. Written by the Dispatcher alone. Not thread-safe.
class Board {
 public:
  explicit Board(const Setup& setup);

  std::span<Group> groups(ModelId model) { return groups_[static_cast<std::size_t>(model)]; }
  std::span<const Group> groups(ModelId model) const {
    return groups_[static_cast<std::size_t>(model)];
  }

  Group& group_of(ReplicaId replica) { return *place(replica).group; }
  const Group& group_of(ReplicaId replica) const { return *place(replica).group; }

  // Requests that wait or run at a replica.
  int pending(ReplicaId replica) const { return place(replica).pending; }

  // Since when its lanes have been waiting. REQUIRES: it is in its group's idle list.
  TimePoint idle_since(ReplicaId replica) const { return place(replica).idle_since; }

  // The shortest time in which any replica that is up typically answers so many items; nothing when
  // none takes them.
  [[nodiscard]] std::optional<Duration> Fastest(ModelId model, int items) const;

  // The wait until a replica begins what is queued now: no less than its queue.
  // REQUIRES: it is up.
  [[nodiscard]] Duration Wait(ReplicaId replica, TimePoint now) const;

  // REQUIRES: it is down.
  void SetUp(ReplicaId replica, TimePoint now);

  // REQUIRES: it is up.
  void SetDown(ReplicaId replica);

  // REQUIRES: it is up.
  void SetFreeAt(ReplicaId replica, TimePoint free_at);
  void SetQueuedWork(ReplicaId replica, Duration work) { place(replica).queued_work = work; }
  void AddPending(ReplicaId replica, int requests) { place(replica).pending += requests; }

  // Puts a replica at the end of its group's idle list, or takes it out. Either
  // twice in a row changes nothing.
  void PutIdle(ReplicaId replica, TimePoint now);
  void TakeIdle(ReplicaId replica);

 private:
  struct Place {
    Group* group = nullptr;
    std::size_t position = 0;  // In Group::replicas, while it is up.
    int pending = 0;
    Duration queued_work{};
    bool idle = false;
    TimePoint idle_since{};
    ReplicaId idle_next = Group::kNobody;
    ReplicaId idle_previous = Group::kNobody;
  };

  void Renumber(const Group& group, std::size_t from);

  Place& place(ReplicaId replica) { return places_[static_cast<std::size_t>(replica)]; }
  const Place& place(ReplicaId replica) const { return places_[static_cast<std::size_t>(replica)]; }

  std::vector<std::vector<Group>> groups_;  // By model; fixed after construction.
  std::vector<Place> places_;               // By replica.
};

}  // namespace divvy::serving
