#include "serving/dispatcher.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace divvy::serving {

std::string_view Describe(Refusal refusal) {
  switch (refusal) {
    case Refusal::kTooLarge:
      return "too large";
    case Refusal::kNoReplica:
      return "no replica";
    case Refusal::kHopeless:
      return "hopeless";
    case Refusal::kLost:
      return "lost";
  }
  return "";
}

Dispatcher::Dispatcher(const Setup& setup, const RouteOptions& options, Executor& executor,
                       Listener& listener, TimePoint now)
    : options_(options),
      executor_(executor),
      listener_(listener),
      board_(setup),
      policy_(MakePolicy(options.name, setup)),
      late_(policy_->binding() == Policy::Binding::kLate),
      queues_(late_ ? setup.models.size() : setup.replicas.size()) {
  int most = 1;
  queue_users_.reserve(queues_.size());
  for (std::size_t i = 0; i < setup.replicas.size(); ++i) {
    const ReplicaSpec& spec = setup.replicas[i];
    const auto id = static_cast<ReplicaId>(i);
    const auto first = static_cast<LaneId>(lanes_.size());
    lanes_.insert(lanes_.end(), static_cast<std::size_t>(spec.lanes), Lane{.replica = id});
    replicas_.push_back({.first_lane = first,
                         .lanes = spec.lanes,
                         .idle = spec.lanes,
                         .up = false,
                         .queue = late_ ? static_cast<std::size_t>(spec.model) : i,
                         .model = spec.model,
                         .group = &board_.group_of(id)});
    if (late_ && std::ranges::none_of(queue_users_, [&](ReplicaId user) {
          return of(user).queue == replicas_.back().queue;
        })) {
      queue_users_.push_back(id);
    }
    most = std::max(most, setup.tables[spec.table].max_batch());
    if (spec.up) SetUp(id, now);
  }
  window_.reserve(kLookAhead);
  forming_.reserve(static_cast<std::size_t>(most));
  batch_.reserve(static_cast<std::size_t>(most));
}

void Dispatcher::Submit(const Request& request, TimePoint now) {
  Route(request, KeyOf(request), now);
  WakeOthers(now);
}

TimePoint Dispatcher::KeyOf(const Request& request) const {
  const TimePoint base = options_.by_deadline ? request.deadline : request.arrival;
  return base + request.priority * (request.deadline - request.arrival);
}

void Dispatcher::Route(const Request& request, TimePoint key, TimePoint now) {
  const auto fastest = board_.Fastest(request.model, request.batch);
  if (!fastest) return listener_.Refused(request, WhyNobody(request.model), now);
  if (options_.shed && now + *fastest > request.deadline) return RefuseAtOnce(request, now);
  const auto choice = policy_->Choose(board_, request, now);
  if (late_) {
    Enqueue(static_cast<std::size_t>(request.model), pool_.Take(request, key), Duration(0));
    if (choice) StartWhatFits(*choice, now);
    // A policy that does not look at the time may choose a lane that passes over it.
    if (options_.shed && !options_.by_deadline) OfferToIdle(request.model, now);
    return;
  }
  Check(choice.has_value(), "a policy finds a replica where one takes the request");
  const Group& group = board_.group_of(*choice);
  const TimePoint begin = now + board_.Wait(*choice, now);
  if (options_.shed && begin + group.Typical(request.batch) > request.deadline) {
    return RefuseAtOnce(request, now);
  }
  Enqueue(of(*choice).queue, pool_.Take(request, key), (*group.table)(request.batch));
  board_.AddPending(*choice, 1);
  StartWhatFits(*choice, now);
  UpdateFreeAt(*choice, now);
}

// Refuses a request that has just come as hopeless.
void Dispatcher::RefuseAtOnce(const Request& request, TimePoint now) {
  for (Group& group : board_.groups(request.model)) {
    const bool by_profile =
        group.takes(request.batch) && now + (*group.table)(request.batch) <= request.deadline;
    if (options_.learn && by_profile) group.error.Doubt();
  }
  listener_.Refused(request, Refusal::kHopeless, now);
}

