#include "control_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <variant>

#include "apply_report.h"
#include "base/time.h"
#include "control_node.h"
#include "device/change.h"

namespace divvy::app {
namespace {

using control::CellState;
using nlohmann::json;
using planner::Work;

json CellsJson(const control::Estate& estate, std::span<const CellState> cells) {
  json array = json::array();
  for (const CellState& state : cells) {
    const auto& place = std::get<gpu::MigInstance>(state.cell.where);
    json cell = {{"gpu", state.cell.gpu},
                 {"profile", estate.gpu->profile(place.profile).name},
                 {"start", place.start},
                 {"ready_at_slot", state.ready_at}};
    if (state.cell.work.kind == Work::Kind::kServe) {
      cell["model"] = estate.tenants[state.cell.work.tenant].name;
    } else {
      cell["job"] = JobName(estate, state.cell.work);
    }
    array.push_back(std::move(cell));
  }
  return array;
}

}  // namespace

void EventLines::Tell(int slot, std::string_view event, std::string_view text, const json& facts) {
  said_.insert_or_assign(std::string(event), std::string(text));
  if (form_ == Form::kText) {
    fmt::print("slot {:<5} {:<9} {}\n", slot, event, text);
  } else {
    json line = {
        {"slot", slot}, {"time_s", slot * Seconds(estate_.slot)}, {"event", event}, {"text", text}};
    line.update(facts);
    // Paths in messages may have any bytes.
    fmt::print("{}\n", line.dump(-1, ' ', false, json::error_handler_t::replace));
  }
  // Whoever reads a log wants it now.
  std::fflush(stdout);
}

void EventLines::TellOnce(int slot, std::string_view event, std::string_view text) {
  const auto last = said_.find(event);
  if (last == said_.end() || last->second != text) Tell(slot, event, text);
}

void EventLines::Forget(std::string_view event) {
  if (const auto last = said_.find(event); last != said_.end()) said_.erase(last);
}

void EventLines::TellChange(int slot, std::string_view why, std::span<const CellState> cells,
                            const std::vector<device::GpuChange>& steps, bool with_steps) {
  json facts = ToJson(steps);
  facts["cells"] = CellsJson(estate_, cells);
  Tell(slot, "changed", why, facts);
  if (form_ == Form::kJson || !with_steps) return;
  for (const device::GpuChange& change : steps) {
    for (const device::Step& step : change.steps) {
      fmt::print("           GPU {}: {}\n", change.now.index, device::Describe(step));
    }
  }
  std::fflush(stdout);
}

WindowSummary::WindowSummary(const control::Estate& estate)
    : estate_(estate), sums_(estate.tenants.size()) {}

void WindowSummary::Ended(std::span<const double> arrivals) {
  if (arrivals.empty()) return;
  for (std::size_t m = 0; m < sums_.size(); ++m) sums_[m].offered += arrivals[m];
  ++ended_;
}

void WindowSummary::Began(const control::View& view) {
  for (std::size_t m = 0; m < sums_.size(); ++m) sums_[m].accuracy += view.tenants[m].accuracy;
  for (const CellState& state : view.cells) {
    if (state.cell.work.kind != Work::Kind::kServe) continue;
    const double ready = std::clamp(view.slot + 1 - state.ready_at, 0.0, 1.0);
    sums_[state.cell.work.tenant].capacity +=
        ready * control::OfferAt(estate_, state.cell).capacity;
  }
  ++began_;
}

void WindowSummary::Tell(int slot, EventLines& lines) {
  if (began_ == 0) return;
  const double slot_s = Seconds(estate_.slot);
  std::string text;
  json facts = json::array();
  for (std::size_t m = 0; m < sums_.size(); ++m) {
    const control::EstateTenant& tenant = estate_.tenants[m];
    json fact = {{"name", tenant.name}};
    if (!text.empty()) text += "; ";
    text += tenant.name;
    if (ended_ > 0) {
      fact["offered_per_s"] = sums_[m].offered / ended_ / slot_s;
      text += fmt::format(" {:.0f}/s came,", sums_[m].offered / ended_ / slot_s);
    }
    fact["capacity_per_s"] = sums_[m].capacity / began_ / slot_s;
    text += fmt::format(" {:.0f}/s planned", sums_[m].capacity / began_ / slot_s);
    if (tenant.learning) {
      fact["accuracy"] = sums_[m].accuracy / began_;
      text += fmt::format(", accuracy {:.3f}", sums_[m].accuracy / began_);
    }
    facts.push_back(std::move(fact));
  }
  lines.Tell(slot, "window", text, {{"tenants", std::move(facts)}});
  sums_.assign(sums_.size(), {});
  ended_ = began_ = 0;
}

}  // namespace divvy::app
