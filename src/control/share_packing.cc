#include "control/share_packing.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <tuple>

#include "control/window_ahead.h"

namespace divvy::control {
namespace {

using planner::Work;
using Pieces = std::vector<std::vector<int>>;  // Tenths that serve, by GPU and tenant.

double CapacityOn(const EstateTenant& tenant, int tenths) {
  return tenant.by_tenths[static_cast<std::size_t>(tenths)].capacity;
}

Pieces PiecesOf(const Estate& estate, const View& view) {
  Pieces pieces(static_cast<std::size_t>(estate.gpus), std::vector<int>(estate.tenants.size()));
  for (const CellState& state : view.cells) {
    const auto* share = std::get_if<Share>(&state.cell.where);
    if (share == nullptr || state.cell.work.kind != Work::Kind::kServe) continue;
    pieces[static_cast<std::size_t>(state.cell.gpu)][state.cell.work.tenant] += share->tenths;
  }
  return pieces;
}

class Packing {
 public:
  Packing(const Estate& estate, const View& view, const ShareWish& wish)
      : estate_(estate),
        view_(view),
        wish_(wish),
        before_(PiecesOf(estate, view)),
        pieces_(before_),
        training_(pieces_.size()) {}

  std::vector<Cell> Run() {
    for (std::size_t m = 0; m < estate_.tenants.size(); ++m) Shrink(m);
    PlaceRetrainings();
    for (std::size_t g = 0; g < pieces_.size(); ++g) MakeRoom(g);
    DealOut();
    return Cells();
  }

 private:
  int Free(std::size_t g) const {
    return kTenths - training_[g] - std::accumulate(pieces_[g].begin(), pieces_[g].end(), 0);
  }

  int Has(std::size_t m) const {
    int tenths = 0;
    for (const auto& gpu : pieces_) tenths += gpu[m];
    return tenths;
  }

  // A piece that goes restarts nothing, so those are looked for first.
  void Shrink(std::size_t m) {
    for (int over = Has(m) - wish_.serving[m]; over > 0; over = Has(m) - wish_.serving[m]) {
      std::optional<std::size_t> goes;
      std::optional<std::size_t> smallest;
      for (std::size_t g = 0; g < pieces_.size(); ++g) {
        const int piece = pieces_[g][m];
        if (piece == 0) continue;
        if (piece <= over && (!goes || piece > pieces_[*goes][m])) goes = g;
        if (!smallest || piece < pieces_[*smallest][m]) smallest = g;
      }
      if (goes) {
        pieces_[*goes][m] = 0;
      } else {
        pieces_[*smallest][m] -= over;
      }
    }
  }

  void PlaceRetrainings() {
    std::vector<ShareWish::Retraining> fresh;
    for (const ShareWish::Retraining& retraining : wish_.retraining) {
      const CellState* running = FindRetraining(view_, retraining.tenant);
      if (running == nullptr) {
        fresh.push_back(retraining);
      } else {
        Place(retraining, static_cast<std::size_t>(running->cell.gpu));
      }
    }
    std::ranges::stable_sort(fresh, std::greater(), &ShareWish::Retraining::tenths);
    for (const ShareWish::Retraining& retraining : fresh) Place(retraining, RoomFor(retraining));
  }

  // The GPU on which it fits with the least left over, or that with the most room.
  std::size_t RoomFor(const ShareWish::Retraining& retraining) const {
    const auto rank = [&](std::size_t g) {
      const int left = Free(g) - retraining.tenths;
      return std::tuple(left < 0, left < 0 ? -left : left);
    };
    std::size_t best = 0;
    for (std::size_t g = 1; g < pieces_.size(); ++g) {
      if (rank(g) < rank(best)) best = g;
    }
    return best;
  }

  void Place(const ShareWish::Retraining& retraining, std::size_t g) {
    const int room = wish_.make_room ? kTenths - training_[g] : std::max(0, Free(g));
    const Cell cell{static_cast<int>(g),
                    Share{std::min(retraining.tenths, room)},
                    {Work::Kind::kRetrain, retraining.tenant, retraining.option}};
    if (std::get<Share>(cell.where).tenths < 1 || !SlotsToRetrain(estate_, view_, cell)) return;
    training_[g] += std::get<Share>(cell.where).tenths;
    retrainings_.push_back(cell);
  }

