#include "client/schedule.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace divvy::client {
namespace {

// For a heap with the earliest in front.
bool Later(const Due& a, const Due& b) { return std::tie(a.at, a.model) > std::tie(b.at, b.model); }

}  // namespace

void Schedule::Part::Pull(int model) {
  const auto arrival = streams[static_cast<std::size_t>(model)].Next();
  if (!arrival || arrival->at >= length) return;
  heads.push_back({arrival->at, model, arrival->batch});
  std::ranges::push_heap(heads, Later);
}

std::optional<Due> Schedule::Part::Next() {
  if (heads.empty()) return std::nullopt;
  std::ranges::pop_heap(heads, Later);
  const Due due = heads.back();
  heads.pop_back();
  Pull(due.model);
  return due;
}

Schedule::Schedule(std::vector<workload::ArrivalStream> measured, Duration length,
                   std::vector<workload::ArrivalStream> warm_up, Duration warm_up_length)
    : warm_up_{std::move(warm_up), warm_up_length}, measured_{std::move(measured), length} {
  for (Part* part : {&warm_up_, &measured_}) {
    for (std::size_t i = 0; i < part->streams.size(); ++i) part->Pull(static_cast<int>(i));
  }
}

std::optional<Due> Schedule::Next() {
  if (auto due = warm_up_.Next()) {
    due->at -= warm_up_.length;
    return due;
  }
  return measured_.Next();
}

}  // namespace divvy::client
