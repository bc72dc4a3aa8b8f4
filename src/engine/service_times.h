#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

#include "base/random.h"
#include "base/result.h"
#include "base/time.h"

namespace divvy::engine {

// How long batches take, by their items.
class LatencyTable {
 public:
  // "900,1400,1850": microseconds of 1, 2 and 3 items. "1:900,8:3100": of those counts. An entry
  // without a count is of the one after its predecessor's. "" : no time at all. kInvalidArgument
  // says which entry is wrong.
  [[nodiscard]] static Result<LatencyTable> Parse(std::string_view text);

  // On the straight line between the counts around `items`; outside them, the nearest one's.
  [[nodiscard]] Duration At(int items) const;

 private:
  std::map<int, Duration> by_items_;
};

// Times drawn around a table's: lognormal, with the table's as their mean.
class ServiceTimes {
 public:
  // `spread`: the deviation of the time's logarithm; 0: always the table's.
  ServiceTimes(LatencyTable table, double spread, std::uint64_t seed)
      : table_(std::move(table)), spread_(spread), random_(seed) {}

  [[nodiscard]] Duration Draw(int items);

 private:
  LatencyTable table_;
  double spread_;
  Random random_;
};

}  // namespace divvy::engine
