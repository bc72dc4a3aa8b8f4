#include "planner/goodput_relaxed.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace divvy::planner {
namespace {

// More than any schedule is worth: makes a path take what it must.
constexpr double kMust = 1e12;

constexpr double kNothing = -1e300;

double At(const std::vector<double>& prefix, double slot) {
  const double whole = std::floor(slot);
  const auto i = static_cast<std::size_t>(whole);
  if (i + 1 >= prefix.size()) return prefix.back();
  return prefix[i] + (prefix[i + 1] - prefix[i]) * (slot - whole);
}

}  // namespace

RelaxedGpus::RelaxedGpus(const GoodputProblem& problem, std::vector<int> times)
    : problem_(problem), times_(std::move(times)) {
  BuildTree();
}

// Spans within [start, start + length), the largest of which has that length.
void RelaxedGpus::BuildTree() {
  const int slices = problem_.gpu->memory_slices;
  std::vector<bool> covered(static_cast<std::size_t>(slices));
  for (int length = slices; length > 0; --length) {
    for (int start = 0; start + length <= slices; ++start) {
      if (covered[static_cast<std::size_t>(start)]) continue;
      const std::size_t before = spans_.size();
      const std::size_t span = AddSpan(start, length);
      if (spans_.size() == before) continue;
      roots_.push_back(span);
      std::fill_n(covered.begin() + start, length, true);
    }
  }
}

std::size_t RelaxedGpus::AddSpan(int start, int length) {
  Kind kind;
  for (const gpu::ProfileIndex index : problem_.gpu->Select(gpu::ProfileSet::kBase)) {
    const gpu::MigProfile& profile = problem_.gpu->profile(index);
    if (profile.memory_slices == length && std::ranges::count(profile.starts, start) > 0) {
      kind.profiles.push_back(index);
    }
  }
  if (kind.profiles.empty()) return spans_.size();
  Span span{start, 0, {}};
  for (int inner = length - 1; inner > 0; --inner) {
    for (int at = start; at + inner <= start + length; ++at) {
      const auto inside = [&](std::size_t i) {
        int size = 0;
        for (const auto p : kinds_[spans_[i].kind].profiles) {
          size = problem_.gpu->profile(p).memory_slices;
        }
        return spans_[i].start <= at && at < spans_[i].start + size;
      };
      if (std::ranges::any_of(span.within, inside)) continue;
      const std::size_t before = spans_.size();
      const std::size_t child = AddSpan(at, inner);
      if (spans_.size() > before) span.within.push_back(child);
    }
  }
  for (const std::size_t child : span.within) kind.within.push_back(spans_[child].kind);
  std::ranges::sort(kind.within);
  const auto known = std::ranges::find_if(kinds_, [&](const Kind& other) {
    return other.profiles == kind.profiles && other.within == kind.within;
  });
  span.kind = static_cast<std::size_t>(known - kinds_.begin());
  if (known == kinds_.end()) kinds_.push_back(std::move(kind));
  spans_.push_back(std::move(span));
  return spans_.size() - 1;
}

double RelaxedGpus::Served(std::size_t tenant, double from, double to) const {
  return from >= to ? 0 : planner::At(paid_[tenant], to) - planner::At(paid_[tenant], from);
}

double RelaxedGpus::RetrainWorth(std::size_t tenant, std::size_t option, int done) const {
  return gain_[tenant][option][static_cast<std::size_t>(done)] - prices_->retraining[tenant];
}