  // Services give way on a GPU that gives out too much: first those that begin anew
  // anyway, then one that is just large enough to go, then the largest.
  void MakeRoom(std::size_t g) {
    for (int lacking = -Free(g); lacking > 0; lacking = -Free(g)) {
      const auto rank = [&](std::size_t m) {
        const int piece = pieces_[g][m];
        return std::tuple(piece == 0, piece == before_[g][m], piece != lacking, -piece);
      };
      std::size_t victim = 0;
      for (std::size_t m = 1; m < estate_.tenants.size(); ++m) {
        if (rank(m) < rank(victim)) victim = m;
      }
      pieces_[g][victim] -= std::min(pieces_[g][victim], lacking);
    }
  }

  // What tenants still lack, the largest first, as it fits best.
  void DealOut() {
    std::vector<std::size_t> order(estate_.tenants.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::greater(),
                             [&](std::size_t m) { return wish_.serving[m] - Has(m); });
    for (const std::size_t m : order) {
      while (wish_.serving[m] > Has(m)) {
        const auto place = PlaceFor(m, wish_.serving[m] - Has(m));
        if (!place) break;
        pieces_[*place][m] += std::min(Free(*place), wish_.serving[m] - Has(m));
      }
    }
  }

  // A piece beside those that run restarts none of them, but must be worth as much as
  // a larger one would be.
  bool StandsAlone(std::size_t m, int tenths) const {
    double capacity = CapacityOn(estate_.tenants[m], tenths);
    if (capacity <= 0) return false;
    for (const auto& gpu : pieces_) capacity += CapacityOn(estate_.tenants[m], gpu[m]);
    return capacity >= 0.95 * PackedCapacity(estate_.tenants[m], wish_.serving[m]);
  }

  std::optional<std::size_t> PlaceFor(std::size_t m, int lacking) const {
    std::optional<std::size_t> best;
    std::tuple<int, int> best_rank;
    for (std::size_t g = 0; g < pieces_.size(); ++g) {
      const int piece = pieces_[g][m];
      const int more = std::min(Free(g), lacking);
      if (more <= 0 || CapacityOn(estate_.tenants[m], piece + more) <= 0) continue;
      int kind = 4;
      if (more < lacking) {
        kind = 5;
      } else if (piece + more == before_[g][m]) {
        kind = 0;  // As it was.
      } else if (piece > 0 && piece != before_[g][m]) {
        kind = 1;  // Begins anew anyway.
      } else if (piece == 0 && StandsAlone(m, more)) {
        kind = 2;
      } else if (piece > 0) {
        kind = 3;
      }
      const std::tuple rank(kind, kind == 5 ? -Free(g) : Free(g));
      if (!best || rank < best_rank) {
        best = g;
        best_rank = rank;
      }
    }
    return best;
  }

  std::vector<Cell> Cells() const {
    std::vector<Cell> cells;
    for (std::size_t g = 0; g < pieces_.size(); ++g) {
      for (std::size_t m = 0; m < estate_.tenants.size(); ++m) {
        const int piece = pieces_[g][m];
        if (CapacityOn(estate_.tenants[m], piece) <= 0) continue;
        cells.push_back({static_cast<int>(g), Share{piece}, {Work::Kind::kServe, m, 0}});
      }
    }
    cells.insert(cells.end(), retrainings_.begin(), retrainings_.end());
    return cells;
  }

  const Estate& estate_;
  const View& view_;
  const ShareWish& wish_;
  const Pieces before_;
  Pieces pieces_;
  std::vector<int> training_;  // Tenths by GPU.
  std::vector<Cell> retrainings_;
};

}  // namespace

double PackedCapacity(const EstateTenant& tenant, int tenths) {
  const int whole = tenths / kTenths;
  return whole * CapacityOn(tenant, kTenths) + CapacityOn(tenant, tenths % kTenths);
}

int ServingTenths(const View& view, std::size_t tenant) {
  int tenths = 0;
  for (const CellState& state : view.cells) {
    const auto* share = std::get_if<Share>(&state.cell.where);
    const bool serves = state.cell.work == planner::Work{Work::Kind::kServe, tenant, 0};
    if (share != nullptr && serves) tenths += share->tenths;
  }
  return tenths;
}

std::vector<Cell> PackShares(const Estate& estate, const View& view, const ShareWish& wish) {
  return Packing(estate, view, wish).Run();
}

}  // namespace divvy::control