Refusal Dispatcher::WhyNobody(ModelId model) const {
  const auto groups = board_.groups(model);
  const bool any =
      std::ranges::any_of(groups, [](const Group& group) { return !group.replicas.empty(); });
  return any ? Refusal::kTooLarge : Refusal::kNoReplica;
}

void Dispatcher::Enqueue(std::size_t queue, SlotIndex slot, Duration work) {
  queues_[queue].Insert(pool_, slot, work);
  ++waiting_;
}

// Takes a request out of the queue of a replica (or of its model).
void Dispatcher::Dequeue(const Replica& replica, SlotIndex slot) {
  const int batch = pool_[slot].request.batch;
  RequestQueue& queue = queues_[replica.queue];
  if (late_ && static_cast<std::size_t>(queue.size()) > kLookAhead) sight_moved_ = true;
  queue.Remove(pool_, slot, late_ ? Duration(0) : (*replica.group->table)(batch));
  --waiting_;
}

// Refuses a request that waits in the queue of `id` (or of its model) as hopeless.
void Dispatcher::RefuseQueued(ReplicaId id, SlotIndex slot, TimePoint now) {
  Dequeue(of(id), slot);
  if (!late_) board_.AddPending(id, -1);
  listener_.Refused(pool_[slot].request, Refusal::kHopeless, now);
  pool_.Give(slot);
}

bool Dispatcher::Hopeless(const Replica& replica, const Request& request, TimePoint now) const {
  if (!late_) return now + replica.group->Typical(request.batch) > request.deadline;
  const auto fastest = board_.Fastest(request.model, request.batch);
  return !fastest || now + *fastest > request.deadline;
}

// True when a lane of `replica` that takes `request` now, alone, answers it in time, one in twenty
// aside.
bool Dispatcher::IsSure(const Replica& replica, const Request& request, TimePoint now) const {
  const Group& group = *replica.group;
  return group.takes(request.batch) && now + group.Estimate(request.batch) <= request.deadline;
}

// True when nobody is sure to answer `request` in time, but `group` typically would, and as soon as
// anybody. Refused, it would be late for sure; and only batches that run teach what they take.
bool Dispatcher::WorthATry(const Group& group, const Request& request, TimePoint now) const {
  const Duration left = request.deadline - now;
  const Duration typical = group.Typical(request.batch);
  if (typical > left) return false;
  if (!late_) return true;
  return std::ranges::all_of(board_.groups(request.model), [&](const Group& other) {
    return !other.takes(request.batch) ||
           (other.Estimate(request.batch) > left && other.Typical(request.batch) >= typical);
  });
}

// True when `request` may join `batch` on a lane of `replica` that starts now.
bool Dispatcher::Admits(const Replica& replica, const Batch& batch, const Request& request,
                        TimePoint now) const {
  const Group& group = *replica.group;
  const int items = batch.items + request.batch;
  if (items > group.table->max_batch()) return false;
  const TimePoint end = now + group.Estimate(items);
  if (batch.items == 0) {
    return !options_.shed || end <= request.deadline || WorthATry(group, request, now);
  }
  if (end > batch.deadline) return false;
  if (end <= request.deadline) return true;
  // Where nothing is shed, one that is late anyway may come along.
  return !options_.shed && now + group.Typical(request.batch) > request.deadline;
}

// When more waits than all lanes take at once, not all can be answered, and those
// that have no time for a batch of fair yield go first: else lanes would spend their
// time on the oldest, in small batches, while the rest grows old.
Dispatcher::Crowd Dispatcher::CrowdAt(const Replica& replica) const {
  if (!options_.merge || !options_.shed) return {};
  Crowd crowd{.from = 0, .least = Duration::max()};
  for (const Group& group : late_ ? board_.groups(replica.model) : std::span(replica.group, 1)) {
    if (group.replicas.empty()) continue;
    const auto sharing = late_ ? static_cast<std::int64_t>(group.replicas.size()) : 1;
    crowd.from += sharing * group.lanes * group.table->max_batch();
    crowd.least = std::min(crowd.least, group.Estimate(group.fair_batch));
  }
  return crowd;
}