void RelaxedGpus::Price(const Prices& prices) {
  prices_ = &prices;
  const auto slots = static_cast<std::size_t>(problem_.slots);
  const std::size_t tenants = problem_.tenants.size();
  paid_.assign(tenants, std::vector<double>(slots + 1));
  gain_.assign(tenants, {});
  for (std::size_t m = 0; m < tenants; ++m) {
    const Tenant& who = problem_.tenants[m];
    for (std::size_t t = 0; t < slots; ++t) {
      paid_[m][t + 1] = paid_[m][t] + prices.request[m][t];
    }
    for (const Retraining& option : who.retrainings) {
      std::vector<double> gain(slots + 1);
      gain[slots] = who.tail * std::max(0.0, option.worth.back() - who.worth.back());
      for (std::size_t t = slots; t-- > 0;) {
        const double price = prices.request[m][t];
        const double after = std::max(option.worth[t], who.worth[t]);
        gain[t] = gain[t + 1] + who.load[t] * (std::max(0.0, after - price) -
                                               std::max(0.0, who.worth[t] - price));
      }
      gain_[m].push_back(std::move(gain));
    }
  }
  const std::size_t n = times_.size();
  single_.assign(problem_.gpu->profiles.size(), {});
  single_tenant_.assign(problem_.gpu->profiles.size(), {});
  for (const gpu::ProfileIndex index : problem_.gpu->Select(gpu::ProfileSet::kBase)) {
    const auto k = static_cast<std::size_t>(index);
    single_[k].assign(n * n, 0);
    single_tenant_[k].assign(n * n, 0);
    for (std::size_t m = 0; m < tenants; ++m) {
      const double capacity = problem_.tenants[m].capacity[k];
      if (capacity <= 0) continue;
      for (std::size_t i = 0; i + 1 < n; ++i) {
        const double from =
            std::min<double>(times_[i] + problem_.tenants[m].restart, problem_.slots);
        const double base = planner::At(paid_[m], from);
        double* row = &single_[k][At(i, 0)];
        std::uint16_t* whose = &single_tenant_[k][At(i, 0)];
        for (std::size_t j = i + 1; j < n; ++j) {
          const double worth = capacity * (paid_[m][static_cast<std::size_t>(times_[j])] - base);
          if (worth <= row[j]) continue;
          row[j] = worth;
          whose[j] = static_cast<std::uint16_t>(m);
        }
      }
    }
  }
}

RelaxedGpus::Arc RelaxedGpus::SingleUse(gpu::ProfileIndex profile, std::size_t from,
                                        std::size_t to) const {
  const auto k = static_cast<std::size_t>(profile);
  Arc arc;
  if (single_[k][At(from, to)] > 0) {
    arc = {single_[k][At(from, to)], Arc::Kind::kServe, static_cast<std::uint16_t>(k),
           single_tenant_[k][At(from, to)], 0};
  }
  for (std::size_t m = 0; m < problem_.tenants.size(); ++m) {
    for (std::size_t o = 0; o < gain_[m].size(); ++o) {
      const int takes = problem_.tenants[m].retrainings[o].slots[k];
      const int done = times_[from] + takes;
      // It ends at the first time that is not too soon.
      if (takes <= 0 || done > times_[to] || (to > from + 1 && done <= times_[to - 1])) continue;
      if (done > problem_.retrain_limit()) continue;
      const double worth = RetrainWorth(m, o, done);
      if (worth > arc.worth) {
        arc = {worth, Arc::Kind::kRetrain, static_cast<std::uint16_t>(k),
               static_cast<std::uint16_t>(m), static_cast<std::uint16_t>(o)};
      }
    }
  }
  return arc;
}

void RelaxedGpus::SolveKind(Kind& kind) {
  const std::size_t n = times_.size();
  kind.arc.assign(n * n, 0);
  for (const gpu::ProfileIndex profile : kind.profiles) {
    const std::vector<double>& single = single_[static_cast<std::size_t>(profile)];
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = i + 1; j < n; ++j) {
        kind.arc[At(i, j)] = std::max(kind.arc[At(i, j)], single[At(i, j)]);
      }
    }
    for (std::size_t m = 0; m < problem_.tenants.size(); ++m) {
      for (std::size_t o = 0; o < gain_[m].size(); ++o) {
        const int takes =
            problem_.tenants[m].retrainings[o].slots[static_cast<std::size_t>(profile)];
        if (takes <= 0) continue;
        std::size_t j = 0;
        for (std::size_t i = 0; i < n; ++i) {
          while (j < n && times_[j] < times_[i] + takes) ++j;
          if (j == n || times_[i] + takes > problem_.retrain_limit()) break;
          double& arc = kind.arc[At(i, j)];
          arc = std::max(arc, RetrainWorth(m, o, times_[i] + takes));
        }
      }
    }
  }
  if (!kind.within.empty()) {
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = i + 1; j < n; ++j) {
        double split = 0;
        for (const std::size_t child : kind.within) split += kinds_[child].best[At(i, j)];
        kind.arc[At(i, j)] = std::max(kind.arc[At(i, j)], split);
      }
    }
  }
  // The longest paths between all pairs of times.
  kind.best.assign(n * n, 0);
  for (std::size_t i = n; i-- > 0;) {
    double* row = &kind.best[At(i, 0)];
    const double* arcs = &kind.arc[At(i, 0)];
    for (std::size_t mid = i + 1; mid < n; ++mid) {
      const double worth = arcs[mid];
      const double* onward = &kind.best[At(mid, 0)];
      for (std::size_t j = mid; j < n; ++j) row[j] = std::max(row[j], worth + onward[j]);
    }
  }
}

