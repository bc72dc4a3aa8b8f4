#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench_report.h"
#include "html_page.h"
#include "report_assets.h"

namespace divvy::app {
namespace {

using Json = nlohmann::ordered_json;
using client::Outcome;
using client::Record;

constexpr std::size_t kSlots = 60;
constexpr std::size_t kCurvePoints = 200;

// The latencies, in ms, of a model's answered requests within a stretch of time, and what else
// there was.
struct Slot {
  std::vector<double> ms;
  int refused = 0;
  int failed = 0;
};

double At(const std::vector<double>& sorted, double share) {
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(rank, 1, sorted.size()) - 1];
}

// [[middle_s, p50, p99, max, refused, failed], ..]; null where nothing was answered.
Json OverTime(std::vector<Slot>& slots, double slot_s) {
  Json rows = Json::array();
  for (std::size_t i = 0; i < slots.size(); ++i) {
    Slot& slot = slots[i];
    std::ranges::sort(slot.ms);
    Json row = {Rounded((static_cast<double>(i) + 0.5) * slot_s)};
    for (const double share : {0.5, 0.99, 1.0}) {
      row.push_back(slot.ms.empty() ? Json(nullptr) : Rounded(At(slot.ms, share)));
    }
    row.push_back(slot.refused);
    row.push_back(slot.failed);
    rows.push_back(std::move(row));
  }
  return rows;
}

// [[ms, share], ..], denser towards the end, where it matters. Of all sent: the curve ends below 1
// where some were not answered.
Json Distribution(const std::vector<double>& sorted, std::size_t sent) {
  Json points = Json::array();
  if (sorted.empty()) return points;
  for (std::size_t i = 0; i <= kCurvePoints; ++i) {
    // From 0 to 1 - 1e-4 in steps that shrink, then the largest.
    const double share =
        i == kCurvePoints ? 1 : 1 - std::pow(10, -4.0 * static_cast<double>(i) / kCurvePoints);
    const double of_sent = share * static_cast<double>(sorted.size()) / static_cast<double>(sent);
    points.push_back({Rounded(At(sorted, share)), of_sent});
  }
  return points;
}

Json ModelJson(const BenchContext& context, const BenchRun& run, std::size_t model) {
  const Duration planned = context.load.length;
  const double length =
      std::max(Seconds(run.log.cut_short ? std::min(planned, run.summary.elapsed) : planned), 1e-9);
  const double slot_s = length / static_cast<double>(kSlots);
  std::vector<Slot> slots(kSlots);
  std::vector<double> all;
  std::size_t sent = 0;
  for (const Record& record : run.log.records) {
    if (static_cast<std::size_t>(record.model) != model) continue;
    ++sent;
    const auto index = static_cast<std::size_t>(Seconds(record.scheduled) / slot_s);
    Slot& slot = slots[std::min(index, kSlots - 1)];
    if (record.outcome == Outcome::kAnswered) {
      slot.ms.push_back(Milliseconds(record.latency()));
      all.push_back(slot.ms.back());
    } else {
      ++(record.outcome == Outcome::kRefused ? slot.refused : slot.failed);
    }
  }
  std::ranges::sort(all);
  const client::Figures& figures = run.summary.models[model].figures;
  const auto& slo = context.load.slos[model];
  return {{"name", context.load.names[model]},
          {"slo_ms", slo ? Rounded(Milliseconds(*slo)) : Json(nullptr)},
          {"sent", figures.sent},
          {"answered", figures.answered},
          {"refused", figures.refused},
          {"failed", figures.failed + figures.unanswered},
          {"attainment", figures.attainment() ? Json(*figures.attainment()) : Json(nullptr)},
          {"goodput", Rounded(run.summary.PerSecond(figures.in_time))},
          {"throughput", Rounded(run.summary.PerSecond(figures.answered))},
          {"p50", all.empty() ? Json(nullptr) : Rounded(At(all, 0.5))},
          {"p99", all.empty() ? Json(nullptr) : Rounded(At(all, 0.99))},
          {"over_time", OverTime(slots, slot_s)},
          {"distribution", Distribution(all, sent)}};
}

}  // namespace

std::string BenchPage(const BenchContext& context, const BenchRun& run) {
  Json models = Json::array();
  for (std::size_t i = 0; i < context.load.names.size(); ++i) {
    models.push_back(ModelJson(context, run, i));
  }
  const Json data = {{"about", context.load.description},
                     {"elapsed_s", Rounded(Seconds(run.summary.elapsed))},
                     {"seed", context.load.seed},
                     {"models", std::move(models)}};
  return HtmlPage("divvy bench " + context.url, kReportStyle,
                  std::string(kPageScript) + std::string(kBenchScript), data);
}

}  // namespace divvy::app