// Puts what a lane of `id` may look at into window_, refusing what is beyond hope.
void Dispatcher::LookAhead(ReplicaId id, TimePoint now) {
  const Replica& replica = of(id);
  window_.clear();
  const Crowd crowd = CrowdAt(replica);
  const RequestQueue& queue = queues_[replica.queue];
  SlotIndex slot = queue.head();
  while (slot != kNoSlot && window_.size() < kLookAhead) {
    const Request& request = pool_[slot].request;
    const SlotIndex next = pool_[slot].next;
    const bool in_the_way = queue.items() > crowd.from && now + crowd.least > request.deadline;
    if (options_.shed && (in_the_way || Hopeless(replica, request, now))) {
      RefuseQueued(id, slot, now);
    } else {
      window_.push_back(slot);
      const bool enough =
          options_.shed ? IsSure(replica, request, now) : Admits(replica, {}, request, now);
      if (!options_.merge && enough) return;
    }
    slot = next;
  }
}

// Where in window_ the batch of a lane of `replica` begins; its size for nowhere.
//
// Most urgent first, as long as that pays. In a burst the most urgent request has
// little time left, and a batch that must be done by then is small; if every lane
// ran such batches, a queue of small requests would be served one by one, slower than
// it grows, and all would be late. So a request is passed over that would cut the
// lane's throughput below kFairYield of what later ones allow. And what is only worth a try comes
// after all that is sure: else the sure ones would wait until they are not.
std::size_t Dispatcher::FirstToServe(const Replica& replica, TimePoint now) const {
  const auto sure = [&](SlotIndex slot) { return IsSure(replica, pool_[slot].request, now); };
  const bool any_sure = options_.shed && std::ranges::any_of(window_, sure);
  const auto fits = [&](SlotIndex slot) {
    return any_sure ? sure(slot) : Admits(replica, {}, pool_[slot].request, now);
  };
  const auto first =
      static_cast<std::size_t>(std::ranges::find_if(window_, fits) - window_.begin());
  if (!options_.merge || !options_.shed) return first;

  const Group& group = *replica.group;
  const auto yield = [&](int items) {
    return items / static_cast<double>(group.Estimate(items).count());
  };
  std::int64_t items = 0;  // In the window, from the request that we look at on.
  TimePoint latest = now;
  for (const SlotIndex slot : window_) {
    items += pool_[slot].request.batch;
    latest = std::max(latest, pool_[slot].request.deadline);
  }
  const auto most = std::min<std::int64_t>(items, group.table->max_batch());
  const auto allowed = std::min<std::int64_t>(most, group.ItemsWithin(latest - now));
  const double wanted = allowed < 1 ? 0 : kFairYield * yield(static_cast<int>(allowed));

  for (std::size_t i = 0; i < window_.size(); ++i) {
    const Request& request = pool_[window_[i]].request;
    if (fits(window_[i])) {
      const auto within =
          std::clamp<std::int64_t>(group.ItemsWithin(request.deadline - now), request.batch, items);
      if (yield(static_cast<int>(within)) >= wanted) return i;
    }
    items -= request.batch;
  }
  return first;
}

// Chooses the next batch for `replica` into forming_; its items, 0 for none.
int Dispatcher::Form(ReplicaId id, TimePoint now) {
  const Replica& replica = of(id);
  const Group& group = *replica.group;
  forming_.clear();
  LookAhead(id, now);
  Batch batch;
  for (std::size_t i = FirstToServe(replica, now); i < window_.size(); ++i) {
    const Request& request = pool_[window_[i]].request;
    if (!Admits(replica, batch, request, now)) continue;
    forming_.push_back(window_[i]);
    batch.items += request.batch;
    if (options_.shed || now + group.Typical(batch.items) <= request.deadline) {
      batch.deadline = std::min(batch.deadline, request.deadline);
    }
    if (!options_.merge || batch.items == group.table->max_batch()) break;
    if (now + group.Estimate(batch.items + 1) > batch.deadline) break;
  }
  return batch.items;
}