// From slot 0 what runs already goes on without a restart, and what is being retrained
// must.
RelaxedGpus::Arc RelaxedGpus::FirstUse(std::size_t gpu, const Span& span, std::size_t to) const {
  Arc best;
  for (const gpu::ProfileIndex profile : kinds_[span.kind].profiles) {
    const Arc use = SingleUse(profile, 0, to);
    if (use.worth > best.worth) best = use;
    for (std::size_t m = 0; problem_.fresh && m < problem_.tenants.size(); ++m) {
      const auto k = static_cast<std::size_t>(profile);
      const double worth = problem_.tenants[m].capacity[k] * Served(m, 0, times_[to]);
      if (worth <= best.worth) continue;
      best = {worth, Arc::Kind::kServe, static_cast<std::uint16_t>(k),
              static_cast<std::uint16_t>(m), 0};
    }
  }
  for (const Running& running : problem_.present[gpu]) {
    if (running.place.start != span.start ||
        std::ranges::count(kinds_[span.kind].profiles, running.place.profile) == 0) {
      continue;
    }
    const auto k = static_cast<std::uint16_t>(running.place.profile);
    const auto m = static_cast<std::uint16_t>(running.work.tenant);
    if (running.work.kind == Work::Kind::kServe) {
      const double worth = problem_.tenants[m].capacity[k] * Served(m, running.left, times_[to]);
      if (worth > best.worth) best = {worth, Arc::Kind::kServe, k, m, 0};
      continue;
    }
    const int done = static_cast<int>(std::ceil(running.left));
    if (done > times_[to] || (to > 1 && done <= times_[to - 1])) continue;
    const auto o = static_cast<std::uint16_t>(running.work.retraining);
    best = {kMust + RetrainWorth(m, o, done), Arc::Kind::kRetrain, k, m, o};
  }
  return best;
}

void RelaxedGpus::SolveFirst(std::size_t gpu) {
  const std::size_t n = times_.size();
  first_arc_.assign(spans_.size(), std::vector<double>(n));
  first_best_ = first_arc_;
  for (std::size_t s = 0; s < spans_.size(); ++s) {
    const Span& span = spans_[s];
    const Kind& kind = kinds_[span.kind];
    for (std::size_t j = 1; j < n; ++j) {
      double split = 0;
      for (const std::size_t child : span.within) split += first_best_[child][j];
      first_arc_[s][j] = std::max(FirstUse(gpu, span, j).worth, split);
    }
    for (std::size_t j = 1; j < n; ++j) {
      for (std::size_t mid = 1; mid <= j; ++mid) {
        first_best_[s][j] = std::max(first_best_[s][j], first_arc_[s][mid] + kind.best[At(mid, j)]);
      }
    }
  }
}

void RelaxedGpus::Use(const Span& span, const Arc& arc, int from, int to, double delay, int copies,
                      Earnings& earnings) const {
  const gpu::MigInstance place{span.start, static_cast<gpu::ProfileIndex>(arc.profile)};
  if (arc.kind == Arc::Kind::kRetrain) {
    const Stretch use{place, from, to, {Work::Kind::kRetrain, arc.tenant, arc.retraining}};
    earnings.retrain[arc.tenant].insert(earnings.retrain[arc.tenant].end(),
                                        static_cast<std::size_t>(copies), use);
    return;
  }
  const double full = copies * problem_.tenants[arc.tenant].capacity[arc.profile];
  const double begin = from + delay;
  for (int t = std::min(to, static_cast<int>(begin)); t < to; ++t) {
    earnings.capacity[arc.tenant][static_cast<std::size_t>(t)] +=
        full * std::clamp(t + 1 - begin, 0.0, 1.0);
  }
}

