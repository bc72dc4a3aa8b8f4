#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "control/metrics_text.h"

namespace divvy::control {

// Turns counters that only grow into requests a slot. A model may have several series
// (versions, GPUs, servers): each is followed by itself, told apart by its labels. One
// that falls began anew at zero; one that is new counts from the second time it is seen.
// Not thread-safe.
class RequestCounter {
 public:
  // `metric` has the label "model", whose values are the names of `models`.
  RequestCounter(std::vector<std::string> models, std::string metric);

  // Requests of each model in a slot, on average over the slots since the last answer.
  // `slot` is the one that begins, later than at the last call. Nothing for the first
  // look, which only shows where the counters stand. Errors leave everything as it was, and name
  // `file_name`, with the line where there is one:
  //   kNotFound         a model has no series;
  //   kInvalidArgument  the metric is not a counter, a value is no count, a series
  //                     is there twice.
  [[nodiscard]] Result<std::optional<std::vector<double>>> Take(int slot,
                                                                const MetricsText& metrics,
                                                                std::string_view file_name);

 private:
  // Values of a model's series, by their labels.
  using Series = std::map<std::vector<std::pair<std::string, std::string>>, double>;

  [[nodiscard]] Result<std::vector<Series>> Read(const MetricsText& metrics,
                                                 std::string_view file_name) const;

  std::vector<std::string> models_;
  std::string metric_;
  std::vector<Series> last_;  // By model; empty before the first look.
  int last_slot_ = 0;
};

}  // namespace divvy::control
