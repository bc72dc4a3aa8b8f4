#include "control/controlled_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/check.h"
#include "base/random.h"
#include "control/loop.h"

namespace divvy::control {
namespace {

using planner::Work;
using serving::ReplicaId;

// Which replica a serving cell is.
struct ReplicaKey {
  int gpu;
  std::variant<gpu::MigInstance, Share> where;
  std::size_t tenant;

  friend auto operator<=>(const ReplicaKey&, const ReplicaKey&) = default;
};

// Every replica that could ever be, so that the dispatcher is made once.
class Replicas {
 public:
  Replicas(const Estate& estate, Policy::Sharing sharing) {
    for (const EstateTenant& tenant : estate.tenants) setup_.models.push_back(tenant.name);
    for (std::size_t m = 0; m < estate.tenants.size(); ++m) {
      if (sharing == Policy::Sharing::kMig) {
        AddInstances(estate, m);
      } else {
        AddShares(estate, m);
      }
    }
  }

  const serving::Setup& setup() const { return setup_; }
  ReplicaId Find(const Cell& cell) const {
    const auto found = ids_.find({cell.gpu, cell.where, cell.work.tenant});
    Check(found != ids_.end(), "every serving cell has a replica");
    return found->second;
  }

 private:
  void AddInstances(const Estate& estate, std::size_t m) {
    for (std::size_t k = 0; k < estate.tenants[m].by_profile.size(); ++k) {
      const Offer& offer = estate.tenants[m].by_profile[k];
      if (!offer.table || offer.capacity <= 0) continue;
      const gpu::MigProfile& profile = estate.gpu->profiles[k];
      const std::size_t table = AddTable(*offer.table);
      for (int gpu = 0; gpu < estate.gpus; ++gpu) {
        for (const int start : profile.starts) {
          const gpu::MigInstance place{start, static_cast<gpu::ProfileIndex>(k)};
          Add({gpu, place, m}, offer, profile.sms.value_or(profile.compute_slices), table);
        }
      }
    }
  }

  void AddShares(const Estate& estate, std::size_t m) {
    for (int tenths = 1; tenths <= 10; ++tenths) {
      const Offer& offer = estate.tenants[m].by_tenths[static_cast<std::size_t>(tenths)];
      if (!offer.table || offer.capacity <= 0) continue;
      const std::size_t table = AddTable(*offer.table);
      for (int gpu = 0; gpu < estate.gpus; ++gpu) {
        Add({gpu, Share{tenths}, m}, offer, tenths, table);
      }
    }
  }

  std::size_t AddTable(const serving::LatencyTable& table) {
    setup_.tables.push_back(table);
    return setup_.tables.size() - 1;
  }

  void Add(const ReplicaKey& key, const Offer& offer, int size, std::size_t table) {
    ids_.emplace(key, static_cast<ReplicaId>(setup_.replicas.size()));
    setup_.replicas.push_back({.model = static_cast<serving::ModelId>(key.tenant),
                               .size = size,
                               .lanes = offer.processes,
                               .table = table,
                               .up = false});
  }

  serving::Setup setup_;
  std::map<ReplicaKey, ReplicaId> ids_;
};

class ControlledFleet final : public sim::Operator, public Plant {
 public:
  ControlledFleet(const Estate& estate, Policy& policy, const Replicas& replicas,
                  const RunOptions& options)
      : estate_(estate),
        replicas_(replicas),
        options_(options),
        loop_(estate, policy, *this, [this](const LoopEvent& event) { Hear(event); }) {
    run_.tenants.resize(estate.tenants.size());
  }

  void Tick(TimePoint now, std::span<const sim::SlotCounts> past,
            std::vector<sim::Switch>& switches) override {
    now_ = now;
    switches_ = &switches;
    const int slot = static_cast<int>((now - TimePoint{}) / estate_.slot);
    if (slot > 0) Account(past);
    if (slot >= options_.slots) return;  // Only answers to what came before are still to come.
    std::vector<double> arrivals;
    for (const sim::SlotCounts& counts : past) {
      arrivals.push_back(static_cast<double>(counts.offered));
    }
    loop_.Begin(slot, arrivals);
    BringUp();
    Record();
  }

  // A cell that goes takes no more requests; what it runs is finished. One that comes is
  // brought up when it is ready.
  Result<void> Change(int slot, std::span<const CellState> before,
                      std::span<const Cell> after) override {
    const auto& refuse = options_.refuse_changes;
    if (refuse && slot >= refuse->first && slot < refuse->second) {
      return Fail(ErrorCode::kUnavailable, "the change was refused");
    }
    for (const CellState& state : before) {
      if (state.cell.work.kind != Work::Kind::kServe || state.ready_at >= slot) continue;
      if (std::ranges::find(after, state.cell) != after.end()) continue;
      switches_->push_back({now_, replicas_.Find(state.cell), false});
    }
    return {};
  }