void RelaxedGpus::Collect(std::size_t gpu, std::size_t span, std::size_t from, std::size_t to,
                          int copies, Earnings& earnings) const {
  const Kind& kind = kinds_[spans_[span].kind];
  while (from < to) {
    // The path that the longest one took: the arc with which it begins.
    std::size_t mid = from + 1;
    double best = kNothing;
    for (std::size_t i = from + 1; i <= to; ++i) {
      const double worth = kind.arc[At(from, i)] + kind.best[At(i, to)];
      if (worth > best) {
        best = worth;
        mid = i;
      }
    }
    Arc use;
    for (const gpu::ProfileIndex profile : kind.profiles) {
      const Arc single = SingleUse(profile, from, mid);
      if (single.worth > use.worth) use = single;
    }
    if (use.worth > 0 && use.worth >= kind.arc[At(from, mid)]) {
      const int end =
          use.kind == Arc::Kind::kRetrain
              ? times_[from] +
                    problem_.tenants[use.tenant].retrainings[use.retraining].slots[use.profile]
              : times_[mid];
      Use(spans_[span], use, times_[from], end, problem_.tenants[use.tenant].restart, copies,
          earnings);
    } else {
      for (const std::size_t child : spans_[span].within) {
        Collect(gpu, child, from, mid, copies, earnings);
      }
    }
    from = mid;
  }
}

void RelaxedGpus::CollectFirst(std::size_t gpu, std::size_t span, std::size_t to, int copies,
                               Earnings& earnings) const {
  const Kind& kind = kinds_[spans_[span].kind];
  std::size_t mid = 1;
  double best = kNothing;
  for (std::size_t i = 1; i <= to; ++i) {
    const double worth = first_arc_[span][i] + kind.best[At(i, to)];
    if (worth > best) {
      best = worth;
      mid = i;
    }
  }
  const Arc use = FirstUse(gpu, spans_[span], mid);
  if (use.worth > 0 && use.worth >= first_arc_[span][mid]) {
    double delay = problem_.fresh ? 0 : problem_.tenants[use.tenant].restart;
    int end = times_[mid];
    if (use.kind == Arc::Kind::kRetrain) {
      end = problem_.tenants[use.tenant].retrainings[use.retraining].slots[use.profile];
    }
    for (const Running& running : problem_.present[gpu]) {
      if (running.place.start != spans_[span].start ||
          static_cast<std::uint16_t>(running.place.profile) != use.profile ||
          running.work.tenant != use.tenant) {
        continue;
      }
      if (use.kind == Arc::Kind::kServe && running.work.kind == Work::Kind::kServe) {
        delay = std::min(delay, running.left);
      }
      if (use.kind == Arc::Kind::kRetrain && running.work.kind == Work::Kind::kRetrain) {
        end = static_cast<int>(std::ceil(running.left));
      }
    }
    Use(spans_[span], use, 0, end, delay, copies, earnings);
  } else {
    for (const std::size_t child : spans_[span].within) {
      CollectFirst(gpu, child, mid, copies, earnings);
    }
  }
  Collect(gpu, span, mid, to, copies, earnings);
}

Earnings RelaxedGpus::Earn(const Prices& prices) {
  Price(prices);
  for (Kind& kind : kinds_) SolveKind(kind);
  Earnings earnings;
  earnings.capacity.assign(problem_.tenants.size(),
                           std::vector<double>(static_cast<std::size_t>(problem_.slots)));
  earnings.retrain.resize(problem_.tenants.size());
  // GPUs that are used alike now earn alike.
  std::vector<bool> done(problem_.present.size());
  for (std::size_t gpu = 0; gpu < problem_.present.size(); ++gpu) {
    if (done[gpu]) continue;
    int copies = 0;
    for (std::size_t other = gpu; other < problem_.present.size(); ++other) {
      if (problem_.present[other] != problem_.present[gpu]) continue;
      done[other] = true;
      ++copies;
    }
    SolveFirst(gpu);
    double must = 0;
    for (const Running& running : problem_.present[gpu]) {
      if (running.work.kind == Work::Kind::kRetrain) must += kMust;
    }
    for (const std::size_t root : roots_) {
      earnings.total += copies * first_best_[root].back();
      CollectFirst(gpu, root, times_.size() - 1, copies, earnings);
    }
    earnings.total -= copies * must;
  }
  return earnings;
}

}  // namespace divvy::planner
