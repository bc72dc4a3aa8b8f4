#include "bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/csv.h"
#include "base/yaml_reader.h"
#include "table.h"

namespace divvy::app {
namespace {

using Json = nlohmann::ordered_json;
using client::Estimate;
using client::Figures;
using client::Group;
using client::Outcome;
using client::Summary;

constexpr const char* kPercentileNames[] = {"p50", "p90", "p95", "p99", "p99.9"};
constexpr const char* kPercentileHeads[] = {"P50", "P90", "P95", "P99", "P99.9"};
static_assert(std::size(kPercentileNames) == client::kPercentiles.size());
static_assert(std::size(kPercentileHeads) == client::kPercentiles.size());

std::string Ms(Duration time) { return FourDigits(Milliseconds(time)); }

std::string Dumped(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// "12.3 [11.9, 13.1]"; an end that the sample is too small for is "..".
std::string WithInterval(const Estimate& estimate) {
  return fmt::format("{} [{}, {}]", Ms(estimate.value), estimate.low ? Ms(*estimate.low) : "..",
                     estimate.high ? Ms(*estimate.high) : "..");
}

std::string Items(const Group& group) {
  if (group.least_items == group.most_items) return std::to_string(group.least_items);
  return fmt::format("{}-{}", group.least_items, group.most_items);
}

// A line of either table: a model, or one of its sizes.
struct Line {
  std::string name;
  std::string items;
  const Figures* figures;
};

std::vector<Line> LinesOf(const BenchContext& context, const Summary& summary) {
  std::vector<Line> lines;
  for (const Group& model : summary.models) {
    const std::string& name = context.load.names[static_cast<std::size_t>(model.model)];
    lines.push_back({name, "", &model.figures});
    for (const Group& size : summary.sizes) {
      if (size.model == model.model) lines.push_back({"", Items(size), &size.figures});
    }
  }
  if (summary.models.size() > 1) lines.push_back({"all", "", &summary.all});
  return lines;
}

// Without the column of items where no line has any.
std::string Drawn(std::vector<std::vector<std::string>> rows, const std::vector<Line>& lines) {
  const bool sizes =
      std::ranges::any_of(lines, [](const Line& line) { return !line.items.empty(); });
  if (sizes) return Table(rows, 2);
  for (std::vector<std::string>& row : rows) row.erase(row.begin() + 1);
  return Table(rows, 1);
}

std::string CountTable(const Summary& summary, const std::vector<Line>& lines) {
  std::vector<std::vector<std::string>> rows = {{"MODEL", "ITEMS", "SENT", "ANSWERED", "IN TIME",
                                                 "LATE", "REFUSED", "FAILED", "ATTAINMENT",
                                                 "GOODPUT/S", "THROUGHPUT/S"}};
  for (const auto& [name, items, figures] : lines) {
    const bool slo = figures->with_slo > 0;
    rows.push_back({name, items, std::to_string(figures->sent), std::to_string(figures->answered),
                    slo ? std::to_string(figures->in_time) : "-",
                    slo ? std::to_string(figures->late) : "-", std::to_string(figures->refused),
                    std::to_string(figures->failed + figures->unanswered),
                    slo ? Percent(*figures->attainment()) : "-",
                    slo ? FourDigits(summary.PerSecond(figures->in_time)) : "-",
                    FourDigits(summary.PerSecond(figures->answered))});
  }
  return Drawn(std::move(rows), lines);
}

std::string LatencyTable(const std::vector<Line>& lines) {
  std::vector<std::vector<std::string>> rows = {{"LATENCY, MS", "ITEMS"}};
  for (const char* name : kPercentileHeads) rows.front().emplace_back(name);
  rows.front().emplace_back("MAX");
  for (const auto& [name, items, figures] : lines) {
    std::vector<std::string> row = {name, items};
    for (const Estimate& estimate : figures->percentiles) {
      row.push_back(items.empty() ? WithInterval(estimate) : Ms(estimate.value));
    }
    row.resize(rows.front().size() - 1, "-");
    row.push_back(figures->answered > 0 ? Ms(figures->max) : "-");
    rows.push_back(std::move(row));
  }
  return Drawn(std::move(rows), lines);
}

std::string Warnings(const BenchContext& context, const BenchRun& run) {
  std::string text;
  const Summary& summary = run.summary;
  if (summary.lateness) {
    text += fmt::format("\nThis program was late itself by {} ms (p99), {} ms at most",
                        Ms(summary.lateness->value), Ms(summary.most_late));
    text += summary.late_ourselves()
                ? ".\nWarning: that is much against the latencies above, which it is part of; use "
                  "--precise, an idle machine or a lower rate\n"
                : ".\n";
  }
  if (summary.waited > 0) {
    text += fmt::format(
        "{} waited for one of the {} connections, up to {} ms, which is in the latencies; "
        "--connections allows more\n",
        Count(summary.waited, "request"), context.connections, Ms(summary.longest_wait));
  }
  if (summary.all.unanswered > 0) {
    text += fmt::format("{} had no answer at the end and counted as failed\n",
                        Count(summary.all.unanswered, "request"));
  }
  if (run.log.cut_short) text += "The run was cut short.\n";
  return text;
}

Json EstimateJson(const Estimate& estimate) {
  const auto or_null = [](const std::optional<Duration>& time) {
    return time ? Json(Milliseconds(*time)) : Json(nullptr);
  };
  return {{"ms", Milliseconds(estimate.value)},
          {"low_ms", or_null(estimate.low)},
          {"high_ms", or_null(estimate.high)}};
}

Json FiguresJson(const Summary& summary, const Figures& figures) {
  Json json = {{"sent", figures.sent},
               {"answered", figures.answered},
               {"refused", figures.refused},
               {"failed", figures.failed},
               {"unanswered", figures.unanswered},
               {"throughput_per_s", summary.PerSecond(figures.answered)},
               {"items_per_s", summary.PerSecond(figures.items)}};
  if (figures.with_slo > 0) {
    json["in_time"] = figures.in_time;
    json["late"] = figures.late;
    json["attainment"] = *figures.attainment();
    json["goodput_per_s"] = summary.PerSecond(figures.in_time);
  }
  Json latency = Json::object();
  for (std::size_t i = 0; i < figures.percentiles.size(); ++i) {
    latency[kPercentileNames[i]] = EstimateJson(figures.percentiles[i]);
  }
  if (figures.answered > 0) {
    latency["mean_ms"] = Milliseconds(figures.mean);
    latency["max_ms"] = Milliseconds(figures.max);
  }
  json["latency"] = std::move(latency);
  return json;
}

Json ModelsJson(const BenchContext& context, const Summary& summary) {
  Json models = Json::array();
  for (const Group& group : summary.models) {
    const auto index = static_cast<std::size_t>(group.model);
    Json model = {{"model", context.load.names[index]}};
    if (const auto& slo = context.load.slos[index]) model["slo_ms"] = Milliseconds(*slo);
    model.update(FiguresJson(summary, group.figures));
    Json sizes = Json::array();
    for (const Group& size : summary.sizes) {
      if (size.model != group.model) continue;
      Json entry = {{"least_items", size.least_items}, {"most_items", size.most_items}};
      entry.update(FiguresJson(summary, size.figures));
      sizes.push_back(std::move(entry));
    }
    model["by_items"] = std::move(sizes);
    models.push_back(std::move(model));
  }
  return models;
}

Json GeneratorJson(const BenchContext& context, const Summary& summary) {
  Json json = {{"connections", context.connections}};
  if (summary.lateness) {
    json["late_p99_ms"] = Milliseconds(summary.lateness->value);
    json["late_most_ms"] = Milliseconds(summary.most_late);
    json["too_late"] = summary.late_ourselves();
  }
  json["waited_for_connection"] = summary.waited;
  json["longest_wait_ms"] = Milliseconds(summary.longest_wait);
  return json;
}

Json HeadJson(const BenchContext& context) {
  return {{"url", context.url},
          {"load", context.load.description},
          {"seed", context.load.seed},
          {"duration_s", Seconds(context.load.length)},
          {"warm_up_s", Seconds(context.warm_up)}};
}

}  // namespace

std::string BenchTable(const BenchContext& context, const BenchRun& run) {
  const Summary& summary = run.summary;
  std::string text = fmt::format("{}: {}, {:.4g} s", context.url, context.load.description,
                                 Seconds(summary.elapsed));
  if (context.warm_up > Duration(0)) {
    text += fmt::format(" after {} of warm-up", Describe(context.warm_up));
  }
  text += fmt::format(", seed {}\n\n", context.load.seed);
  const std::vector<Line> lines = LinesOf(context, summary);
  text += CountTable(summary, lines);
  if (summary.all.answered > 0) {
    text += "\n" + LatencyTable(lines) +
            "  Of answered requests, from when they were due; in brackets: 95 % confidence\n";
  }
  if (!summary.reasons.empty()) text += "\nNot answered:\n";
  for (const client::ReasonCount& reason : summary.reasons) {
    text += fmt::format("  {} {}: {}\n", reason.count, client::Name(reason.outcome), reason.reason);
  }
  return text + Warnings(context, run);
}

std::string BenchJson(const BenchContext& context, const BenchRun& run) {
  const Summary& summary = run.summary;
  Json json = HeadJson(context);
  json["elapsed_s"] = Seconds(summary.elapsed);
  json["cut_short"] = run.log.cut_short;
  json["all"] = FiguresJson(summary, summary.all);
  json["models"] = ModelsJson(context, summary);
  Json reasons = Json::array();
  for (const client::ReasonCount& reason : summary.reasons) {
    reasons.push_back({{"outcome", client::Name(reason.outcome)},
                       {"reason", reason.reason},
                       {"count", reason.count}});
  }
  json["not_answered"] = std::move(reasons);
  json["generator"] = GeneratorJson(context, summary);
  return Dumped(json);
}

std::string BenchCsv(const BenchContext& context, const BenchRun& run) {
  std::vector<std::string> names;
  for (const std::string& name : context.load.names) names.push_back(CsvField(name));
  std::string text = "scheduled_s,sent_s,done_s,status,model,items\n";
  for (const client::Record& record : run.log.records) {
    fmt::format_to(std::back_inserter(text), "{:.9f},{:.9f},{:.9f},{},{},{}\n",
                   Seconds(record.scheduled), Seconds(record.sent), Seconds(record.done),
                   client::Name(record.outcome), names[static_cast<std::size_t>(record.model)],
                   record.items);
  }
  return text;
}

std::string SearchTable(const BenchContext& context, const BenchSearch& search) {
  std::vector<std::vector<std::string>> rows = {
      {"", "RATE/S", "SENT", "IN TIME", "P50, MS", "P99, MS", "REFUSED", "FAILED"}};
  for (const BenchProbe& probe : search.probes) {
    const Figures& all = probe.summary.all;
    const bool any = !all.percentiles.empty();
    rows.push_back({probe.held        ? "held"
                    : probe.generator ? "too fast for us"
                                      : "missed",
                    FourDigits(probe.rate), std::to_string(all.sent),
                    probe.ended_early ? "too few" : Percent(all.attainment().value_or(0)),
                    any ? Ms(all.percentiles[0].value) : "-",
                    any ? Ms(all.percentiles[3].value) : "-", std::to_string(all.refused),
                    std::to_string(all.failed)});
  }
  std::string text =
      fmt::format("{}: {}, {} a probe, seed {}\n\n", context.url, context.load.description,
                  Describe(context.load.length), context.load.seed);
  text += Table(rows, 1) + "\n";
  if (!search.held) return text + "No rate was held: the SLO is missed at every one tried.\n";
  text += fmt::format("Highest rate with {:.4g} % in time: {}/s", search.percentile * 100,
                      FourDigits(*search.held));
  text += search.missed ? fmt::format(" ({}/s was missed)\n", FourDigits(*search.missed))
                        : " (none was missed)\n";
  if (std::ranges::any_of(search.probes, &BenchProbe::generator)) {
    text +=
        "Warning: this program was the limit, not the server: it could not send as fast as it "
        "was to\n";
  }
  if (std::ranges::any_of(search.probes, &BenchProbe::connections)) {
    text += fmt::format(
        "Warning: all {} connections were busy in probes that missed; --connections allows more, "
        "which may hold a higher rate\n",
        context.connections);
  }
  if (search.cut_short) text += "The search was cut short.\n";
  return text;
}

std::string SearchJson(const BenchContext& context, const BenchSearch& search) {
  Json json = HeadJson(context);
  json["percentile"] = search.percentile;
  json["resolution"] = search.resolution;
  json["cut_short"] = search.cut_short;
  json["highest_rate_per_s"] = search.held ? Json(*search.held) : Json(nullptr);
  json["missed_rate_per_s"] = search.missed ? Json(*search.missed) : Json(nullptr);
  Json probes = Json::array();
  for (const BenchProbe& probe : search.probes) {
    Json entry = {{"rate_per_s", probe.rate},
                  {"held", probe.held},
                  {"ended_early", probe.ended_early},
                  {"generator", probe.generator},
                  {"connections", probe.connections}};
    entry.update(FiguresJson(probe.summary, probe.summary.all));
    probes.push_back(std::move(entry));
  }
  json["probes"] = std::move(probes);
  return Dumped(json);
}

}  // namespace divvy::app
