#include "measure/sampling.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <vector>

#include "base/check.h"

namespace divvy::measure {
namespace {

// Points are measured within 1 %, and lines drawn on carry their errors further; together that is
// less than 5 %.
constexpr double kSure = 0.03;
// Below the first points less is known of how the curve bends: there three stretches in a row
// must be straight.
constexpr double kSureOneSided = 0.015;

using At = Curve::const_iterator;

double LineAt(At a, At b, int batch) {
  const double slope = (b->second - a->second) / (b->first - a->first);
  return a->second + slope * (batch - a->first);
}

double OffChord(const Bounds& bounds) {
  return std::max(bounds.chord - bounds.least, bounds.most - bounds.chord) / bounds.chord;
}

Bounds ByMonotony(At low, At high, double chord) {
  return {.chord = chord,
          .least = std::min(low->second, high->second),
          .most = std::max(low->second, high->second)};
}

// The lines of the two stretches above a gap, drawn on to `batch`; fewer where there are fewer.
std::vector<double> LinesAbove(const Curve& measured, At high, int batch) {
  std::vector<double> lines;
  for (At at = high; std::next(at) != measured.end() && lines.size() < 2; ++at) {
    lines.push_back(LineAt(at, std::next(at), batch));
  }
  return lines;
}

Bounds Hull(double chord, const std::vector<double>& lines) {
  const auto [least, most] = std::ranges::minmax(lines);
  return {.chord = chord, .least = std::min(least, chord), .most = std::max(most, chord)};
}

// Of the unmeasured batches wanted[first..last], the one nearest to the middle that is not known;
// of two the larger, since that is the nearer one by far on the scale on which curves are straight.
std::optional<int> MiddleOf(const std::vector<int>& wanted, std::size_t first, std::size_t last,
                            const Curve& measured, bool all) {
  std::optional<std::size_t> best;
  const auto distance = [&](std::size_t i) {
    return std::abs(2 * static_cast<long>(i) - static_cast<long>(first + last));
  };
  for (std::size_t i = first; i <= last; ++i) {
    if (!all && IsKnown(measured, wanted[i])) continue;
    if (!best || distance(i) <= distance(*best)) best = i;
  }
  if (!best) return std::nullopt;
  return wanted[*best];
}

}  // namespace

std::vector<int> BatchesUpTo(int most) {
  Check(most > 0, "a batch has an item");
  std::vector<int> batches;
  for (int batch = 1; batch < most; batch *= 2) batches.push_back(batch);
  batches.push_back(most);
  return batches;
}

std::optional<Bounds> BoundsOf(const Curve& measured, int batch) {
  const At high = measured.lower_bound(batch);
  if (high == measured.end()) return std::nullopt;
  if (high->first == batch) {
    return Bounds{.chord = high->second, .least = high->second, .most = high->second};
  }
  if (high == measured.begin()) return std::nullopt;
  const At low = std::prev(high);
  const double chord = LineAt(low, high, batch);
  Bounds bounds = ByMonotony(low, high, chord);
  std::vector<double> lines = LinesAbove(measured, high, batch);
  if (low != measured.begin()) {
    if (lines.size() > 1) lines.pop_back();
    lines.push_back(LineAt(std::prev(low), low, batch));
  }
  if (lines.size() < 2) return bounds;
  const Bounds bend = Hull(chord, lines);
  bounds.least = std::clamp(bend.least, bounds.least, chord);
  bounds.most = std::clamp(bend.most, chord, bounds.most);
  return bounds;
}

bool IsKnown(const Curve& measured, int batch) {
  const auto bounds = BoundsOf(measured, batch);
  if (!bounds) return false;
  const At high = measured.lower_bound(batch);
  if (high->first == batch) return true;
  const At low = std::prev(high);
  if (OffChord(ByMonotony(low, high, bounds->chord)) <= kSure) return true;
  const bool inside = low != measured.begin() && std::next(high) != measured.end();
  return OffChord(*bounds) <= (inside ? kSure : kSureOneSided);
}

std::optional<int> NextBatch(const std::vector<int>& wanted, const Curve& measured, bool all) {
  if (wanted.empty()) return std::nullopt;
  for (const int batch : {wanted.front(), wanted.back(), wanted[wanted.size() / 2]}) {
    if (!measured.contains(batch)) return batch;
  }
  // From above: what is known there tells about the gaps below. Both ends are measured.
  for (std::size_t last = wanted.size() - 1; last > 0; --last) {
    if (measured.contains(wanted[last])) continue;
    std::size_t first = last;
    while (!measured.contains(wanted[first - 1])) --first;
    if (const auto batch = MiddleOf(wanted, first, last, measured, all)) return batch;
    last = first;
  }
  return std::nullopt;
}

}  // namespace divvy::measure
