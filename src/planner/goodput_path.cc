#include "planner/goodput_path.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "base/check.h"

namespace divvy::planner {
namespace {

constexpr double kImpossible = -1e300;

// Worth of a tenant's answers at one level of capacity, added up over slots.
struct Level {
  double capacity;
  std::vector<double> prefix;

  double Over(int from, int to) const {
    return prefix[static_cast<std::size_t>(to)] - prefix[static_cast<std::size_t>(from)];
  }
};

// Levels of one tenant, each computed once.
class Levels {
 public:
  Levels(const std::vector<double>& load, const std::vector<double>& worth)
      : load_(load), worth_(worth) {}

  std::size_t Find(double capacity) {
    const auto [found, fresh] = index_.try_emplace(capacity, levels_.size());
    if (fresh) {
      Level level{capacity, std::vector<double>(load_.size() + 1)};
      for (std::size_t t = 0; t < load_.size(); ++t) {
        level.prefix[t + 1] = level.prefix[t] + worth_[t] * std::min(load_[t], capacity);
      }
      levels_.push_back(std::move(level));
    }
    return found->second;
  }

  const Level& operator[](std::size_t i) const { return levels_[i]; }
  double At(int slot, double capacity) const {
    const auto t = static_cast<std::size_t>(slot);
    return worth_[t] * std::min(load_[t], capacity);
  }

 private:
  const std::vector<double>& load_;
  const std::vector<double>& worth_;
  std::map<double, std::size_t> index_;
  std::vector<Level> levels_;
};

// What changes for one tenant between two columns.
struct Start {
  std::size_t tenant;
  std::size_t survivors;  // Level of what goes on.
  double capacity;        // Of what starts.
  int whole;              // Slots without it,
  double part;            // and the share of the next one.
};

// A change from one column to another.
struct Change {
  bool known = false;
  int length = 0;             // Slots.
  std::vector<Start> starts;  // Tenants with something new.
};

class PathFinder {
 public:
  PathFinder(const GoodputProblem& problem, const Residual& residual,
             std::span<const PathColumn> columns, int stride)
      : problem_(problem), columns_(columns), slots_(problem.slots) {
    for (std::size_t m = 0; m < problem.tenants.size(); ++m) {
      levels_.emplace_back(residual.load[m], residual.worth[m]);
    }
    full_.resize(columns.size());
    total_.resize(columns.size());
    for (std::size_t s = 0; s < columns.size(); ++s) {
      total_[s].resize(static_cast<std::size_t>(slots_) + 1);
      for (std::size_t m = 0; m < problem.tenants.size(); ++m) {
        full_[s].push_back(levels_[m].Find(CapacityOf(columns[s].seats, m)));
        const Level& level = levels_[m][full_[s][m]];
        if (level.capacity <= 0) continue;
        for (std::size_t t = 0; t < total_[s].size(); ++t) total_[s][t] += level.prefix[t];
      }
    }
    changes_.resize(columns.size() * columns.size());
    SetTimes(stride);
  }

  Path Run() {
    const std::size_t count = columns_.size();
    best_.assign(times_.size() * count, 0);
    next_.assign(best_.size(), 0);
    order_.resize(count);
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    stay_.resize(count);
    for (std::size_t i = times_.size() - 1; i-- > 0;) Decide(i);
    return Trace();
  }

 private:
  // Multiples of the stride, and times at which a column becomes impossible or possible.
  void SetTimes(int stride) {
    std::vector<bool> marked(static_cast<std::size_t>(slots_) + 1);
    for (int t = 0; t < slots_; t += stride) marked[static_cast<std::size_t>(t)] = true;
    for (const PathColumn& column : columns_) {
      for (std::size_t t = 1; t < column.valid_until.size(); ++t) {
        const bool before = column.valid_until[t - 1] >= static_cast<int>(t);
        const bool now = column.valid_until[t] > static_cast<int>(t);
        if (before != now) marked[t] = true;
      }
    }
    marked.back() = true;
    index_.resize(marked.size());
    for (std::size_t t = 0; t < marked.size(); ++t) {
      if (marked[t]) times_.push_back(static_cast<int>(t));
    }
    std::size_t at = 0;
    for (std::size_t t = 0; t < marked.size(); ++t) {
      while (times_[at] < static_cast<int>(t)) ++at;
      index_[t] = at;
    }
  }

  double CapacityOf(const Seating& seats, std::size_t m) const {
    double capacity = 0;
    for (const Seat& seat : seats) {
      if (seat.tenant == m) capacity += CapacityOf(seat);
    }
    return capacity;
  }

  double CapacityOf(const Seat& seat) const {
    return problem_.tenants[seat.tenant].capacity[static_cast<std::size_t>(seat.place.profile)];
  }

  const Change& ChangeOf(std::size_t from, std::size_t to) {
    Change& change = changes_[from * columns_.size() + to];
    if (change.known) return change;
    change.known = true;
    std::vector<double> fresh(problem_.tenants.size());
    for (const Seat& seat : columns_[to].seats) {
      if (std::ranges::binary_search(columns_[from].seats, seat)) continue;
      fresh[seat.tenant] += CapacityOf(seat);
    }
    for (std::size_t m = 0; m < fresh.size(); ++m) {
      if (fresh[m] <= 0) continue;
      const double restart = std::min<double>(problem_.tenants[m].restart, slots_);
      const double whole = std::floor(restart);
      const double survivors = levels_[m][full_[to][m]].capacity - fresh[m];
      change.starts.push_back({m, levels_[m].Find(std::max(0.0, survivors)), fresh[m],
                               static_cast<int>(whole), restart - whole});
      // A change takes a slot at least, or a path might change twice at one time.
      change.length = std::max({change.length, static_cast<int>(std::ceil(restart)), 1});
    }
    return change;
  }

