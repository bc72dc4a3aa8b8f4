#include "serving/policy.h"

#include <array>
#include <limits>
#include <vector>

#include "base/check.h"

namespace divvy::serving {
namespace {

// ELSA (Kim et al., DAC 2022), as published: sizes from small to large, the first
// where the request is in time; if none, where it is done first. Replicas of one
// size are alike, so among them the one with the least wait is asked: the paper
// leaves that order open, and any other packs requests behind one another while
// twins rest.
class Elsa final : public Policy {
 public:
  Binding binding() const override { return Binding::kEarly; }

  std::optional<ReplicaId> Choose(const Board& board, const Request& request,
                                  TimePoint now) override {
    std::optional<ReplicaId> soonest;
    TimePoint soonest_end = TimePoint::max();
    for (const Group& group : board.groups(request.model)) {
      if (!group.takes(request.batch)) continue;
      const ReplicaId replica = group.replicas[group.free_at.Index()];
      const TimePoint end = now + board.Wait(replica, now) + group.Estimate(request.batch);
      if (end < request.deadline) return replica;
      if (end >= soonest_end) continue;
      soonest_end = end;
      soonest = replica;
    }
    return soonest;
  }
};

// First idle, first served: one queue in order of arrival; whichever replica has
// been idle longest takes its head, whatever its size.
class Fifs final : public Policy {
 public:
  Binding binding() const override { return Binding::kLate; }

  std::optional<ReplicaId> Choose(const Board& board, const Request& request,
                                  TimePoint /*now*/) override {
    std::optional<ReplicaId> longest;
    for (const Group& group : board.groups(request.model)) {
      if (!group.has_idle() || !group.takes(request.batch)) continue;
      const ReplicaId first = group.idle_head;
      if (!longest || board.idle_since(first) < board.idle_since(*longest)) longest = first;
    }
    return longest;
  }
};

// The replica with the fewest requests, running ones included; of equals the
// largest, which is done with them first.
class ShortestQueue final : public Policy {
 public:
  Binding binding() const override { return Binding::kEarly; }

  std::optional<ReplicaId> Choose(const Board& board, const Request& request,
                                  TimePoint /*now*/) override {
    std::optional<ReplicaId> shortest;
    int fewest = std::numeric_limits<int>::max();
    for (const Group& group : board.groups(request.model)) {
      if (!group.takes(request.batch)) continue;
      for (const ReplicaId replica : group.replicas) {
        const int pending = board.pending(replica);
        if (pending > fewest) continue;
        fewest = pending;
        shortest = replica;
      }
    }
    return shortest;
  }
};

// Round robin in which a replica's turns are as many as its share of the model's
// throughput, spread evenly: each turn, everybody's credit grows by his weight and
// the richest pays for all.
class Weighted final : public Policy {
 public:
  explicit Weighted(const Setup& setup) : credit_(setup.replicas.size()) {
    for (const ReplicaSpec& spec : setup.replicas) {
      const LatencyTable& table = setup.tables[spec.table];
      weight_.push_back(spec.lanes * table.max_batch() / Seconds(table(table.max_batch())));
    }
  }

  Binding binding() const override { return Binding::kEarly; }

  std::optional<ReplicaId> Choose(const Board& board, const Request& request,
                                  TimePoint /*now*/) override {
    std::optional<std::size_t> richest;
    double all = 0;
    for (const Group& group : board.groups(request.model)) {
      if (!group.takes(request.batch)) continue;
      for (const ReplicaId id : group.replicas) {
        const auto replica = static_cast<std::size_t>(id);
        credit_[replica] += weight_[replica];
        all += weight_[replica];
        if (!richest || credit_[replica] > credit_[*richest]) richest = replica;
      }
    }
    if (!richest) return std::nullopt;
    credit_[*richest] -= all;
    return static_cast<ReplicaId>(*richest);
  }

 private:
  std::vector<double> weight_;  // By replica.
  std::vector<double> credit_;
};

// Ours. Requests wait in one queue a model, by deadline, and are bound to a replica
// only when a lane takes them, so no estimate of a queue can be wrong. A request
// that finds idle lanes takes one of the smallest size that answers in time, which
// keeps the large ones for requests that need them. The dispatcher does the rest:
// a free lane takes the most urgent request that it can answer in time and passes
// over those that only a larger one can; merges what follows as long as nobody in
// the batch is late for it; refuses what nobody can answer in time any more; and
// corrects estimates by what batches took.
class Divvy final : public Policy {
 public:
  Binding binding() const override { return Binding::kLate; }

  std::optional<ReplicaId> Choose(const Board& board, const Request& request,
                                  TimePoint now) override {
    for (const Group& group : board.groups(request.model)) {
      if (!group.has_idle() || !group.takes(request.batch)) continue;
      if (now + group.Estimate(request.batch) > request.deadline) continue;
      return group.idle_head;
    }
    // None is sure to be in time: the one that would be done first may try.
    const Group* fastest = nullptr;
    for (const Group& group : board.groups(request.model)) {
      if (!group.takes(request.batch)) continue;
      const bool faster =
          fastest == nullptr || group.Typical(request.batch) < fastest->Typical(request.batch);
      if (faster) fastest = &group;
    }
    if (fastest == nullptr || !fastest->has_idle()) return std::nullopt;
    return fastest->idle_head;
  }
};

constexpr std::array kPolicies = {
    PolicyName{"divvy", "one queue by deadline; lanes take what they can answer in time, merged"},
    PolicyName{"elsa", "smallest partition with slack, as published"},
    PolicyName{"fifs", "first idle partition, in order of arrival"},
    PolicyName{"shortest-queue", "fewest requests waiting and running"},
    PolicyName{"weighted", "round robin by throughput"},
};

}  // namespace

std::span<const PolicyName> PolicyNames() { return kPolicies; }

std::unique_ptr<Policy> MakePolicy(std::string_view name, const Setup& setup) {
  if (name == "divvy") return std::make_unique<Divvy>();
  if (name == "elsa") return std::make_unique<Elsa>();
  if (name == "fifs") return std::make_unique<Fifs>();
  if (name == "shortest-queue") return std::make_unique<ShortestQueue>();
  Check(name == "weighted", "a policy by one of its names");
  return std::make_unique<Weighted>(setup);
}

}  // namespace divvy::serving
