#include "simulate_trace.h"

#include <fmt/format.h>

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/spelling.h"
#include "base/text_safety.h"
#include "text_file.h"

namespace divvy::app {
namespace {

using workload::ModelTrace;

// Which model of the fleet a part of the trace is about.
[[nodiscard]] Result<std::size_t> ModelOf(const LoadedFleet& fleet, const ModelTrace& part,
                                          std::string_view file) {
  std::vector<std::string_view> names;
  for (const planner::ModelDemand& model : fleet.problem.models) names.push_back(model.name);
  if (part.model.empty()) {
    if (names.size() == 1) return 0;
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} names no model, and the fleet has {} ({}); --trace can give it to "
                            "a fleet with one model, or the fleet's `load` can name it",
                            file, names.size(), fmt::join(names, ", ")));
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == part.model) return i;
  }
  std::string hint = DidYouMean(part.model, names);
  if (hint.empty()) hint = fmt::format("; it has {}", fmt::join(names, ", "));
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{} asks for model {}, which the fleet does not have{}", file,
                          Quoted(part.model), hint));
}

// As the fleet says for its own trace, if it has one.
workload::TokenScale ScaleOf(const LoadedFleet& fleet) {
  const auto* load = std::get_if<workload::TraceLoad>(&fleet.fleet.models.front().load);
  return load == nullptr ? workload::TokenScale{} : workload::TokenScale{load->tokens_per_item};
}

}  // namespace

Result<void> ReplaceLoad(LoadedFleet& fleet, const std::string& path) {
  const std::string_view file = NameOfInput(path);
  const auto text = ReadText(path);
  if (!text) return Fail(text.error());
  auto parsed = workload::ParseTrace(*text, file, ScaleOf(fleet));
  if (!parsed) return Fail(parsed.error());
  const workload::Trace& trace = fleet.traces.emplace_back(std::move(*parsed));
  const double seconds = Seconds(trace.length);
  if (seconds <= 0) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} ends where it begins, so it has no rate; it needs arrivals at two "
                            "times at least",
                            file));
  }
  for (const ModelTrace& part : trace.models) {
    const auto index = ModelOf(fleet, part, file);
    if (!index) return Fail(index.error());
    auto batches = workload::BatchesOf(part);
    if (!batches) return Fail(batches.error());
    planner::ModelDemand& demand = fleet.problem.models[*index];
    demand.rate = static_cast<double>(part.arrivals.size()) / seconds;
    demand.batches = std::move(*batches);
    fleet.sources[*index].arrivals = std::span<const workload::Arrival>(part.arrivals);
    fleet.notes.push_back(fmt::format("{}: load of {}, {} requests over {:.4g} s, {:.4g}/s",
                                      demand.name, file, part.arrivals.size(), seconds,
                                      demand.rate));
  }
  return {};
}

}  // namespace divvy::app
