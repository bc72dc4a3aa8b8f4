#include "control/ekya_thief.h"

#include <algorithm>

namespace divvy::control {
namespace {

using planner::Work;

constexpr int kRecentSlots = 20;

// A job as a thief sees it: a number of tenths in a split.
struct Job {
  enum class Kind { kServing, kRetraining, kIdle };
  Kind kind;
  std::size_t tenant = 0;

  int& TenthsIn(Split& split) const {
    if (kind == Kind::kServing) return split.serving[tenant];
    if (kind == Kind::kRetraining) return split.retraining[tenant];
    return split.idle;
  }
};

std::vector<Job> JobsOf(const Estate& estate, const View& view) {
  std::vector<Job> jobs;
  for (std::size_t m = 0; m < estate.tenants.size(); ++m) {
    jobs.push_back({Job::Kind::kServing, m});
    if (MayRetrain(estate, view, m)) jobs.push_back({Job::Kind::kRetraining, m});
  }
  jobs.push_back({Job::Kind::kIdle});
  return jobs;
}

}  // namespace

EkyaEstimate::EkyaEstimate(const Estate& estate, const View& view)
    : estate_(estate),
      view_(view),
      restart_(view.slot == 0 && view.cells.empty() ? 0 : estate.restart) {
  const std::vector<double> one(static_cast<std::size_t>(view.WindowLeft(estate)), 1.0);
  for (std::size_t m = 0; m < estate.tenants.size(); ++m) {
    rates_.push_back(RecentRate(estate, view, m, kRecentSlots));
    ahead_.emplace_back(estate, view, m, one);
    std::vector<double>& table = table_.emplace_back();
    for (int serving = 0; serving <= kTenths * estate.gpus; ++serving) {
      for (int retraining = 0; retraining <= kTenths; ++retraining) {
        table.push_back(Compute(m, serving, retraining));
      }
    }
  }
}

std::optional<BestRetraining> EkyaEstimate::Retraining(std::size_t tenant, int tenths) const {
  if (tenths <= 0 || !MayRetrain(estate_, view_, tenant)) return std::nullopt;
  const CellState* running = FindRetraining(view_, tenant);
  const int gpu = running == nullptr ? 0 : running->cell.gpu;
  return BestOption(estate_, view_, ahead_[tenant],
                    {gpu, Share{tenths}, {Work::Kind::kRetrain, tenant, 0}});
}

double EkyaEstimate::Goodput(std::size_t tenant, const Serving& serving,
                             const std::optional<BestRetraining>& retraining) const {
  const WorthAhead& ahead = ahead_[tenant];
  const double rate = rates_[tenant];
  const int slots = ahead.slots();
  const double at_first = std::min(rate, serving.at_first);
  const double later = std::min(rate, serving.later);
  const double starting = std::min<double>(restart_, slots);
  const double lost = starting * (later - at_first) * ahead.At(0);
  if (!retraining) return later * ahead.Present(0, slots) - lost;
  // Taking over the retraining's tenths is another restart, if it is worth one.
  const double after = ahead.Retrained(retraining->option, retraining->end, slots);
  const double in_the_end = std::min(rate, serving.in_the_end);
  const double each = after / (slots - retraining->end);
  const double grown = in_the_end * after - estate_.restart * later * each;
  return later * ahead.Present(0, retraining->end) - lost + std::max(later * after, grown);
}

double EkyaEstimate::Compute(std::size_t tenant, int serving, int retraining) const {
  const EstateTenant& who = estate_.tenants[tenant];
  const int present = ServingTenths(view_, tenant);
  Serving served;
  served.later = PackedCapacity(who, serving);
  served.in_the_end = PackedCapacity(who, std::min(serving + retraining, kTenths * estate_.gpus));
  // Of a service that changes, whole GPUs that it has before and after go on.
  const int kept = std::min(serving, present) / kTenths * kTenths;
  served.at_first = serving == present ? served.later : PackedCapacity(who, kept);
  return Goodput(tenant, served, Retraining(tenant, retraining));
}

double EkyaEstimate::Cells(std::span<const Cell> cells) const {
  double sum = 0;
  for (std::size_t m = 0; m < estate_.tenants.size(); ++m) {
    Serving served;
    std::optional<BestRetraining> retraining;
    for (const Cell& cell : cells) {
      if (cell.work != Work{Work::Kind::kServe, m, 0}) continue;
      const double capacity = OfferAt(estate_, cell).capacity;
      const bool stays =
          std::ranges::find(view_.cells, cell, &CellState::cell) != view_.cells.end();
      served.at_first += stays ? capacity : 0;
      served.later += capacity;
    }
    served.in_the_end = served.later;
    for (const Cell& cell : cells) {
      if (cell.work.kind != Work::Kind::kRetrain || cell.work.tenant != m) continue;
      const auto end = SlotsToRetrain(estate_, view_, cell);
      if (!end || *end >= ahead_[m].slots()) continue;
      retraining = {cell.work.retraining, *end, 0};
      served.in_the_end += TakenOver(cells, cell);
    }
    sum += Goodput(m, served, retraining);
  }
  return sum;
}

double EkyaEstimate::TakenOver(std::span<const Cell> cells, const Cell& retraining) const {
  const EstateTenant& who = estate_.tenants[retraining.work.tenant];
  int piece = 0;
  for (const Cell& cell : cells) {
    const bool beside = cell.gpu == retraining.gpu;
    if (beside && cell.work == Work{Work::Kind::kServe, retraining.work.tenant, 0}) {
      piece += std::get<Share>(cell.where).tenths;
    }
  }
  const int grown = piece + std::get<Share>(retraining.where).tenths;
  return std::max(0.0, PackedCapacity(who, grown) - PackedCapacity(who, piece));
}

Split FairSplit(const Estate& estate, const View& view) {
  std::vector<Job> jobs = JobsOf(estate, view);
  jobs.pop_back();
  Split split{std::vector<int>(estate.tenants.size()), std::vector<int>(estate.tenants.size()), 0};
  for (int left = kTenths * estate.gpus; left > 0;) {
    for (const Job& job : jobs) {
      int& tenths = job.TenthsIn(split);
      if (left == 0 || (job.kind == Job::Kind::kRetraining && tenths == kTenths)) continue;
      ++tenths;
      --left;
    }
  }
  return split;
}

Split PresentSplit(const Estate& estate, const View& view) {
  Split split{{}, std::vector<int>(estate.tenants.size()), kTenths * estate.gpus};
  for (std::size_t m = 0; m < estate.tenants.size(); ++m) {
    split.serving.push_back(ServingTenths(view, m));
    if (const CellState* running = FindRetraining(view, m)) {
      split.retraining[m] = std::get<Share>(running->cell.where).tenths;
    }
    split.idle -= split.serving[m] + split.retraining[m];
  }
  return split;
}

double Estimate(const EkyaEstimate& estimate, const Split& split) {
  double sum = 0;
  for (std::size_t m = 0; m < split.serving.size(); ++m) {
    sum += estimate.Tenant(m, split.serving[m], split.retraining[m]);
  }
  return sum;
}

Split Steal(const Estate& estate, const View& view, const EkyaEstimate& estimate, Split split) {
  const std::vector<Job> jobs = JobsOf(estate, view);
  double best = Estimate(estimate, split);
  // Gains below rounding would let jobs steal from each other for ever.
  const double enough = 1e-9 * (1 + best);
  const auto steal = [&](const Job& thief, const Job& victim) {
    const int room = thief.kind == Job::Kind::kRetraining ? kTenths - thief.TenthsIn(split)
                                                          : victim.TenthsIn(split);
    int taken = 0;
    for (int tenths = 1; tenths <= std::min(room, victim.TenthsIn(split)); ++tenths) {
      Split other = split;
      thief.TenthsIn(other) += tenths;
      victim.TenthsIn(other) -= tenths;
      const double value = Estimate(estimate, other);
      if (value <= best + enough) continue;
      best = value;
      taken = tenths;
    }
    thief.TenthsIn(split) += taken;
    victim.TenthsIn(split) -= taken;
    return taken > 0;
  };
  bool rises = true;
  while (rises) {
    rises = false;
    for (const Job& thief : jobs) {
      if (thief.kind == Job::Kind::kIdle) continue;
      for (const Job& victim : jobs) {
        const bool same = thief.kind == victim.kind && thief.tenant == victim.tenant;
        if (!same) rises = steal(thief, victim) || rises;
      }
    }
  }
  return split;
}

}  // namespace divvy::control
