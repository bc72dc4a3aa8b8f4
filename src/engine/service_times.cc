#include "engine/service_times.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <optional>

#include "base/number.h"
#include "base/text_safety.h"

namespace divvy::engine {
namespace {

constexpr double kMostUs = 3.6e9;  // An hour.
constexpr int kMostItems = 65536;

}  // namespace

Result<LatencyTable> LatencyTable::Parse(std::string_view text) {
  LatencyTable table;
  int items = 0;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view entry = text.substr(0, comma);
    const std::size_t colon = entry.find(':');
    const bool counted = colon != std::string_view::npos;
    const std::optional<int> count = counted ? ParseInteger(entry.substr(0, colon)) : items + 1;
    const std::optional<double> us = ParseReal(counted ? entry.substr(colon + 1) : entry);
    if (!count || *count <= items || *count > kMostItems || !us || *us < 0 || *us > kMostUs) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} is no time of a batch: microseconds, or ITEMS:MICROSECONDS with "
                              "items that ascend",
                              Quoted(entry)));
    }
    items = *count;
    table.by_items_[items] = FromMilliseconds(*us / 1e3);
    if (comma == std::string_view::npos) return table;
    text.remove_prefix(comma + 1);
    if (text.empty()) {
      return Fail(ErrorCode::kInvalidArgument, "a time is missing after the last comma");
    }
  }
  return table;
}

Duration LatencyTable::At(int items) const {
  if (by_items_.empty()) return Duration::zero();
  const auto above = by_items_.lower_bound(items);
  if (above == by_items_.end()) return by_items_.rbegin()->second;
  if (above->first == items || above == by_items_.begin()) return above->second;
  const auto below = std::prev(above);
  const double share =
      static_cast<double>(items - below->first) / static_cast<double>(above->first - below->first);
  const double step = static_cast<double>((above->second - below->second).count());
  return below->second + Duration(std::llround(share * step));
}

Duration ServiceTimes::Draw(int items) {
  const Duration mean = table_.At(items);
  if (spread_ <= 0) return mean;
  // exp(-s^2 / 2) is what keeps the mean where it is.
  const double factor = std::exp(spread_ * random_.Normal() - spread_ * spread_ / 2);
  return Duration(std::llround(static_cast<double>(mean.count()) * factor));
}

}  // namespace divvy::engine
