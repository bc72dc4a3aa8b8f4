#include "control_observe.h"

#include <filesystem>
#include <utility>
#include <variant>

#include "control/metrics_text.h"
#include "text_file.h"

namespace divvy::app {

using Counts = std::optional<std::vector<double>>;

MetricsObservation::MetricsObservation(std::string path, control::RequestCounter counter)
    : path_(std::move(path)), counter_(std::move(counter)) {}

Result<Counts> MetricsObservation::Look(int slot) {
  // To open a pipe could take for ever, signals or not.
  std::error_code error;
  if (std::filesystem::exists(path_, error) && !std::filesystem::is_regular_file(path_, error)) {
    return Fail(ErrorCode::kUnavailable, path_ + " is not a file");
  }
  const auto text = ReadText(path_);
  if (!text) return Fail(text.error());
  const auto metrics = control::ParseMetrics(*text, path_);
  if (!metrics) return Fail(metrics.error());
  return counter_.Take(slot, *metrics, path_);
}

ReplayObservation::ReplayObservation(std::span<const sim::Source> sources, std::uint64_t seed,
                                     Duration slot, int last_slot)
    : slot_(slot), last_slot_(0) {
  for (workload::ArrivalStream& stream : sim::StreamsOf(sources, seed)) {
    auto next = stream.Next();
    tenants_.push_back({std::move(stream), next});
  }
  if (last_slot > 0) static_cast<void>(Look(last_slot));
}

Result<Counts> ReplayObservation::Look(int slot) {
  Counts counts(std::in_place);
  const Duration end = slot_ * slot;
  for (Tenant& tenant : tenants_) {
    double count = 0;
    for (; tenant.next && tenant.next->at < end; tenant.next = tenant.stream.Next()) ++count;
    counts->push_back(slot > last_slot_ ? count / (slot - last_slot_) : 0);
  }
  last_slot_ = slot;
  return counts;
}

}  // namespace divvy::app
