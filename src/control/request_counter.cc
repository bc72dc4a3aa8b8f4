#include "control/request_counter.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/text_safety.h"

namespace divvy::control {
namespace {

// Beyond this a double no longer tells one request from the next by far, and sums of
// such stay finite.
constexpr double kMost = 1e18;

}  // namespace

RequestCounter::RequestCounter(std::vector<std::string> models, std::string metric)
    : models_(std::move(models)), metric_(std::move(metric)) {}

Result<std::vector<RequestCounter::Series>> RequestCounter::Read(const MetricsText& metrics,
                                                                 std::string_view file_name) const {
  const auto type = metrics.types.find(metric_);
  if (type != metrics.types.end() && type->second != "counter" && type->second != "untyped") {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: {} is a {}, not a counter", file_name, metric_, type->second));
  }
  std::vector<Series> all(models_.size());
  for (const MetricSample& sample : metrics.samples) {
    if (sample.name != metric_) continue;
    const auto model = std::ranges::find(models_, sample.Label("model"));
    if (model == models_.end()) continue;  // Others may be served there, too.
    if (!(sample.value >= 0 && sample.value <= kMost)) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}:{}: {} of {} is {}, which is no count", file_name, sample.line,
                              metric_, *model, sample.value));
    }
    auto labels = sample.labels;
    std::ranges::sort(labels);
    Series& series = all[static_cast<std::size_t>(model - models_.begin())];
    if (!series.emplace(std::move(labels), sample.value).second) {
      return Fail(ErrorCode::kInvalidArgument, fmt::format("{}:{}: the same series of {} again",
                                                           file_name, sample.line, *model));
    }
  }
  for (std::size_t m = 0; m < models_.size(); ++m) {
    if (!all[m].empty()) continue;
    return Fail(ErrorCode::kNotFound,
                fmt::format("{} has no {} of model {}", file_name, metric_, Quoted(models_[m])));
  }
  return all;
}

Result<std::optional<std::vector<double>>> RequestCounter::Take(int slot,
                                                                const MetricsText& metrics,
                                                                std::string_view file_name) {
  auto now = Read(metrics, file_name);
  if (!now) return Fail(now.error());
  std::optional<std::vector<double>> requests;
  if (!last_.empty()) {
    Check(slot > last_slot_, "slots go on");
    requests.emplace();
    for (std::size_t m = 0; m < models_.size(); ++m) {
      double sum = 0;
      for (const auto& [labels, value] : (*now)[m]) {
        const auto before = last_[m].find(labels);
        if (before == last_[m].end()) continue;
        sum += value >= before->second ? value - before->second : value;
      }
      requests->push_back(sum / (slot - last_slot_));
    }
  }
  last_ = *std::move(now);
  last_slot_ = slot;
  return requests;
}

}  // namespace divvy::control
