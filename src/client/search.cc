#include "client/search.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace divvy::client {
namespace {

constexpr double kLeastShare = 1.0 / 1024;

}  // namespace

RateSearch::RateSearch(double first, double resolution, double most)
    : first_(std::min(first, most)), resolution_(resolution), most_(most) {
  Check(first > 0 && resolution > 0 && most > 0, "a search begins somewhere and ends");
}

std::optional<double> RateSearch::Next() const {
  if (!held_ && !missed_) return first_;
  if (!held_) {
    const double half = *missed_ / 2;
    if (half < first_ * kLeastShare) return std::nullopt;
    return half;
  }
  if (!missed_) {
    if (*held_ >= most_) return std::nullopt;
    return std::min(*held_ * 2, most_);
  }
  if (*missed_ <= *held_ * (1 + resolution_)) return std::nullopt;
  return std::sqrt(*held_ * *missed_);
}

void RateSearch::Tell(bool held) {
  const std::optional<double> load = Next();
  Check(load.has_value(), "a probe that was asked for");
  (held ? held_ : missed_) = load;
}

}  // namespace divvy::client
