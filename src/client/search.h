#pragma once

#include <optional>

namespace divvy::client {

// Looks for the highest load that a server holds, probe by probe: doubles until it does not, or
// halves until it does, then halves the interval between, in ratios, down to a resolution.
//
//   while (const auto load = search.Next()) search.Tell(Holds(*load));
//
// Assumes that what holds at a load holds at a smaller one, which near the limit is true of long
// probes only: the answer is as sure as a single probe is.
class RateSearch {
 public:
  // Begins with `first` and ends when no more than a share `resolution` is unknown. Never asks for
  // more than `most`, nor for less than a 1024th of `first`. REQUIRES: all positive.
  RateSearch(double first, double resolution, double most);

  // The next load to try; nothing when all is known.
  [[nodiscard]] std::optional<double> Next() const;

  // Whether the server held the load of Next().
  void Tell(bool held);

  // The highest that held, and the lowest that did not, so far.
  const std::optional<double>& held() const { return held_; }
  const std::optional<double>& missed() const { return missed_; }

 private:
  double first_;
  double resolution_;
  double most_;
  std::optional<double> held_;
  std::optional<double> missed_;
};

}  // namespace divvy::client
