#include "sim/latency_bounded.h"

#include <algorithm>
#include <limits>

namespace divvy::sim {
namespace {

// A trace may be shorter than what was asked for. Where rates differ, the run grows
// until the slowest has requests enough to speak of 95 % of them, within reason.
std::uint64_t RequestsFor(std::span<const Source> sources, const SearchOptions& options) {
  constexpr double kLeastOfAModel = 500;
  constexpr double kMost = 1e6;
  std::uint64_t of_traces = 0;
  double all = 0;
  double slowest = std::numeric_limits<double>::infinity();
  for (const Source& source : sources) {
    if (const auto* load = std::get_if<workload::Load>(&source.arrivals)) {
      const double rate = workload::MeanRate(*load);
      all += rate;
      slowest = std::min(slowest, rate);
    } else {
      of_traces += std::get<std::span<const workload::Arrival>>(source.arrivals).size();
    }
  }
  if (all == 0) return std::min(options.requests, of_traces);
  const double wanted = std::min(kMost, kLeastOfAModel * all / slowest);
  return std::max(options.requests, static_cast<std::uint64_t>(wanted));
}

constexpr double kDrain = 0.05;  // Of the run: more is overload.

class Search {
 public:
  Search(const serving::Setup& setup, const serving::RouteOptions& route,
         std::span<const Source> sources, const SearchOptions& options)
      : setup_(setup), route_(route), sources_(sources), options_(options) {
    for (const serving::LatencyTable& table : setup.tables) {
      longest_ = std::max(longest_, 3 * table(table.max_batch()));
    }
    sim_.seed = options.seed;
    sim_.spread = options.spread;
    sim_.requests = RequestsFor(sources, options);
    sim_.warm_up = sim_.requests / 10;
    if (sources.size() == 1) {
      // More misses than this cannot be made good again; most overloaded runs end early.
      const double counted = static_cast<double>(sim_.requests - sim_.warm_up);
      sim_.give_up_after = static_cast<std::uint64_t>(counted * (1 - options.attainment)) + 1;
    }
  }

  [[nodiscard]] bool InTime(double factor) const {
    std::vector<std::vector<workload::Arrival>> storage;
    const std::vector<Source> scaled = Scaled(sources_, factor, storage);
    Options sim = sim_;
    if (options_.duration != Duration::max()) {
      sim.duration = FromSeconds(Seconds(options_.duration) / factor);
    }
    const SimResult result = Simulate(setup_, route_, scaled, {}, sim);
    if (result.gave_up) return false;
    // With an SLO as long as the run, a queue that only grows is still in time. It shows
    // in how long it takes to empty.
    const double drained = Seconds(result.drained);
    if (drained > kDrain * Seconds(result.counted) && drained > Seconds(longest_)) return false;
    return std::ranges::all_of(result.models, [&](const ModelResult& model) {
      return model.attainment() >= options_.attainment;
    });
  }

 private:
  const serving::Setup& setup_;
  const serving::RouteOptions& route_;
  std::span<const Source> sources_;
  const SearchOptions& options_;
  Options sim_;
  Duration longest_{};  // What emptying the lanes may take without a queue: three batches.
};

}  // namespace

std::vector<Source> Scaled(std::span<const Source> sources, double factor,
                           std::vector<std::vector<workload::Arrival>>& storage) {
  std::vector<Source> scaled(sources.begin(), sources.end());
  for (Source& source : scaled) {
    if (auto* load = std::get_if<workload::Load>(&source.arrivals)) {
      load->rate *= factor;
      continue;
    }
    const auto trace = std::get<std::span<const workload::Arrival>>(source.arrivals);
    std::vector<workload::Arrival>& faster = storage.emplace_back(trace.begin(), trace.end());
    constexpr double kLongest_s = 100.0 * 365 * 86400;  // Far from where a Duration ends.
    for (workload::Arrival& arrival : faster)
      arrival.at = FromSeconds(std::min(kLongest_s, Seconds(arrival.at) / factor));
    // The vector's own storage does not move when `storage` grows.
    source.arrivals = std::span<const workload::Arrival>(faster);
  }
  return scaled;
}

double LatencyBoundedFactor(const serving::Setup& setup, const serving::RouteOptions& route,
                            std::span<const Source> sources, const SearchOptions& options) {
  const Search search(setup, route, sources, options);
  constexpr double kLeast = 1e-6;
  constexpr double kMost = 1e6;
  double low = 1;
  double high = 1;
  if (search.InTime(1)) {
    while (high < kMost && search.InTime(high)) {
      low = high;
      high *= 2;
    }
    if (high >= kMost) return kMost;
  } else {
    while (low > kLeast && !search.InTime(low)) {
      high = low;
      low /= 2;
    }
    if (low <= kLeast) return 0;
  }
  while (high / low > 1 + options.precision) {
    const double middle = (low + high) / 2;
    (search.InTime(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace divvy::sim
