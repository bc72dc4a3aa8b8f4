#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

// What servers tell of themselves: the text format of Prometheus, version 0.0.4.

namespace divvy::control {

struct MetricSample {
  std::string name;
  std::vector<std::pair<std::string, std::string>> labels;  // As written, escapes resolved.
  double value = 0;                                         // NaN and infinities among them.
  int line = 0;                                             // From 1.

  // The value of a label; empty when it has none of this name.
  [[nodiscard]] std::string_view Label(std::string_view label) const;
};

struct MetricsText {
  std::vector<MetricSample> samples;         // In the order of the text.
  std::map<std::string, std::string> types;  // "counter" and so on, of metrics whose TYPE is given.
};

// Reads a scrape. Comments and HELP are passed over, timestamps are read and dropped.
// Any bytes give a value or kInvalidArgument with "FILE:LINE: what is wrong".
[[nodiscard]] Result<MetricsText> ParseMetrics(std::string_view text, std::string_view file_name);

}  // namespace divvy::control
