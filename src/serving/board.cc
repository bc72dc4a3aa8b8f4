#include "serving/board.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace divvy::serving {

namespace {

int FairBatch(const LatencyTable& table) {
  const auto yield = [&](int items) { return items / static_cast<double>(table(items).count()); };
  double best = 0;
  for (int items = 1; items <= table.max_batch(); ++items) best = std::max(best, yield(items));
  int fair = 1;
  while (yield(fair) < kFairYield * best) ++fair;
  return fair;
}

}  // namespace

int Group::ItemsWithin(Duration time) const {
  int most = 0;
  int too_many = table->max_batch() + 1;
  while (too_many - most > 1) {
    const int items = (most + too_many) / 2;
    (Estimate(items) <= time ? most : too_many) = items;
  }
  return most;
}

Board::Board(const Setup& setup) : groups_(setup.models.size()), places_(setup.replicas.size()) {
  // By model, then size; the table and the lanes tell equals apart.
  std::map<std::tuple<ModelId, int, std::size_t, int>, std::vector<ReplicaId>> alike;
  for (std::size_t i = 0; i < setup.replicas.size(); ++i) {
    const ReplicaSpec& spec = setup.replicas[i];
    alike[{spec.model, spec.size, spec.table, spec.lanes}].push_back(static_cast<ReplicaId>(i));
  }
  for (const auto& [key, replicas] : alike) {
    const auto& [model, size, table, lanes] = key;
    Group group{.size = size, .lanes = lanes, .table = &setup.tables[table]};
    group.fair_batch = FairBatch(setup.tables[table]);
    group.replicas.reserve(replicas.size());
    group.free_at = Least(replicas.size());
    groups_[static_cast<std::size_t>(model)].push_back(std::move(group));
  }
  std::vector<std::size_t> next(groups_.size());  // By model: the group whose turn it is.
  for (const auto& [key, replicas] : alike) {
    const auto model = static_cast<std::size_t>(std::get<ModelId>(key));
    Group& group = groups_[model][next[model]++];
    for (const ReplicaId replica : replicas) place(replica).group = &group;
  }
}

std::optional<Duration> Board::Fastest(ModelId model, int items) const {
  std::optional<Duration> fastest;
  for (const Group& group : groups(model)) {
    if (!group.takes(items)) continue;
    const Duration typical = group.Typical(items);
    if (!fastest || typical < *fastest) fastest = typical;
  }
  return fastest;
}

Duration Board::Wait(ReplicaId replica, TimePoint now) const {
  const Place& here = place(replica);
  // A batch that runs over its time leaves free_at in the past; the queue behind
  // it has to be run all the same.
  return std::max(here.group->free_at[here.position] - now, here.queued_work / here.group->lanes);
}

void Board::SetUp(ReplicaId replica, TimePoint now) {
  Group& group = group_of(replica);
  const auto place = std::ranges::lower_bound(group.replicas, replica);
  const auto position = static_cast<std::size_t>(place - group.replicas.begin());
  group.replicas.insert(place, replica);
  group.free_at.Insert(position, now);
  Renumber(group, position);
}

void Board::SetDown(ReplicaId replica) {
  Group& group = group_of(replica);
  const std::size_t position = place(replica).position;
  group.replicas.erase(group.replicas.begin() + static_cast<std::ptrdiff_t>(position));
  group.free_at.Erase(position);
  Renumber(group, position);
}

void Board::Renumber(const Group& group, std::size_t from) {
  for (std::size_t i = from; i < group.replicas.size(); ++i) place(group.replicas[i]).position = i;
}

void Board::SetFreeAt(ReplicaId replica, TimePoint free_at) {
  const Place& here = place(replica);
  here.group->free_at.Set(here.position, free_at);
}

void Board::PutIdle(ReplicaId replica, TimePoint now) {
  Place& here = place(replica);
  if (here.idle) return;
  Group& group = *here.group;
  here.idle = true;
  here.idle_since = now;
  here.idle_next = Group::kNobody;
  here.idle_previous = group.idle_tail;
  (group.has_idle() ? place(group.idle_tail).idle_next : group.idle_head) = replica;
  group.idle_tail = replica;
}

void Board::TakeIdle(ReplicaId replica) {
  Place& here = place(replica);
  if (!here.idle) return;
  Group& group = *here.group;
  here.idle = false;
  const ReplicaId next = here.idle_next;
  const ReplicaId previous = here.idle_previous;
  (previous == Group::kNobody ? group.idle_head : place(previous).idle_next) = next;
  (next == Group::kNobody ? group.idle_tail : place(next).idle_previous) = previous;
}

}  // namespace divvy::serving
