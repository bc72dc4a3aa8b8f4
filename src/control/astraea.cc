#include "control/astraea.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>

#include "control/window_ahead.h"

namespace divvy::control {
namespace {

using planner::Work;

constexpr int kRecentSlots = 20;
constexpr int kLatestSlots = 5;
constexpr double kMargin = 1.1;
constexpr int kPatienceSlots = 30;

double PredictedRate(const Estate& estate, const View& view, std::size_t tenant) {
  return kMargin * std::max(RecentRate(estate, view, tenant, kRecentSlots),
                            RecentRate(estate, view, tenant, kLatestSlots));
}

WorthAhead Ahead(const Estate& estate, const View& view, std::size_t tenant) {
  const std::vector<double> answers(static_cast<std::size_t>(view.WindowLeft(estate)),
                                    RecentRate(estate, view, tenant, kRecentSlots));
  return WorthAhead(estate, view, tenant, answers);
}

// Where a retraining runs, or would: shares of one size are alike on every GPU.
Cell CellOf(const View& view, std::size_t tenant, int tenths) {
  const CellState* running = FindRetraining(view, tenant);
  return {
      running == nullptr ? 0 : running->cell.gpu, Share{tenths}, {Work::Kind::kRetrain, tenant, 0}};
}

// `total` in proportion to `needs`, in whole numbers: the largest remainders round up.
std::vector<int> InProportion(const std::vector<int>& needs, int total) {
  const int sum = std::accumulate(needs.begin(), needs.end(), 0);
  std::vector<int> shares;
  for (const int need : needs) shares.push_back(need * total / sum);
  std::vector<std::size_t> order(needs.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(),
                           [&](std::size_t m) { return needs[m] * total % sum; });
  int left = total - std::accumulate(shares.begin(), shares.end(), 0);
  for (std::size_t i = 0; left > 0; ++i, --left) ++shares[order[i]];
  return shares;
}

}  // namespace

int TenthsFor(const Estate& estate, std::size_t tenant, double rate) {
  const int all = kTenths * estate.gpus;
  for (int tenths = 0; tenths < all; ++tenths) {
    if (PackedCapacity(estate.tenants[tenant], tenths) >= rate) return tenths;
  }
  return all;
}

Astraea::Astraea(const Estate& estate) : estate_(estate), quotas_(estate.tenants.size()) {}

void Astraea::Follow(const View& view) {
  for (std::size_t m = 0; m < quotas_.size(); ++m) {
    Quota& quota = quotas_[m];
    const int need = TenthsFor(estate_, m, PredictedRate(estate_, view, m));
    if (need >= quota.tenths) {
      quota = {.tenths = need, .lower_since = -1, .most_since = 0};
      continue;
    }
    if (quota.lower_since < 0) quota.lower_since = view.slot;
    quota.most_since = std::max(quota.most_since, need);
    if (view.slot - quota.lower_since < kPatienceSlots) continue;
    quota = {.tenths = quota.most_since, .lower_since = -1, .most_since = 0};
  }
}

std::vector<int> Astraea::ServingShares(const View& view) const {
  std::vector<int> needs;
  for (const Quota& quota : quotas_) needs.push_back(quota.tenths);
  const int all = kTenths * estate_.gpus;
  if (std::accumulate(needs.begin(), needs.end(), 0) <= all) return needs;
  std::vector<int> shares = InProportion(needs, all);
  std::vector<int> present;
  bool near = true;
  for (std::size_t m = 0; m < shares.size(); ++m) {
    present.push_back(ServingTenths(view, m));
    near = near && std::abs(present[m] - shares[m]) <= 1;
  }
  return near ? present : shares;
}

std::vector<ShareWish::Retraining> Astraea::RetrainingShares(const View& view, int tenths) const {
  struct Candidate {
    std::size_t tenant;
    bool runs;
    double gain;
    WorthAhead ahead;
  };
  std::vector<Candidate> candidates;
  for (std::size_t m = 0; m < estate_.tenants.size(); ++m) {
    if (tenths <= 0 || !MayRetrain(estate_, view, m)) continue;
    WorthAhead ahead = Ahead(estate_, view, m);
    const auto best = BestOption(estate_, view, ahead, CellOf(view, m, std::min(tenths, kTenths)));
    if (!best) continue;
    candidates.push_back({m, FindRetraining(view, m) != nullptr, best->gain, std::move(ahead)});
  }
  std::ranges::stable_sort(candidates, [](const Candidate& a, const Candidate& b) {
    return std::tuple(!a.runs, -a.gain) < std::tuple(!b.runs, -b.gain);
  });
  // As many as can all end with an even share.
  for (std::size_t count = candidates.size(); count > 0; --count) {
    std::vector<ShareWish::Retraining> shares;
    int left = tenths;
    for (std::size_t i = 0; i < count; ++i) {
      const Candidate& who = candidates[i];
      const int others = static_cast<int>(count - i);
      const int even = std::min(kTenths, (left + others - 1) / others);
      if (even == 0) break;
      auto best = BestOption(estate_, view, who.ahead, CellOf(view, who.tenant, even));
      int share = even;
      if (const CellState* running = FindRetraining(view, who.tenant)) {
        const int has = std::get<Share>(running->cell.where).tenths;
        const auto same = BestOption(estate_, view, who.ahead, CellOf(view, who.tenant, has));
        if (has <= even && same && (!best || same->gain >= best->gain)) {
          best = same;
          share = has;
        }
      }
      if (!best) break;
      shares.push_back({who.tenant, best->option, share});
      left -= share;
    }
    if (shares.size() == count) return shares;
  }
  return {};
}

Decision Astraea::Decide(const View& view) {
  Follow(view);
  ShareWish wish{ServingShares(view)};
  wish.make_room = false;
  const int served = std::accumulate(wish.serving.begin(), wish.serving.end(), 0);
  const int rest = kTenths * estate_.gpus - served;
  wish.retraining = RetrainingShares(view, rest);
  std::vector<Cell> cells = PackShares(estate_, view, wish);
  // Those that found less room than they were to have may need another option.
  std::erase_if(cells, [&](Cell& cell) {
    if (cell.work.kind != Work::Kind::kRetrain) return false;
    const auto best = BestOption(estate_, view, Ahead(estate_, view, cell.work.tenant), cell);
    if (best) cell.work.retraining = best->option;
    return !best;
  });
  if (SameCells(view, cells)) return {};
  return {.cells = std::move(cells),
          .why = fmt::format("services need {} tenths, {} are left to retraining", served, rest)};
}

}  // namespace divvy::control