bool Dispatcher::StartBatch(ReplicaId id, TimePoint now) {
  const int items = Form(id, now);
  if (items == 0) return false;
  Replica& replica = of(id);
  auto lane_id = static_cast<std::size_t>(replica.first_lane);
  while (lanes_[lane_id].batch != kNoSlot) ++lane_id;
  Lane& lane = lanes_[lane_id];

  batch_.clear();
  for (const SlotIndex slot : forming_) {
    Dequeue(replica, slot);
    pool_[slot].next = lane.batch;
    lane.batch = slot;
    batch_.push_back(pool_[slot].request);
  }
  const Group& group = *replica.group;
  lane.items = items;
  lane.started = now;
  lane.expected_end = now + group.Estimate(items);
  if (late_) board_.AddPending(id, static_cast<int>(forming_.size()));
  if (--replica.idle == 0) board_.TakeIdle(id);
  executor_.Start(static_cast<LaneId>(lane_id), batch_, items, (*group.table)(items));
  return true;
}

void Dispatcher::StartWhatFits(ReplicaId id, TimePoint now) {
  while (of(id).idle > 0 && StartBatch(id, now)) {
  }
}

// After a lane of `id` became free, or the replica came up.
void Dispatcher::UseIdleLanes(ReplicaId id, TimePoint now) {
  const Replica& replica = of(id);
  if (!replica.up && late_) return;
  StartWhatFits(id, now);
  if (late_ && replica.idle > 0) board_.PutIdle(id, now);
  if (!late_ && replica.up) UpdateFreeAt(id, now);
}

void Dispatcher::Finished(LaneId id, TimePoint now, bool learn) {
  Lane& lane = lanes_[static_cast<std::size_t>(id)];
  Check(lane.batch != kNoSlot, "a lane finishes what it started");
  const Service service{lane.replica, lane.started, now, lane.items};
  Replica& replica = of(lane.replica);
  if (options_.learn && learn) {
    replica.group->error.Learn((*replica.group->table)(lane.items), now - lane.started);
  }
  int served = 0;
  for (SlotIndex slot = lane.batch; slot != kNoSlot; ++served) {
    listener_.Answered(pool_[slot].request, service);
    const SlotIndex next = pool_[slot].next;
    pool_.Give(slot);
    slot = next;
  }
  board_.AddPending(lane.replica, -served);
  lane.batch = kNoSlot;
  ++replica.idle;
  UseIdleLanes(lane.replica, now);
  OfferWhatWaits(replica, now);
  WakeOthers(now);
}

// Whether a request is worth a try depends on the time and on what others have learned, so what one
// lane leaves, idle lanes of other groups may take by now.
void Dispatcher::OfferWhatWaits(const Replica& replica, TimePoint now) {
  if (late_ && options_.shed && options_.learn && !queues_[replica.queue].empty()) {
    OfferToIdle(replica.model, now);
  }
}

// Requests left a queue that is longer than a lane looks ahead: those that were beyond
// an idle lane's sight may have come into it. Rare, since somebody must rest while a
// long queue waits for somebody else.
void Dispatcher::WakeOthers(TimePoint now) {
  while (std::exchange(sight_moved_, false)) {
    for (const ReplicaId user : queue_users_) OfferToIdle(of(user).model, now);
  }
}

// Every idle lane of the model takes what it can.
void Dispatcher::OfferToIdle(ModelId model, TimePoint now) {
  for (const Group& group : board_.groups(model)) {
    while (group.has_idle()) {
      const ReplicaId replica = group.idle_head;
      StartWhatFits(replica, now);
      // The others of the group are alike: what this one leaves, they would leave too.
      if (of(replica).idle > 0) break;
    }
  }
}

void Dispatcher::Failed(LaneId id, TimePoint now) {
  Lane& lane = lanes_[static_cast<std::size_t>(id)];
  Check(lane.batch != kNoSlot, "a lane fails at what it started");
  displaced_.clear();
  for (SlotIndex slot = lane.batch; slot != kNoSlot; slot = pool_[slot].next) {
    displaced_.push_back(slot);
  }
  board_.AddPending(lane.replica, -static_cast<int>(displaced_.size()));
  lane.batch = kNoSlot;
  ++of(lane.replica).idle;
  if (!late_ && of(lane.replica).up) UpdateFreeAt(lane.replica, now);
  for (const SlotIndex slot : displaced_) {
    const auto [request, key, next, previous] = pool_[slot];
    pool_.Give(slot);
    const auto fastest = board_.Fastest(request.model, request.batch);
    if (fastest && now + *fastest <= request.deadline) {
      Route(request, key, now);
    } else {
      listener_.Refused(request, Refusal::kLost, now);
    }
  }
  UseIdleLanes(lane.replica, now);
  OfferWhatWaits(of(lane.replica), now);
  WakeOthers(now);
}

