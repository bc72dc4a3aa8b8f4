#include "simulate_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "table.h"

namespace divvy::app {
namespace {

// Keys in the order they are written here.
using Json = nlohmann::ordered_json;

// More would push the answer off the screen.
constexpr std::size_t kMostPartitionsShown = 64;

// What is equal for a person: the runs are random.
constexpr double kEqual = 0.001;

const CandidatePlan& PlanOf(const SimulateReport& report, std::size_t plan) {
  return *report.candidates.plans[plan];
}

std::string PairName(const SimulateReport& report, std::size_t plan, std::size_t route) {
  return fmt::format("{} with {}", PlanOf(report, plan).name,
                     serving::Describe(report.plan.routes[route]));
}

// Three digits, without an exponent: 0.0123, 4.56, 789, 12345.
std::string Figure(double value) {
  if (value == 0) return "0";
  const int digits =
      std::clamp(2 - static_cast<int>(std::floor(std::log10(std::abs(value)))), 0, 4);
  return fmt::format("{:.{}f}", value, digits);
}

std::string Latency(const ModelRow& row, const std::optional<Duration>& latency) {
  if (latency) return Figure(Milliseconds(*latency));
  return row.offered > 0 ? "refused" : "-";
}

std::string RowsText(const SimulateReport& report) {
  const bool bounded = report.plan.bounded;
  std::vector<std::vector<std::string>> table = {{"PLAN", "ROUTE", "MODEL", "GPUS", "RATE/S",
                                                  "P50 MS", "P95 MS", "P99 MS", "SLO MS", "IN TIME",
                                                  "GOODPUT/S", "SHED", "BUSY"}};
  if (bounded) table[0].emplace_back("BOUNDED/S");
  for (const ModelRow& row : report.study.rows) {
    const planner::ModelDemand& model = report.fleet.problem.models[row.model];
    table.push_back({PlanOf(report, row.plan).name,
                     serving::Describe(report.plan.routes[row.route]), model.name,
                     std::to_string(PlanOf(report, row.plan).gpus()), Figure(row.rate),
                     Latency(row, row.p50), Latency(row, row.p95), Latency(row, row.p99),
                     Figure(Milliseconds(model.slo)), Percent(row.attainment), Figure(row.goodput),
                     std::to_string(row.shed), Percent(row.utilization)});
    if (bounded) table.back().push_back(row.bounded_rps ? Figure(*row.bounded_rps) : "-");
  }
  return Table(table, 3);
}

std::string RejectedText(const SimulateReport& report) {
  std::string text;
  for (const RejectedPlan& rejected : report.candidates.rejected) {
    text += fmt::format("{}: no plan. {}", rejected.name, rejected.why);
    if (rejected.gpus_needed) {
      text += fmt::format("; {} would do",
                          Count(static_cast<std::size_t>(*rejected.gpus_needed), "GPU"));
    }
    if (rejected.slo_needed) {
      text += fmt::format("; an SLO of {} ms would do", Figure(Milliseconds(*rejected.slo_needed)));
    }
    text += '\n';
  }
  return text;
}

std::string Runs(const PartitionRow& row) {
  switch (row.kind) {
    case PartitionRow::Kind::kModel:
      return row.processes == 1 ? row.runs
                                : fmt::format("{} ({} processes)", row.runs, row.processes);
    case PartitionRow::Kind::kJob:
      return row.runs + " (job)";
    case PartitionRow::Kind::kIdle:
      return "-";
  }
  return "";
}

// What each instance did, where there is one run to tell about.
std::string PartitionsText(const SimulateReport& report) {
  const bool one = report.candidates.plans.size() == 1 && report.plan.routes.size() == 1;
  const std::vector<PartitionRow>& partitions = report.study.partitions;
  if (!one || partitions.empty() || partitions.size() > kMostPartitionsShown) return "";
  const bool changes = PlanOf(report, 0).plans.size() > 1;
  std::vector<std::vector<std::string>> table = {
      {"GPU", "INSTANCE", "AT", "RUNS", "BUSY", "REQUESTS", "BATCHES", "ITEMS A BATCH"}};
  if (changes) table[0].emplace_back("PLANNED AT S");
  for (const PartitionRow& row : partitions) {
    const bool serves = row.kind == PartitionRow::Kind::kModel;
    table.push_back(
        {row.gpu_name, row.profile, row.start ? std::to_string(*row.start) : "any", Runs(row),
         Percent(row.utilization), serves ? std::to_string(row.requests) : "-",
         serves ? std::to_string(row.batches) : "-",
         row.batches > 0
             ? fmt::format("{:.2f} of {}",
                           static_cast<double>(row.items) / static_cast<double>(row.batches),
                           row.max_batch)
             : "-"});
    if (changes) table.back().push_back(Figure(Seconds(row.from.time_since_epoch())));
  }
  return "\n" + Table(table, 4);
}

std::string BestText(const SimulateReport& report) {
  const std::vector<Standing> ranked = Rank(report);
  if (ranked.size() < 2) return "";
  const Standing& best = ranked.front();
  const std::string name = PairName(report, best.plan, best.route);
  const auto value = [&](const Standing& standing) {
    return best.bounded ? standing.bounded.value_or(0) : standing.goodput;
  };
  const auto equals = std::count_if(ranked.begin() + 1, ranked.end(), [&](const Standing& other) {
    return value(other) >= (1 - kEqual) * value(best);
  });
  const std::string what =
      best.bounded ? fmt::format("{} times this load within the SLOs", Figure(*best.bounded))
                   : fmt::format("{} requests a second in time", Figure(best.goodput));
  if (equals + 1 == std::ssize(ranked)) {
    return fmt::format("\nAll {} carry {}; {} needs {}.{}\n", ranked.size(), what, name,
                       Count(best.gpus, "GPU"),
                       best.bounded ? "" : " --bounded finds how much more each could carry.");
  }
  std::string text =
      fmt::format("\nBest: {} carries {}, on {}.", name, what, Count(best.gpus, "GPU"));
  if (equals > 0)
    text +=
        fmt::format(" {} within 0.1 % of it.", Count(static_cast<std::size_t>(equals), "other"));
  return text + "\n";
}

Json FigureOrNull(const std::optional<Duration>& latency) {
  return latency ? Json(Milliseconds(*latency)) : Json(nullptr);
}

template <typename T>
Json FigureOrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json ToJson(const SimulateReport& report, const ModelRow& row) {
  const planner::ModelDemand& model = report.fleet.problem.models[row.model];
  return {{"plan", PlanOf(report, row.plan).name},
          {"route", serving::Describe(report.plan.routes[row.route])},
          {"model", model.name},
          {"gpus", PlanOf(report, row.plan).gpus()},
          {"load_factor", row.factor},
          {"rate", row.rate},
          {"offered", row.offered},
          {"p50_ms", FigureOrNull(row.p50)},
          {"p95_ms", FigureOrNull(row.p95)},
          {"p99_ms", FigureOrNull(row.p99)},
          {"slo_ms", Milliseconds(model.slo)},
          {"slo_attainment", row.attainment},
          {"goodput_rps", row.goodput},
          {"shed", row.shed},
          {"utilization", row.utilization},
          {"latency_bounded_rps", FigureOrNull(row.bounded_rps)}};
}

Json ToJson(const SimulateReport& report, const PartitionRow& row) {
  const bool serves = row.kind == PartitionRow::Kind::kModel;
  const bool job = row.kind == PartitionRow::Kind::kJob;
  return {{"plan", PlanOf(report, row.plan).name},
          {"route", serving::Describe(report.plan.routes[row.route])},
          {"load_factor", row.factor},
          {"gpu", row.gpu_name},
          {"profile", row.profile},
          {"start", FigureOrNull(row.start)},
          {"planned_at_s", Seconds(row.from.time_since_epoch())},
          {"model", serves ? Json(row.runs) : Json(nullptr)},
          {"job", job ? Json(row.runs) : Json(nullptr)},
          {"processes", row.processes},
          {"max_batch", serves ? Json(row.max_batch) : Json(nullptr)},
          {"utilization", row.utilization},
          {"requests", row.requests},
          {"batches", row.batches},
          {"items", row.items}};
}

}  // namespace

std::vector<std::string> SimulateReport::Notes() const {
  std::vector<std::string> notes = fleet.notes;
  notes.insert(notes.end(), candidates.notes.begin(), candidates.notes.end());
  notes.insert(notes.end(), study.notes.begin(), study.notes.end());
  return notes;
}

std::vector<Standing> Rank(const SimulateReport& report) {
  const double highest = *std::ranges::max_element(report.plan.factors);
  std::map<std::pair<std::size_t, std::size_t>, Standing> pairs;
  for (const ModelRow& row : report.study.rows) {
    Standing& standing = pairs[{row.plan, row.route}];
    standing.plan = row.plan;
    standing.route = row.route;
    standing.gpus = PlanOf(report, row.plan).gpus();
    const double rate = report.fleet.problem.models[row.model].rate;
    if (row.bounded_rps) standing.bounded = *row.bounded_rps / rate;
    if (row.factor == highest) {
      standing.goodput += row.goodput * report.fleet.fleet.models[row.model].weight;
    }
  }
  std::vector<Standing> ranked;
  for (const auto& [pair, standing] : pairs) ranked.push_back(standing);
  if (ranked.empty()) return ranked;
  // Factors are compared with factors: one that was beyond measure is ahead of all.
  const bool by_factor = std::ranges::any_of(
      ranked, [](const Standing& standing) { return standing.bounded.has_value(); });
  const auto value = [&](const Standing& standing) {
    return by_factor ? standing.bounded.value_or(1e9) : standing.goodput;
  };
  std::stable_sort(ranked.begin(), ranked.end(),
                   [&](const Standing& a, const Standing& b) { return value(a) > value(b); });
  const double least = (1 - kEqual) * value(ranked.front());
  const auto equals_end = std::ranges::find_if(
      ranked, [&](const Standing& standing) { return value(standing) < least; });
  std::stable_sort(ranked.begin(), equals_end,
                   [](const Standing& a, const Standing& b) { return a.gpus < b.gpus; });
  return ranked;
}

std::string SimulateTable(const SimulateReport& report) {
  std::string text;
  if (!report.study.rows.empty()) text += RowsText(report);
  text += PartitionsText(report);
  text += BestText(report);
  if (!report.candidates.rejected.empty()) text += "\n" + RejectedText(report);
  const std::vector<std::string> notes = report.Notes();
  if (!notes.empty()) text += "\nNotes:\n";
  for (const std::string& note : notes) text += fmt::format("  {}\n", note);
  return text;
}

std::string SimulateJson(const SimulateReport& report) {
  Json rows = Json::array();
  for (const ModelRow& row : report.study.rows) rows.push_back(ToJson(report, row));
  Json partitions = Json::array();
  for (const PartitionRow& row : report.study.partitions) partitions.push_back(ToJson(report, row));
  Json infeasible = Json::array();
  for (const RejectedPlan& rejected : report.candidates.rejected) {
    infeasible.push_back({{"plan", rejected.name},
                          {"why", rejected.why},
                          {"gpus_needed", FigureOrNull(rejected.gpus_needed)},
                          {"slo_needed_ms", FigureOrNull(rejected.slo_needed)}});
  }
  const Json all = {{"rows", std::move(rows)},
                    {"partitions", std::move(partitions)},
                    {"infeasible", std::move(infeasible)},
                    {"notes", report.Notes()},
                    {"seed", report.plan.seed},
                    {"requests", FigureOrNull(report.plan.requests)}};
  // Names of files may be any bytes.
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace divvy::app