  std::size_t Cell(std::size_t i, std::size_t s) const { return i * columns_.size() + s; }

  double Total(std::size_t s, int from, int to) const {
    return total_[s][static_cast<std::size_t>(to)] - total_[s][static_cast<std::size_t>(from)];
  }

  // Worth lost, against `to` in full, by the tenants that start.
  double LossOf(const Change& change, std::size_t to, int t) const {
    double loss = 0;
    for (const Start& start : change.starts) {
      const Levels& levels = levels_[start.tenant];
      const Level& full = levels[full_[to][start.tenant]];
      const Level& less = levels[start.survivors];
      const int mid = std::min(slots_, t + start.whole);
      loss += full.Over(t, mid) - less.Over(t, mid);
      if (mid < slots_ && start.part > 0) {
        loss += full.Over(mid, mid + 1) -
                levels.At(mid, less.capacity + start.capacity * (1 - start.part));
      }
    }
    return loss;
  }

  void Decide(std::size_t i) {
    const int t = times_[i];
    const int after = times_[i + 1];
    for (std::size_t s = 0; s < columns_.size(); ++s) {
      const bool possible = columns_[s].valid_until[static_cast<std::size_t>(t)] >= after;
      stay_[s] = possible ? Total(s, t, after) + best_[Cell(i + 1, s)] : kImpossible;
    }
    // To be in a column is never better than to have been in it all along, so those with
    // the highest worth of staying are tried first, and the rest need not be.
    std::ranges::stable_sort(order_, std::greater<>(), [&](std::size_t s) { return stay_[s]; });
    for (std::size_t s = 0; s < columns_.size(); ++s) {
      double best = stay_[s];
      std::size_t next = s;
      for (const std::size_t to : order_) {
        // A change that gains nothing is not made, so a hair more.
        if (stay_[to] <= best + kHair) break;
        if (to == s) continue;
        if (t == 0 && problem_.fresh) {
          best = stay_[to];
          next = to;
          break;
        }
        const Change& change = ChangeOf(s, to);
        const std::size_t done =
            index_[static_cast<std::size_t>(std::min(slots_, std::max(after, t + change.length)))];
        if (columns_[to].valid_until[static_cast<std::size_t>(t)] < times_[done]) continue;
        const double worth =
            Total(to, t, times_[done]) + best_[Cell(done, to)] - LossOf(change, to, t);
        if (worth <= best + kHair) continue;
        best = worth;
        next = to;
      }
      best_[Cell(i, s)] = best;
      next_[Cell(i, s)] = next;
    }
  }

  Path Trace() {
    Path path{{{0, 0}}, best_[Cell(0, 0)]};
    std::size_t i = 0;
    std::size_t s = 0;
    while (i + 1 < times_.size()) {
      const std::size_t to = next_[Cell(i, s)];
      if (to == s) {
        ++i;
        continue;
      }
      const int t = times_[i];
      if (path.steps.back().begin == t) path.steps.pop_back();
      path.steps.push_back({t, to});
      const int length = t == 0 && problem_.fresh ? 1 : ChangeOf(s, to).length;
      i = index_[static_cast<std::size_t>(std::min(slots_, std::max(times_[i + 1], t + length)))];
      s = to;
    }
    return path;
  }

  static constexpr double kHair = 1e-9;

  const GoodputProblem& problem_;
  std::span<const PathColumn> columns_;
  int slots_;
  std::vector<int> times_;                      // At which changes may begin; the end last.
  std::vector<std::size_t> index_;              // By slot: the first time not before it.
  std::vector<Levels> levels_;                  // By tenant.
  std::vector<std::vector<std::size_t>> full_;  // By column and tenant: its level.
  std::vector<std::vector<double>> total_;      // By column: worth before each slot.
  std::vector<Change> changes_;                 // From, to; computed when needed.
  std::vector<double> best_;                    // By time and column: worth from there on.
  std::vector<std::size_t> next_;               // The column to turn to, or the same.
  std::vector<double> stay_;                    // Scratch.
  std::vector<std::size_t> order_;              // Scratch.
};

}  // namespace

Path BestPath(const GoodputProblem& problem, const Residual& residual,
              std::span<const PathColumn> columns, int stride) {
  Check(!columns.empty(), "a path has a column to begin with");
  return PathFinder(problem, residual, columns, stride).Run();
}

std::vector<Stretch> StretchesOf(const GoodputProblem& problem, const Path& path,
                                 std::span<const PathColumn> columns) {
  std::vector<Stretch> stretches;
  std::map<Seat, int> standing;  // Since when.
  for (const Seat& seat : columns[0].seats) standing.emplace(seat, 0);
  const auto turn = [&](int at, const Seating& seats) {
    for (auto seat = standing.begin(); seat != standing.end();) {
      if (std::ranges::binary_search(seats, seat->first)) {
        ++seat;
        continue;
      }
      const auto& [place, tenant] = seat->first;
      if (seat->second < at) {
        stretches.push_back({place, seat->second, at, {Work::Kind::kServe, tenant, 0}});
      }
      seat = standing.erase(seat);
    }
    for (const Seat& seat : seats) standing.emplace(seat, at);
  };
  for (const PathStep& step : path.steps) turn(step.begin, columns[step.column].seats);
  turn(problem.slots, {});
  return stretches;
}

}  // namespace divvy::planner
