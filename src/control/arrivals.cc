#include "control/arrivals.h"

namespace divvy::control {

std::vector<std::vector<workload::Arrival>> DrawArrivals(std::span<const sim::Source> sources,
                                                         std::uint64_t seed, Duration end) {
  std::vector<std::vector<workload::Arrival>> arrivals;
  for (workload::ArrivalStream& stream : sim::StreamsOf(sources, seed)) {
    std::vector<workload::Arrival>& mine = arrivals.emplace_back();
    for (auto next = stream.Next(); next && next->at < end; next = stream.Next()) {
      mine.push_back(*next);
    }
  }
  return arrivals;
}

std::vector<std::vector<double>> CountBySlot(
    std::span<const std::vector<workload::Arrival>> arrivals, Duration slot, int slots) {
  std::vector<std::vector<double>> counts;
  for (const auto& mine : arrivals) {
    std::vector<double>& count = counts.emplace_back(static_cast<std::size_t>(slots));
    for (const workload::Arrival& arrival : mine) {
      const auto at = static_cast<std::size_t>(arrival.at / slot);
      if (at < count.size()) ++count[at];
    }
  }
  return counts;
}

}  // namespace divvy::control
