#include "planner/goodput_seating.h"

#include <algorithm>

namespace divvy::planner {
namespace {

bool Overlap(const gpu::GpuModel& gpu, gpu::MigInstance a, gpu::MigInstance b) {
  return (gpu::SlicesOf(gpu.profile(a.profile), a.start) &
          gpu::SlicesOf(gpu.profile(b.profile), b.start)) != 0;
}

class Seater {
 public:
  Seater(const GoodputProblem& problem, const Cuts& cuts, const Allocation& allocation,
         const Seating& near, const Cuts::Pins& avoid)
      : problem_(problem), cuts_(cuts), allocation_(allocation), near_(near), avoid_(avoid) {}

  // Seats the allocation on `places`; the score, or nothing when it does not fit.
  std::optional<double> Seat(std::vector<gpu::MigInstance> places, Seating& seating) const {
    const std::size_t width = cuts_.profiles().size();
    std::vector<std::uint16_t> quota = allocation_.counts;
    double score = 0;
    seating.clear();
    const auto take = [&](gpu::MigInstance place, std::size_t m) {
      --quota[m * width + cuts_.Position(place.profile)];
      seating.push_back({place, m});
      // Less than keeping one, so that it decides between equals only.
      if (InTheWay(place)) score -= 1e-3 * ShareOf(place, m);
    };
    for (const planner::Seat& seat : near_) {
      const auto found = std::ranges::find(places, seat.place);
      const std::size_t position = cuts_.Position(seat.place.profile);
      if (found == places.end() || quota[seat.tenant * width + position] == 0) continue;
      places.erase(found);
      take(seat.place, seat.tenant);
      score += ShareOf(seat.place, seat.tenant);
    }
    std::ranges::stable_sort(places, {}, [&](gpu::MigInstance place) { return InTheWay(place); });
    for (const gpu::MigInstance& place : places) {
      for (std::size_t m = 0; m < problem_.tenants.size(); ++m) {
        if (quota[m * width + cuts_.Position(place.profile)] == 0) continue;
        take(place, m);
        break;
      }
    }
    if (std::ranges::any_of(quota, [](std::uint16_t left) { return left > 0; }))
      return std::nullopt;
    std::ranges::sort(seating);
    return score;
  }

 private:
  bool InTheWay(gpu::MigInstance place) const {
    return std::ranges::any_of(
        avoid_, [&](gpu::MigInstance other) { return Overlap(*problem_.gpu, place, other); });
  }

  double ShareOf(gpu::MigInstance place, std::size_t m) const {
    return problem_.tenants[m].capacity[static_cast<std::size_t>(place.profile)] /
           cuts_.MeanLoad(m);
  }

  const GoodputProblem& problem_;
  const Cuts& cuts_;
  const Allocation& allocation_;
  const Seating& near_;
  const Cuts::Pins& avoid_;
};

}  // namespace

std::optional<Seating> SeatNear(const GoodputProblem& problem, const Cuts& cuts,
                                const Allocation& allocation, const Cuts::Pins& pins,
                                const Seating& near, const Cuts::Pins& avoid) {
  const Seater seater(problem, cuts, allocation, near, avoid);
  std::optional<Seating> best;
  double best_score = 0;
  Seating seating;
  for (const gpu::MigLayout& layout : cuts.layouts()) {
    if (!std::ranges::includes(layout.instances(), pins)) continue;
    std::vector<gpu::MigInstance> places;
    std::ranges::set_difference(layout.instances(), pins, std::back_inserter(places));
    const auto score = seater.Seat(std::move(places), seating);
    if (!score || (best && *score <= best_score)) continue;
    best = seating;
    best_score = *score;
  }
  return best;
}

bool Apart(const gpu::GpuModel& gpu, const Seating& seating, gpu::MigInstance place) {
  return std::ranges::none_of(seating,
                              [&](const Seat& seat) { return Overlap(gpu, seat.place, place); });
}

}  // namespace divvy::planner