void Dispatcher::SetUp(ReplicaId id, TimePoint now) {
  Replica& replica = of(id);
  if (replica.up) return;
  replica.up = true;
  board_.SetUp(id, now);
  if (!late_) queue_users_.insert(std::ranges::lower_bound(queue_users_, id), id);
  UseIdleLanes(id, now);
  WakeOthers(now);
}

void Dispatcher::SetDown(ReplicaId id, TimePoint now) {
  Replica& replica = of(id);
  if (!replica.up) return;
  replica.up = false;
  board_.SetDown(id);
  board_.TakeIdle(id);
  if (!late_) queue_users_.erase(std::ranges::lower_bound(queue_users_, id));

  // What the replica had queued finds another; of a queue that all share, only
  // what nobody takes any more must go.
  displaced_.clear();
  const RequestQueue& queue = queues_[replica.queue];
  for (SlotIndex slot = queue.head(); slot != kNoSlot; slot = pool_[slot].next) {
    const Request& request = pool_[slot].request;
    if (!late_ || !board_.Fastest(request.model, request.batch)) displaced_.push_back(slot);
  }
  for (const SlotIndex slot : displaced_) Dequeue(replica, slot);
  if (!late_) board_.AddPending(id, -static_cast<int>(displaced_.size()));
  for (const SlotIndex slot : displaced_) {
    const auto [request, key, next, previous] = pool_[slot];
    pool_.Give(slot);
    Route(request, key, now);
  }
  OfferWhatWaits(replica, now);
  WakeOthers(now);
}

void Dispatcher::Expire(TimePoint now) {
  if (!options_.shed) return;
  for (const ReplicaId id : queue_users_) {
    const Replica& replica = of(id);
    const RequestQueue& queue = queues_[replica.queue];
    const int before = queue.size();
    SlotIndex slot = queue.head();
    for (std::size_t looked = 0; slot != kNoSlot && looked < kLookAhead; ++looked) {
      const SlotIndex next = pool_[slot].next;
      if (Hopeless(replica, pool_[slot].request, now)) RefuseQueued(id, slot, now);
      slot = next;
    }
    if (queue.size() != before && !late_) UpdateFreeAt(id, now);
    OfferWhatWaits(replica, now);
  }
  WakeOthers(now);
}

// What is queued at a replica, in the time of one lane.
Duration Dispatcher::QueuedWork(const Replica& replica) const {
  const RequestQueue& queue = queues_[replica.queue];
  const Group& group = *replica.group;
  if (!options_.merge) return group.error.AtMost(queue.work());
  const int most = group.table->max_batch();
  const auto rest = static_cast<int>(queue.items() % most);
  const Duration full = queue.items() / most * group.Estimate(most);
  return rest == 0 ? full : full + group.Estimate(rest);
}

void Dispatcher::UpdateFreeAt(ReplicaId id, TimePoint now) {
  const Replica& replica = of(id);
  if (replica.idle > 0) {
    board_.SetQueuedWork(id, Duration(0));
    board_.SetFreeAt(id, now);
    return;
  }
  // What is queued is shared by the lanes; its first begins when the first lane is free.
  const Duration queued = QueuedWork(replica);
  Duration first_free = Duration::max();
  const auto first = static_cast<std::size_t>(replica.first_lane);
  for (std::size_t i = first; i < first + static_cast<std::size_t>(replica.lanes); ++i) {
    first_free = std::min(first_free, std::max(Duration(0), lanes_[i].expected_end - now));
  }
  board_.SetQueuedWork(id, queued);
  board_.SetFreeAt(id, now + first_free + queued / replica.lanes);
}

}  // namespace divvy::serving
