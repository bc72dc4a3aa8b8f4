#include "simulate_control_html.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>

#include "base/time.h"
#include "control/policies.h"
#include "html_page.h"
#include "report_assets.h"

namespace divvy::app {
namespace {

using Json = nlohmann::ordered_json;
using planner::Work;

// So that a page stays at a few hundred kilobytes, whatever the fleet.
constexpr std::size_t kMostPoints = 600;
constexpr std::size_t kLeastPoints = 50;
constexpr std::size_t kMostValues = 50'000;
constexpr std::size_t kMostBoxes = 6'000;
constexpr std::size_t kMostLogRows = 20;

// Slots of a GPU under MPS: tenths.
constexpr int kTenths = 10;

// A cell on the page, from when it came to when it went or moved.
struct Box {
  int gpu = 0;
  int low = 0;  // Memory slice or tenth at which it begins, and how many it takes.
  int size = 0;
  int profile = -1;  // Of a MIG instance.
  Work work = {};
  double ready = 0;  // Slots, as all times here.
  int from = 0;
  int to = 0;
  std::size_t change = 0;  // That brought it.

  bool SameCell(const Box& other) const {
    return gpu == other.gpu && low == other.low && size == other.size && profile == other.profile &&
           work == other.work && ready == other.ready;
  }
};

// Shares have no place on a GPU; they are drawn one on the other.
std::vector<Box> BoxesOf(const ControlReport& report, const control::LayoutChange& change,
                         std::size_t index) {
  std::vector<control::CellState> cells = change.cells;
  std::ranges::stable_sort(cells, {}, [](const control::CellState& state) {
    return std::tuple(state.cell.gpu, state.cell.work.tenant, state.cell.work.kind);
  });
  std::vector<Box> boxes;
  std::map<int, int> filled;  // Tenths, by GPU.
  for (const control::CellState& state : cells) {
    Box box{.gpu = state.cell.gpu,
            .work = state.cell.work,
            .ready = state.ready_at,
            .from = change.slot,
            .change = index};
    if (const auto* instance = std::get_if<gpu::MigInstance>(&state.cell.where)) {
      box.low = instance->start;
      box.size = report.estate.gpu->profile(instance->profile).memory_slices;
      box.profile = static_cast<int>(instance->profile);
    } else {
      box.low = filled[box.gpu];
      box.size = std::get<control::Share>(state.cell.where).tenths;
      filled[box.gpu] += box.size;
    }
    boxes.push_back(box);
  }
  return boxes;
}

// All that a run did with the GPUs, in order of GPU.
std::vector<Box> Timeline(const ControlReport& report, const control::ControlledRun& run) {
  std::vector<Box> closed;
  std::vector<Box> open;
  const auto close = [&](Box box, int to) {
    box.to = to;
    if (box.from < box.to) closed.push_back(box);
  };
  for (std::size_t i = 0; i < run.changes.size(); ++i) {
    std::vector<Box> next = BoxesOf(report, run.changes[i], i);
    for (const Box& box : open) {
      const auto stays =
          std::ranges::find_if(next, [&](const Box& other) { return other.SameCell(box); });
      if (stays == next.end()) {
        close(box, run.changes[i].slot);
      } else {
        stays->from = box.from;
        stays->change = box.change;
      }
    }
    open = std::move(next);
  }
  for (const Box& box : open) close(box, report.plan.slots);
  std::ranges::stable_sort(closed, {}, &Box::gpu);
  return closed;
}

// In the order that control.js names. GPUs beyond what fits a page are left out whole.
Json LayoutJson(const ControlReport& report, const PolicyOutcomes& policy) {
  const std::vector<Box> boxes = Timeline(report, policy.first);
  const std::size_t most = std::max<std::size_t>(500, kMostBoxes / report.study.policies.size());
  int drawn = report.estate.gpus;
  if (boxes.size() > most) drawn = std::max(1, boxes[most].gpu);
  Json reasons = Json::array();
  std::map<std::string, std::size_t> known;
  Json array = Json::array();
  for (const Box& box : boxes) {
    if (box.gpu >= drawn) break;
    const std::string& why = policy.first.changes[box.change].why;
    const auto [reason, fresh] = known.emplace(why, known.size());
    if (fresh) reasons.push_back(why);
    array.push_back(
        Json::array({box.gpu, box.low, box.size, box.profile, box.from, Rounded(box.ready), box.to,
                     box.work.kind == Work::Kind::kRetrain ? 1 : 0, box.work.tenant,
                     box.work.retraining, reason->second}));
  }
  return {{"gpus", drawn}, {"boxes", std::move(array)}, {"reasons", std::move(reasons)}};
}

// How many slots go into one point of a plot.
std::size_t SlotsPerPoint(const ControlReport& report) {
  const std::size_t tenants = report.estate.tenants.size();
  const std::size_t series = tenants + report.study.policies.size() * (3 * tenants + 2);
  const std::size_t points = std::clamp(kMostValues / series, kLeastPoints, kMostPoints);
  return (static_cast<std::size_t>(report.plan.slots) + points - 1) / points;
}

// Means over `step` slots each, times `factor`.
Json Means(const std::vector<double>& values, std::size_t step, double factor) {
  Json array = Json::array();
  for (std::size_t begin = 0; begin < values.size(); begin += step) {
    const std::size_t end = std::min(begin + step, values.size());
    double sum = 0;
    for (std::size_t i = begin; i < end; ++i) sum += values[i];
    array.push_back(Rounded(sum / static_cast<double>(end - begin) * factor));
  }
  return array;
}

Json SeriesJson(const ControlReport& report, const control::ControlledRun& run, std::size_t step) {
  const double a_second = 1 / Seconds(report.estate.slot);
  const auto slots = static_cast<std::size_t>(report.plan.slots);
  std::vector<double> goodput(slots);
  std::vector<double> lost(slots);
  Json tenants = Json::array();
  for (std::size_t m = 0; m < run.tenants.size(); ++m) {
    const control::TenantSeries& series = run.tenants[m];
    for (std::size_t i = 0; i < slots; ++i) {
      goodput[i] += series.in_time[i] * report.estate.Worth(m, series.accuracy[i]);
      lost[i] += series.lost[i];
    }
    tenants.push_back(
        {{"capacity", Means(series.capacity, step, a_second)},
         {"in_time", Means(series.in_time, step, a_second)},
         {"accuracy",
          report.estate.tenants[m].learning ? Means(series.accuracy, step, 1) : Json(nullptr)}});
  }
  for (std::size_t i = 1; i < slots; ++i) lost[i] += lost[i - 1];
  return {{"tenants", std::move(tenants)},
          {"goodput", Means(goodput, step, a_second)},
          {"lost", Means(lost, step, 1)}};
}

Json EstimateJson(const std::optional<Estimate>& estimate) {
  if (!estimate) return nullptr;
  return Json::array({Rounded(estimate->mean), Rounded(estimate->error)});
}

Json StandingJson(const PolicyStanding& standing) {
  Json tenants = Json::array();
  for (const TenantStanding& tenant : standing.tenants) {
    tenants.push_back(Json::array({Rounded(tenant.attainment), Rounded(tenant.accuracy)}));
  }
  return {{"goodput", EstimateJson(standing.goodput)},
          {"against_first", EstimateJson(standing.against_first)},
          {"of_oracle", EstimateJson(standing.of_oracle)},
          {"in_time", Rounded(standing.attainment)},
          {"accuracy", Rounded(standing.accuracy)},
          {"retrained", Rounded(standing.retrained)},
          {"changes", Rounded(standing.reconfigurations)},
          {"starts", Rounded(standing.starts)},
          {"lost", Rounded(standing.lost)},
          {"gap", Rounded(standing.mean_gap)},
          {"worst_gap", Rounded(standing.worst_gap)},
          {"not_done", standing.not_done},
          {"tenants", std::move(tenants)}};
}

std::string_view WhatIs(std::string_view policy) {
  const auto names = control::PolicyNames();
  const auto found = std::ranges::find(names, policy, &control::PolicyName::name);
  return found == names.end() ? "" : found->what;
}

Json PoliciesJson(const ControlReport& report, std::size_t step) {
  const std::vector<PolicyStanding> standings = StandingsOf(report);
  Json array = Json::array();
  for (std::size_t i = 0; i < standings.size(); ++i) {
    const PolicyOutcomes& policy = report.study.policies[i];
    const std::vector<std::string>& log = policy.first.log;
    const std::size_t shown = std::min(kMostLogRows, log.size());
    array.push_back({{"name", policy.policy},
                     {"what", WhatIs(policy.policy)},
                     {"slices", policy.mig ? report.estate.gpu->memory_slices : kTenths},
                     {"mig", policy.mig},
                     {"standing", StandingJson(standings[i])},
                     {"layout", LayoutJson(report, policy)},
                     {"series", SeriesJson(report, policy.first, step)},
                     {"log", std::vector<std::string>(
                                 log.begin(), log.begin() + static_cast<std::ptrdiff_t>(shown))}});
  }
  return array;
}

Json TenantsJson(const ControlReport& report, std::size_t step) {
  const double a_second = 1 / Seconds(report.estate.slot);
  const control::ControlledRun& any = report.study.policies.front().first;
  Json array = Json::array();
  for (std::size_t m = 0; m < report.estate.tenants.size(); ++m) {
    const control::EstateTenant& tenant = report.estate.tenants[m];
    Json options = Json::array();
    if (tenant.learning) {
      for (const workload::RetrainingOption& option : tenant.learning->options) {
        options.push_back(option.name);
      }
    }
    array.push_back({{"name", tenant.name},
                     {"slo_ms", Milliseconds(tenant.slo)},
                     {"options", std::move(options)},
                     {"load", Means(any.tenants[m].offered, step, a_second)}});
  }
  return array;
}

Json DataOf(const ControlReport& report) {
  const std::size_t step = SlotsPerPoint(report);
  Json profiles = Json::array();
  for (const gpu::MigProfile& profile : report.estate.gpu->profiles) {
    profiles.push_back(profile.name);
  }
  Json rejected = Json::array();
  for (const RejectedPolicy& policy : report.study.rejected) {
    rejected.push_back({{"policy", policy.policy}, {"why", policy.why}});
  }
  return {{"about", DescribeControl(report)},
          {"gpu", report.estate.gpu->name},
          {"gpus", report.estate.gpus},
          {"profiles", std::move(profiles)},
          {"slot_s", Seconds(report.estate.slot)},
          {"slots", report.plan.slots},
          {"window", report.estate.window},
          {"step", step},
          {"first_seed", std::to_string(report.plan.seeds.front())},
          {"seeds", report.plan.seeds.size()},
          {"tenants", TenantsJson(report, step)},
          {"policies", PoliciesJson(report, step)},
          {"rejected", std::move(rejected)},
          {"notes", report.notes}};
}

}  // namespace

std::string ControlHtml(const ControlReport& report) {
  return HtmlPage("Control of " + report.fleet_name,
                  std::string(kReportStyle) + std::string(kControlStyle),
                  std::string(kPageScript) + std::string(kControlScript), DataOf(report));
}

}  // namespace divvy::app
