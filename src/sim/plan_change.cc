#include "sim/plan_change.h"

#include <algorithm>
#include <optional>

#include "base/check.h"

namespace divvy::sim {
namespace {

using serving::LatencyTable;
using serving::ReplicaId;
using serving::ReplicaSpec;

bool Equal(const LatencyTable& a, const LatencyTable& b) {
  if (a.max_batch() != b.max_batch()) return false;
  for (int items = 1; items <= a.max_batch(); ++items) {
    if (a(items) != b(items)) return false;
  }
  return true;
}

// A replica of a stage, where its plan has it.
struct Planned {
  const PlanStage* stage;
  std::size_t replica;

  const ReplicaSpec& spec() const { return stage->planned->setup.replicas[replica]; }
  const serving::ReplicaPlace& place() const { return stage->planned->places[replica]; }
  const plan::PlannedGpu& gpu() const { return stage->plan->gpus[place().gpu]; }
  const plan::PlannedInstance& instance() const { return gpu().instances[place().instance]; }
  const LatencyTable& table() const { return stage->planned->setup.tables[spec().table]; }
};

// The same but, perhaps, for where on the GPU the instance begins.
bool Alike(const Planned& a, const Planned& b) {
  return a.gpu().gpu == b.gpu().gpu && a.gpu().kind == b.gpu().kind &&
         a.instance().profile == b.instance().profile && a.spec().model == b.spec().model &&
         a.spec().lanes == b.spec().lanes && Equal(a.table(), b.table());
}

class Stager {
 public:
  Stager(std::span<const PlanStage> stages, Duration cost) : stages_(stages), cost_(cost) {
    staged_.setup.models = stages.front().planned->setup.models;
  }

  StagedSetup Run() {
    const std::size_t first = stages_.front().planned->setup.replicas.size();
    for (std::size_t i = 0; i < first; ++i) present_.push_back(Add(0, i, std::nullopt));
    for (std::size_t i = 1; i < stages_.size(); ++i) {
      Check(i == 1 || stages_[i - 1].from <= stages_[i].from, "stages are in order of time");
      TurnTo(i);
    }
    for (const Standing& here : present_) {
      staged_.origins[static_cast<std::size_t>(here.id)].in_last = true;
      if (here.comes) staged_.switches.push_back({*here.comes, here.id, true});
    }
    std::ranges::sort(staged_.switches, [](const Switch& a, const Switch& b) {
      return a.at != b.at ? a.at < b.at : a.replica < b.replica;
    });
    return std::move(staged_);
  }

 private:
  // A replica of the stage that is being left.
  struct Standing {
    Planned planned;
    ReplicaId id;
    std::optional<TimePoint> comes;  // When it takes requests, if not from the start.
  };

  Standing Add(std::size_t stage, std::size_t replica, std::optional<TimePoint> comes) {
    const Planned planned{&stages_[stage], replica};
    ReplicaSpec spec = planned.spec();
    spec.table = TableFor(planned);
    spec.up = !comes.has_value();
    const auto id = static_cast<ReplicaId>(staged_.setup.replicas.size());
    staged_.setup.replicas.push_back(spec);
    staged_.origins.push_back({.stage = stage, .replica = replica});
    return {planned, id, comes};
  }

  // One table for equal ones, so that policies see replicas of two plans as alike.
  std::size_t TableFor(const Planned& planned) {
    const double spread = planned.stage->planned->spread[planned.spec().table];
    for (std::size_t i = 0; i < staged_.setup.tables.size(); ++i) {
      if (staged_.spread[i] == spread && Equal(staged_.setup.tables[i], planned.table())) return i;
    }
    staged_.setup.tables.push_back(planned.table());
    staged_.spread.push_back(spread);
    return staged_.setup.tables.size() - 1;
  }

  void TurnTo(std::size_t stage) {
    const TimePoint at = stages_[stage].from;
    const std::size_t count = stages_[stage].planned->setup.replicas.size();
    std::vector<std::optional<Standing>> next(count);
    // Those that say where they are first, or one that does not care takes their place.
    for (const bool anywhere : {false, true}) {
      for (std::size_t i = 0; i < count; ++i) {
        if (!next[i]) next[i] = TakePresent({&stages_[stage], i}, anywhere);
      }
    }
    for (const Standing& gone : present_) {
      // One that has not come up yet never will: its switch was not written.
      if (gone.comes && *gone.comes >= at) continue;
      if (gone.comes) staged_.switches.push_back({*gone.comes, gone.id, true});
      staged_.switches.push_back({at, gone.id, false});
    }
    present_.clear();
    for (std::size_t i = 0; i < count; ++i) {
      present_.push_back(next[i] ? *next[i] : Add(stage, i, at + cost_));
    }
  }

  // The replica that is there already and goes on as `wanted`.
  std::optional<Standing> TakePresent(const Planned& wanted, bool anywhere) {
    const auto found = std::ranges::find_if(present_, [&](const Standing& here) {
      const bool same_place = wanted.instance().start == here.planned.instance().start;
      const bool open = anywhere && !wanted.instance().start;
      return (same_place || open) && Alike(wanted, here.planned);
    });
    if (found == present_.end()) return std::nullopt;
    const Standing standing = *found;
    present_.erase(found);
    return standing;
  }

  std::span<const PlanStage> stages_;
  Duration cost_;
  std::vector<Standing> present_;
  StagedSetup staged_;
};

}  // namespace

StagedSetup Stage(std::span<const PlanStage> stages, const ChangeCost& cost) {
  Check(!stages.empty(), "there is a plan to begin with");
  return Stager(stages, cost.total()).Run();
}

}  // namespace divvy::sim
