#include "sim/latency_bounded.h"

#include <algorithm>

namespace divvy::sim {
namespace {

class Search {
 public:
  Search(const serving::Setup& setup, const serving::RouteOptions& route,
         std::span<const Source> sources, const SearchOptions& options)
      : setup_(setup), route_(route), sources_(sources), options_(options) {
    sim_.seed = options.seed;
    sim_.spread = options.spread;
    // A trace may be shorter than what was asked for; a tenth of what there is warms up.
    std::uint64_t arrivals = 0;
    bool endless = false;
    for (const Source& source : sources) {
      const auto* trace = std::get_if<std::span<const workload::Arrival>>(&source.arrivals);
      endless = endless || trace == nullptr;
      if (trace != nullptr) arrivals += trace->size();
    }
    sim_.requests = endless ? options.requests : std::min(options.requests, arrivals);
    sim_.warm_up = sim_.requests / 10;
    if (sources.size() == 1) {
      // More misses than this cannot be made good again; most overloaded runs end early.
      sim_.give_up_after = static_cast<std::uint64_t>(static_cast<double>(sim_.requests) *
                                                      (1 - options.attainment) * 1.2) +
                           10;
    }
  }

  [[nodiscard]] bool InTime(double factor) const {
    std::vector<std::vector<workload::Arrival>> storage;
    const std::vector<Source> scaled = Scaled(sources_, factor, storage);
    const SimResult result = Simulate(setup_, route_, scaled, {}, sim_);
    if (result.gave_up) return false;
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
    for (workload::Arrival& arrival : faster)
      arrival.at = FromSeconds(Seconds(arrival.at) / factor);
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