  // The same luck for every policy.
  double Outcome(const Work& work, int window) override {
    Random luck(
        options_.seed * 0x9e3779b97f4a7c15ULL +
        ((static_cast<std::uint64_t>(window) << 32) | (work.tenant << 16) | work.retraining));
    const workload::Learning& learning = *estate_.tenants[work.tenant].learning;
    return std::clamp(
        learning.options[work.retraining].accuracy + learning.uncertainty * luck.Normal(), 0.0,
        1.0);
  }

  ControlledRun Finish(sim::SimResult sim) {
    run_.sim = std::move(sim);
    run_.starts = loop_.starts();
    run_.reconfigurations = loop_.reconfigurations();
    run_.retrained = loop_.retrained();
    run_.gaps = loop_.gaps();
    return std::move(run_);
  }

 private:
  void Hear(const LoopEvent& event) {
    if (event.kind == LoopEvent::Kind::kKept) {
      run_.log.push_back(
          fmt::format("slot {}: the layout stays as it is: {}", event.slot, event.text));
    }
    if (!why_.empty()) why_ += "; ";
    why_ += event.text;
  }

  // What the slot that ended brought. Answers that come after the last slot count in it.
  void Account(std::span<const sim::SlotCounts> past) {
    for (std::size_t m = 0; m < run_.tenants.size(); ++m) {
      TenantSeries& series = run_.tenants[m];
      if (series.offered.size() < series.accuracy.size()) {
        series.offered.push_back(0);
        series.in_time.push_back(0);
      }
      const auto in_time = static_cast<double>(past[m].in_time);
      series.offered.back() += static_cast<double>(past[m].offered);
      series.in_time.back() += in_time;
      run_.goodput += in_time * estate_.Worth(m, series.accuracy.back());
    }
  }

  // Cells that begin to answer in this slot.
  void BringUp() {
    const int slot = loop_.view().slot;
    for (const CellState& state : loop_.view().cells) {
      if (state.cell.work.kind != Work::Kind::kServe) continue;
      if (state.ready_at < slot || state.ready_at >= slot + 1) continue;
      const TimePoint at = TimePoint{} + FromSeconds(state.ready_at * Seconds(estate_.slot));
      switches_->push_back({std::max(at, now_), replicas_.Find(state.cell), true});
    }
  }

  void Record() {
    const View& view = loop_.view();
    const bool same =
        !run_.changes.empty() && std::ranges::equal(view.cells, run_.changes.back().cells, {},
                                                    &CellState::cell, &CellState::cell);
    if (!same) run_.changes.push_back({view.slot, view.cells, why_});
    why_.clear();
    for (std::size_t m = 0; m < run_.tenants.size(); ++m) {
      TenantSeries& series = run_.tenants[m];
      double ready = 0;
      double all = 0;
      for (const CellState& state : view.cells) {
        if (state.cell.work != Work{Work::Kind::kServe, m, 0}) continue;
        const double capacity = OfferAt(estate_, state.cell).capacity;
        ready += capacity * std::clamp(view.slot + 1 - state.ready_at, 0.0, 1.0);
        all += capacity;
      }
      series.capacity.push_back(ready);
      series.accuracy.push_back(view.tenants[m].accuracy);
      // How many will come is not known yet; the last slot is as good a guess as any.
      const double load =
          view.arrivals[m].empty() ? estate_.tenants[m].mean_load : view.arrivals[m].back();
      const double lost = estate_.Worth(m, view.tenants[m].accuracy) *
                          (std::min(load, all) - std::min(load, ready));
      series.lost.push_back(lost);
      run_.lost += lost;
    }
  }

  const Estate& estate_;
  const Replicas& replicas_;
  const RunOptions& options_;
  ControlledRun run_;
  std::string why_;  // What was told in this slot.
  TimePoint now_{};
  std::vector<sim::Switch>* switches_ = nullptr;  // Of the present tick.
  Loop loop_;
};

}  // namespace

ControlledRun RunControlled(const Estate& estate, Policy& policy,
                            std::span<const std::vector<workload::Arrival>> arrivals,
                            const RunOptions& options) {
  const Replicas replicas(estate, policy.sharing());
  ControlledFleet fleet(estate, policy, replicas, options);
  std::vector<sim::Source> sources;
  for (std::size_t m = 0; m < arrivals.size(); ++m) {
    sources.push_back({.model = static_cast<serving::ModelId>(m),
                       .slo = estate.tenants[m].slo,
                       .priority = 0,
                       .arrivals = std::span<const workload::Arrival>(arrivals[m])});
  }
  sim::Options sim_options;
  sim_options.seed = options.seed;
  sim_options.requests = std::numeric_limits<std::uint64_t>::max();
  sim_options.duration = estate.slot * options.slots;
  sim_options.op = &fleet;
  sim_options.slot = estate.slot;
  return fleet.Finish(sim::Simulate(replicas.setup(), options.route, sources, {}, sim_options));
}

}  // namespace divvy::control
