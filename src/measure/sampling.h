#pragma once

#include <map>
#include <optional>
#include <vector>

// Which batch sizes of a curve are worth measuring. Assumes what profiles assume anyway, that
// latency does not fall as the batch grows, and that a curve bends one way between its measured
// points. GPUs go in steps where waves of blocks fill up; a step inside a gap that looks straight
// from both of its sides is not seen.

namespace divvy::measure {

// Milliseconds by batch.
using Curve = std::map<int, double>;

// 1, 2, 4, .. and `most` itself. REQUIRES: most > 0.
[[nodiscard]] std::vector<int> BatchesUpTo(int most);

struct Bounds {
  double chord = 0;  // What a profile answers: the line between the measured neighbours.
  double least = 0;
  double most = 0;
};

// Where the latency of `batch` lies, from the points around it: not below its lower neighbour's and
// not above its upper one's; and, with points beyond both neighbours, between the chord and the
// lines through the points on either side, drawn on. In the first gap, between the chord and the
// lines of the two stretches above it; in the last, where knees are, no line tells. Nothing outside
// the measured range.
[[nodiscard]] std::optional<Bounds> BoundsOf(const Curve& measured, int batch);

// True when, by the bounds above, the chord is within 5 % of the truth, measuring errors included.
[[nodiscard]] bool IsKnown(const Curve& measured, int batch);

// The next of `wanted` (ascending) to measure: the ends, the middle, then the middle of each gap
// that is not known. Nothing when the rest is known. Depends on what is measured alone, so that a
// run goes on where another stopped. `all`: until every one is measured.
[[nodiscard]] std::optional<int> NextBatch(const std::vector<int>& wanted, const Curve& measured,
                                           bool all);

}  // namespace divvy::measure
