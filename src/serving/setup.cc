#include "serving/setup.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace divvy::serving {

LatencyTable::LatencyTable(std::vector<Duration> by_items) : by_items_(std::move(by_items)) {
  Check(!by_items_.empty() && by_items_.front() > Duration(0), "latencies are positive");
  Check(std::ranges::is_sorted(by_items_), "latencies do not fall as batches grow");
}

}  // namespace divvy::serving
