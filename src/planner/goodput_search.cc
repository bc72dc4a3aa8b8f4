#include "planner/goodput_search.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "base/check.h"

namespace divvy::planner {
namespace {

// More tenants than this on one GPU are not tried at once: it has seven slices, and ways
// to share them out grow with the sixth power of tenants.
constexpr std::size_t kMostTenants = 6;

// Seatings that a path chooses from: its time grows with their square.
constexpr std::size_t kMostColumns = 96;
constexpr std::size_t kQuickColumns = 32;

// Times at which a look lets seatings change.
constexpr int kQuickTimes = 100;
constexpr int kThoroughTimes = 400;

// A path is laid so many times, each near the last one, and near so many of its seatings.
constexpr int kPasses = 2;
constexpr std::size_t kMostNear = 4;

// A change must be better by more than rounding.
constexpr double kBetter = 1e-7;

// Splits [from, to) in halves, quarters and so on, the whole first.
void Dyadic(int from, int to, std::vector<std::pair<int, int>>& intervals) {
  if (to <= from) return;
  intervals.emplace_back(from, to);
  if (to - from == 1) return;
  const int mid = from + (to - from) / 2;
  Dyadic(from, mid, intervals);
  Dyadic(mid, to, intervals);
}

}  // namespace

GoodputSearch::GoodputSearch(const GoodputProblem& problem) : problem_(problem), cuts_(problem) {
  state_.schedule = StayPut(problem);
  for (std::size_t gpu = 0; gpu < problem.present.size(); ++gpu) {
    state_.capacity.emplace_back(problem.tenants.size(),
                                 std::vector<double>(static_cast<std::size_t>(problem.slots)));
    for (const Stretch& stretch : state_.schedule.gpus[gpu]) {
      AddCapacity(problem, gpu, stretch, 1, state_.capacity[gpu]);
    }
  }
  Forget();
  Revalue();
}

bool GoodputSearch::IsRunning(std::size_t gpu, const Stretch& stretch) const {
  return stretch.begin == 0 &&
         std::ranges::any_of(problem_.present[gpu], [&](const Running& running) {
           return running.place == stretch.place && running.work == stretch.work;
         });
}

std::optional<std::size_t> GoodputSearch::GpuThatRetrains(std::size_t tenant) const {
  for (std::size_t gpu = 0; gpu < state_.schedule.gpus.size(); ++gpu) {
    for (const Stretch& stretch : state_.schedule.gpus[gpu]) {
      if (stretch.work.kind == Work::Kind::kRetrain && stretch.work.tenant == tenant) return gpu;
    }
  }
  return std::nullopt;
}

std::vector<Stretch> GoodputSearch::PinsOn(std::size_t gpu) const {
  std::vector<Stretch> pins;
  for (const Stretch& stretch : state_.schedule.gpus[gpu]) {
    if (stretch.work.kind == Work::Kind::kRetrain) pins.push_back(stretch);
  }
  return pins;
}

std::vector<GoodputSearch::Phase> GoodputSearch::PhasesOf(std::size_t gpu) const {
  const std::vector<Stretch> pins = PinsOn(gpu);
  std::set<int> times = {0, problem_.slots};
  for (const Stretch& pin : pins) times.insert({pin.begin, pin.end});
  std::vector<Phase> phases;
  for (auto at = times.begin(); std::next(at) != times.end(); ++at) {
    Phase phase{*at, *std::next(at), {}};
    for (const Stretch& pin : pins) {
      if (pin.begin <= phase.begin && pin.end > phase.begin) phase.pins.push_back(pin.place);
    }
    std::ranges::sort(phase.pins);
    phases.push_back(std::move(phase));
  }
  return phases;
}

Residual GoodputSearch::ResidualFor(std::size_t gpu) const {
  Residual residual;
  const auto retrainings = RetrainingsOf(problem_, state_.schedule);
  for (std::size_t m = 0; m < problem_.tenants.size(); ++m) {
    residual.load.push_back(problem_.tenants[m].load);
    residual.worth.push_back(WorthOf(problem_, m, retrainings[m]));
    for (std::size_t other = 0; other < state_.capacity.size(); ++other) {
      if (other == gpu) continue;
      for (std::size_t t = 0; t < residual.load[m].size(); ++t) {
        residual.load[m][t] = std::max(0.0, residual.load[m][t] - state_.capacity[other][m][t]);
      }
    }
  }
  return residual;
}

std::vector<std::size_t> GoodputSearch::TenantsFor(std::size_t gpu,
                                                   const Residual& residual) const {
  std::vector<std::pair<double, std::size_t>> ranked;
  for (std::size_t m = 0; m < problem_.tenants.size(); ++m) {
    const double most = std::ranges::max(problem_.tenants[m].capacity);
    double worth = 0;
    for (std::size_t t = 0; t < residual.load[m].size(); ++t) {
      worth += residual.worth[m][t] * std::min(most, residual.load[m][t]);
    }
    const bool here = std::ranges::any_of(state_.schedule.gpus[gpu], [&](const Stretch& stretch) {
      return stretch.work == Work{Work::Kind::kServe, m, 0};
    });
    if (most > 0 && (worth > 0 || here)) ranked.emplace_back(-worth, m);
  }
  std::ranges::sort(ranked);
  if (ranked.size() > kMostTenants) ranked.resize(kMostTenants);
  std::vector<std::size_t> tenants;
  for (const auto& [worth, m] : ranked) tenants.push_back(m);
  std::ranges::sort(tenants);
  return tenants;
}

Seating GoodputSearch::PresentSeats(std::size_t gpu) const {
  Seating seats;
  for (const Running& running : problem_.present[gpu]) {
    if (running.work.kind != Work::Kind::kServe) continue;
    seats.push_back({running.place, running.work.tenant});
  }
  std::ranges::sort(seats);
  return seats;
}

// The different seatings along the present schedule.
std::vector<Seating> GoodputSearch::SeatingsOf(std::size_t gpu) const {
  std::set<int> times = {0};
  for (const Stretch& stretch : state_.schedule.gpus[gpu]) times.insert(stretch.begin);
  std::vector<Seating> seatings;
  for (const int slot : times) {
    Seating seats;
    for (const Stretch& stretch : state_.schedule.gpus[gpu]) {
      if (stretch.work.kind != Work::Kind::kServe) continue;
      if (stretch.begin > slot || stretch.end <= slot) continue;
      seats.push_back({stretch.place, stretch.work.tenant});
    }
    std::ranges::sort(seats);
    if (std::ranges::find(seatings, seats) == seatings.end()) seatings.push_back(std::move(seats));
  }
  return seatings;
}

// Allocations that are best over some part of a phase, from the whole to single bins.
std::vector<GoodputSearch::Candidate> GoodputSearch::CandidatesFor(std::size_t gpu,
                                                                   const Residual& residual) {
  const std::vector<std::size_t> tenants = TenantsFor(gpu, residual);
  std::vector<Candidate> candidates;
  std::set<std::pair<Allocation, Cuts::Pins>> seen;
  std::map<Cuts::Pins, WorthTable> tables;
  for (const Phase& phase : PhasesOf(gpu)) {
    const std::vector<Allocation>& allocations = cuts_.Allocations(phase.pins, tenants);
    if (allocations.empty()) continue;
    auto found = tables.find(phase.pins);
    if (found == tables.end()) {
      found = tables.emplace(phase.pins, WorthTable(problem_, cuts_, allocations, residual)).first;
    }
    const WorthTable& table = found->second;
    std::vector<std::pair<int, int>> intervals;
    Dyadic(table.BinOf(phase.begin), table.BinOf(phase.end - 1) + 1, intervals);
    for (const auto& [from, to] : intervals) {
      const Allocation& best = allocations[table.BestOver(from, to).index];
      if (seen.emplace(best, phase.pins).second) candidates.push_back({best, phase.pins});
    }
  }
  return candidates;
}

// Seats each candidate near each of `near`. What is there comes first, since a path
// begins with it; then nothing at all, which is always possible.
std::vector<PathColumn> GoodputSearch::ColumnsFor(std::size_t gpu,
                                                  const std::vector<Candidate>& candidates,
                                                  const std::vector<Seating>& near,
                                                  std::size_t most) const {
  const std::vector<Phase> phases = PhasesOf(gpu);
  Cuts::Pins all_pins;
  for (const Stretch& pin : PinsOn(gpu)) all_pins.push_back(pin.place);
  std::vector<Seating> seatings = {PresentSeats(gpu)};
  std::set<Seating> seen = {seatings.front()};
  const auto choose = [&](Seating seats) {
    if (seen.insert(seats).second) seatings.push_back(std::move(seats));
  };
  choose({});
  for (const Seating& seats : SeatingsOf(gpu)) choose(seats);
  if (most > kQuickColumns) {
    std::vector<Seating> neighbours;
    AddNeighbours(near, neighbours);
    for (Seating& seats : neighbours) choose(std::move(seats));
  }
  for (const Seating& reference : near) {
    choose(reference);
    for (const Candidate& candidate : candidates) {
      auto seats =
          SeatNear(problem_, cuts_, candidate.allocation, candidate.pins, reference, all_pins);
      if (seats && seatings.size() < most) choose(std::move(*seats));
    }
  }
  std::vector<PathColumn> columns;
  for (Seating& seats : seatings) {
    PathColumn column{std::move(seats), std::vector<int>(static_cast<std::size_t>(problem_.slots))};
    int until = problem_.slots;
    for (auto phase = phases.rbegin(); phase != phases.rend(); ++phase) {
      const bool fits = std::ranges::all_of(phase->pins, [&](gpu::MigInstance pin) {
        return Apart(*problem_.gpu, column.seats, pin);
      });
      for (int t = phase->end - 1; t >= phase->begin; --t) {
        if (!fits) until = t;
        column.valid_until[static_cast<std::size_t>(t)] = until;
      }
    }
    columns.push_back(std::move(column));
  }
  return columns;
}

void GoodputSearch::Replace(std::size_t gpu, std::vector<Stretch> stretches) {
  for (auto& slots : state_.capacity[gpu]) std::ranges::fill(slots, 0.0);
  for (const Stretch& stretch : stretches) {
    AddCapacity(problem_, gpu, stretch, 1, state_.capacity[gpu]);
  }
  state_.schedule.gpus[gpu] = std::move(stretches);
  Revalue();
}

void GoodputSearch::Revalue() {
  const auto retrainings = RetrainingsOf(problem_, state_.schedule);
  double value = 0;
  for (std::size_t m = 0; m < problem_.tenants.size(); ++m) {
    const std::vector<double> worth = WorthOf(problem_, m, retrainings[m]);
    for (std::size_t t = 0; t < worth.size(); ++t) {
      double capacity = 0;
      for (const SlotTable& table : state_.capacity) capacity += table[m][t];
      value += worth[t] * std::min(problem_.tenants[m].load[t], capacity);
    }
    value += TailOf(problem_, m, retrainings[m]);
  }
  state_.value = value;
}

// Seatings that differ from one of `near` in who has one of the seats.
void GoodputSearch::AddNeighbours(const std::vector<Seating>& near,
                                  std::vector<Seating>& seatings) const {
  for (const Seating& seating : near) {
    for (std::size_t i = 0; i < seating.size(); ++i) {
      for (std::size_t m = 0; m < problem_.tenants.size(); ++m) {
        const auto profile = static_cast<std::size_t>(seating[i].place.profile);
        if (m == seating[i].tenant || problem_.tenants[m].capacity[profile] <= 0) continue;
        Seating other = seating;
        other[i].tenant = m;
        seatings.push_back(std::move(other));
      }
    }
  }
}

bool GoodputSearch::ImproveGpu(std::size_t gpu, Effort effort) {
  const bool thorough = effort == Effort::kThorough;
  const double before = state_.value;
  const Residual residual = ResidualFor(gpu);
  const std::vector<Candidate> candidates = CandidatesFor(gpu, residual);
  const int stride = std::max(1, problem_.slots / (thorough ? kThoroughTimes : kQuickTimes));
  std::vector<Seating> near = SeatingsOf(gpu);
  for (int pass = 0; pass < (thorough ? kPasses : 1); ++pass) {
    if (near.size() > kMostNear) near.resize(kMostNear);
    const double last = state_.value;
    const std::vector<PathColumn> columns =
        ColumnsFor(gpu, candidates, near, thorough ? kMostColumns : kQuickColumns);
    const Path path = BestPath(problem_, residual, columns, stride);
    std::vector<Stretch> old = state_.schedule.gpus[gpu];
    std::vector<Stretch> stretches = StretchesOf(problem_, path, columns);
    for (const Stretch& pin : PinsOn(gpu)) stretches.push_back(pin);
    std::ranges::sort(stretches, [](const Stretch& a, const Stretch& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.place < b.place;
    });
    Replace(gpu, std::move(stretches));
    if (state_.value <= last + kBetter) {
      Replace(gpu, std::move(old));
      break;
    }
    near = SeatingsOf(gpu);
  }
  return state_.value > before + kBetter;
}

}  // namespace divvy::planner
