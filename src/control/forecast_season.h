#pragma once

#include <cstddef>
#include <vector>

namespace divvy::control {

// How the load of a season spreads over it: a factor for each slot, 1 on average,
// learned season by season. A season is cut into at most 96 stretches, and what lies
// between their middles is interpolated: a day in slots of a second would otherwise
// have 86,400 factors, each learned from one count a day. Not thread-safe.
class SeasonShape {
 public:
  // REQUIRES: season >= 2, in slots.
  explicit SeasonShape(int season);

  void Observe(double arrivals);

  // The factor of a slot, 1 ahead being the next one. All are 1 until a season was
  // seen. REQUIRES: ahead >= 1.
  [[nodiscard]] double Factor(int ahead) const;

 private:
  [[nodiscard]] std::size_t StretchOf(int phase) const;
  void LearnSeason();

  int season_;
  int phase_ = 0;  // Of the next slot.
  bool learned_ = false;
  std::vector<double> factors_;  // By stretch.
  std::vector<double> sums_;     // Arrivals of the season that runs, by stretch.
  std::vector<int> slots_;       // In each stretch.
};

}  // namespace divvy::control
