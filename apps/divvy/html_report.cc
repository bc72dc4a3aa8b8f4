#include "html_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "gpu/catalogue.h"
#include "gpu/mig_layout.h"
#include "html_page.h"
#include "report_assets.h"

namespace divvy::app {
namespace {

using Json = nlohmann::ordered_json;

// So that a page stays below a megabyte, whatever the fleet.
constexpr std::size_t kMostGpusDrawn = 64;
constexpr std::size_t kMostTimelines = 1200;
constexpr std::size_t kMostBins = 48;

Json RoundedMs(const std::optional<Duration>& latency) {
  return latency ? Rounded(Milliseconds(*latency)) : Json(nullptr);
}

std::size_t PairOf(const SimulateReport& report, std::size_t plan, std::size_t route) {
  return plan * report.plan.routes.size() + route;
}

// In the order of the columns that report.js names.
Json RowsJson(const SimulateReport& report, const std::vector<ModelRow>& rows) {
  Json array = Json::array();
  for (const ModelRow& row : rows) {
    array.push_back(
        Json::array({PairOf(report, row.plan, row.route), row.model, Rounded(row.factor),
                     Rounded(row.rate), row.offered, RoundedMs(row.p50), RoundedMs(row.p95),
                     RoundedMs(row.p99), Rounded(row.attainment), Rounded(row.goodput), row.shed,
                     Rounded(row.utilization), Rounded(row.bounded_rps)}));
  }
  return array;
}

Json ModelsJson(const SimulateReport& report) {
  Json array = Json::array();
  for (const planner::ModelDemand& model : report.fleet.problem.models) {
    array.push_back(
        {{"name", model.name}, {"slo_ms", Milliseconds(model.slo)}, {"rate", Rounded(model.rate)}});
  }
  return array;
}

std::size_t TimelinesPerPair(const SimulateReport& report) {
  const std::size_t pairs = report.candidates.plans.size() * report.plan.routes.size();
  return std::max<std::size_t>(8, kMostTimelines / pairs);
}

Json PairsJson(const SimulateReport& report) {
  Json array = Json::array();
  for (std::size_t plan = 0; plan < report.candidates.plans.size(); ++plan) {
    for (std::size_t route = 0; route < report.plan.routes.size(); ++route) {
      const auto rows = std::ranges::count_if(report.study.partitions, [&](const auto& row) {
        return row.plan == plan && row.route == route;
      });
      const auto shown = static_cast<std::ptrdiff_t>(TimelinesPerPair(report));
      array.push_back({{"plan", report.candidates.plans[plan]->name},
                       {"route", serving::Describe(report.plan.routes[route])},
                       {"gpus", report.candidates.plans[plan]->gpus()},
                       {"cut", plan},
                       {"bounded", nullptr},
                       {"partitions_left_out", std::max<std::ptrdiff_t>(0, rows - shown)}});
    }
  }
  for (const Standing& standing : Rank(report)) {
    array[PairOf(report, standing.plan, standing.route)]["bounded"] = Rounded(standing.bounded);
  }
  return array;
}

// Where instances whose place is open would go, as far as there is room.
std::vector<std::optional<int>> StartsOf(const plan::PlannedGpu& gpu, const gpu::GpuModel& model) {
  std::vector<std::optional<int>> starts;
  gpu::MigLayout layout(model);
  for (const plan::PlannedInstance& instance : gpu.instances) {
    starts.push_back(instance.start);
    const auto profile = model.FindProfile(instance.profile);
    if (profile && instance.start) (void)layout.Place({*instance.start, *profile});
  }
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const auto profile = model.FindProfile(gpu.instances[i].profile);
    if (starts[i] || !profile) continue;
    const std::vector<int> free = layout.FreeStarts(*profile);
    if (!free.empty() && layout.Place({free.front(), *profile})) starts[i] = free.front();
  }
  return starts;
}

Json InstanceJson(const SimulateReport& report, const plan::PlannedInstance& instance, int start,
                  int size) {
  std::string runs;
  std::string note;
  std::string kind = "idle";
  Json model = nullptr;
  for (const plan::Assignment& run : instance.runs) {
    const bool job = run.kind == plan::Assignment::Kind::kJob;
    runs += (runs.empty() ? "" : ", ") + run.name;
    kind = job ? "job" : "model";
    if (run.processes > 1) note += fmt::format("{} processes ", run.processes);
    if (run.batch) note += fmt::format("batches of up to {} ", *run.batch);
    const auto& models = report.fleet.problem.models;
    const auto found = std::ranges::find(models, run.name, &planner::ModelDemand::name);
    if (!job && found != models.end()) model = found - models.begin();
  }
  return {{"start", start}, {"size", size}, {"profile", instance.profile},
          {"runs", runs},   {"kind", kind}, {"model", std::move(model)},
          {"note", note}};
}

Json GpuJson(const SimulateReport& report, const plan::PlannedGpu& gpu,
             const gpu::GpuModel& model) {
  Json instances = Json::array();
  const std::vector<std::optional<int>> starts = StartsOf(gpu, model);
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const auto profile = model.FindProfile(gpu.instances[i].profile);
    if (!starts[i] || !profile) continue;
    instances.push_back(
        InstanceJson(report, gpu.instances[i], *starts[i], model.profile(*profile).memory_slices));
  }
  return {{"name", plan::Describe(gpu.gpu)},
          {"slices", model.memory_slices},
          {"instances", std::move(instances)}};
}

Json CutsJson(const SimulateReport& report) {
  Json cuts = Json::array();
  for (const auto& candidate : report.candidates.plans) {
    Json stages = Json::array();
    bool jobs = false;
    for (std::size_t i = 0; i < candidate->plans.size(); ++i) {
      Json gpus = Json::array();
      const std::vector<plan::PlannedGpu>& planned = candidate->plans[i].gpus;
      for (std::size_t gpu = 0; gpu < std::min(kMostGpusDrawn, planned.size()); ++gpu) {
        const auto model = gpu::FindGpuModel(planned[gpu].kind);
        if (model) gpus.push_back(GpuJson(report, planned[gpu], **model));
        for (const plan::PlannedInstance& instance : planned[gpu].instances) {
          jobs |= std::ranges::any_of(instance.runs, [](const plan::Assignment& run) {
            return run.kind == plan::Assignment::Kind::kJob;
          });
        }
      }
      const std::size_t more = planned.size() - std::min(kMostGpusDrawn, planned.size());
      stages.push_back({{"from_s", Rounded(Seconds(candidate->from[i].time_since_epoch()))},
                        {"gpus", std::move(gpus)},
                        {"more", more}});
    }
    cuts.push_back({{"plan", candidate->name}, {"jobs", jobs}, {"stages", std::move(stages)}});
  }
  return cuts;
}

// One letter a slot: 36 shades, as base 36 digits.
std::string Shades(const sim::Timeline& timeline) {
  constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyz";
  std::string shades;
  for (const float busy : timeline.busy) {
    const auto shade = static_cast<std::size_t>(std::lround(std::clamp(busy, 0.0F, 1.0F) * 35));
    shades += kDigits[shade];
  }
  return shades;
}

Json PartitionsJson(const SimulateReport& report) {
  constexpr std::array<std::string_view, 3> kKinds = {"model", "job", "idle"};
  Json array = Json::array();
  std::vector<std::size_t> shown(report.candidates.plans.size() * report.plan.routes.size());
  for (const PartitionRow& row : report.study.partitions) {
    const std::size_t pair = PairOf(report, row.plan, row.route);
    if (++shown[pair] > TimelinesPerPair(report)) continue;
    array.push_back({{"pair", pair},
                     {"gpu", row.gpu_name},
                     {"profile", row.profile},
                     {"start", row.start ? Json(*row.start) : Json(nullptr)},
                     {"from_s", Rounded(Seconds(row.from.time_since_epoch()))},
                     {"kind", kKinds[static_cast<std::size_t>(row.kind)]},
                     {"runs", row.runs},
                     {"util", Rounded(row.utilization)},
                     {"requests", row.requests},
                     {"batches", row.batches},
                     {"slot_ms", Milliseconds(row.timeline.slot)},
                     {"busy", Shades(row.timeline)}});
  }
  return array;
}

// Sizes 1 to `most` in at most kMostBins bins that grow by a common factor: the first
// size of each, and one past the last.
std::vector<int> BinsUpTo(int most) {
  std::vector<int> bins = {1};
  const double factor = static_cast<std::size_t>(most) <= kMostBins
                            ? 1
                            : std::pow(most, 1.0 / static_cast<double>(kMostBins));
  while (bins.back() <= most) {
    const double next = std::floor(bins.back() * factor);
    bins.push_back(std::max(bins.back() + 1, static_cast<int>(next)));
  }
  bins.back() = most + 1;
  return bins;
}

// How large requests were, and how large the batches of `pair` that ran.
Json MixOf(const SimulateReport& report, std::size_t pair, std::size_t model) {
  std::vector<double> executed;
  double batches = 0;
  for (const PartitionRow& row : report.study.partitions) {
    if (PairOf(report, row.plan, row.route) != pair || row.model != model) continue;
    executed.resize(std::max(executed.size(), row.by_items.size()));
    for (std::size_t i = 0; i < row.by_items.size(); ++i) {
      executed[i] += static_cast<double>(row.by_items[i]);
      batches += static_cast<double>(row.by_items[i]);
    }
  }
  while (!executed.empty() && executed.back() == 0) executed.pop_back();
  const workload::BatchDistribution& offered = report.fleet.problem.models[model].batches;
  const std::vector<int> bins =
      BinsUpTo(std::max(offered.largest(), static_cast<int>(executed.size())));
  Json labels = Json::array();
  Json requested = Json::array();
  Json ran = Json::array();
  for (std::size_t i = 0; i + 1 < bins.size(); ++i) {
    double of_requests = 0;
    double of_batches = 0;
    for (int size = bins[i]; size < bins[i + 1]; ++size) {
      of_requests += offered.probability(size);
      const auto index = static_cast<std::size_t>(size) - 1;
      if (index < executed.size()) of_batches += executed[index];
    }
    const int last = bins[i + 1] - 1;
    labels.push_back(bins[i] == last ? std::to_string(last) : fmt::format("{}–{}", bins[i], last));
    requested.push_back(Rounded(of_requests));
    ran.push_back(Rounded(of_batches / std::max(1.0, batches)));
  }
  return {{"pair", pair},
          {"model", model},
          {"labels", std::move(labels)},
          {"offered", std::move(requested)},
          {"executed", std::move(ran)}};
}

Json MixJson(const SimulateReport& report) {
  Json array = Json::array();
  const std::size_t pairs = report.candidates.plans.size() * report.plan.routes.size();
  for (std::size_t pair = 0; pair < pairs; ++pair) {
    for (std::size_t model = 0; model < report.fleet.problem.models.size(); ++model) {
      array.push_back(MixOf(report, pair, model));
    }
  }
  return array;
}

Json DataOf(const SimulateReport& report) {
  const std::vector<Standing> ranked = Rank(report);
  Json rejected = Json::array();
  for (const RejectedPlan& plan : report.candidates.rejected) {
    rejected.push_back({{"plan", plan.name}, {"why", plan.why}});
  }
  std::vector<std::string> limits;
  if (report.plan.requests) limits.push_back(fmt::format("{} requests", *report.plan.requests));
  if (report.plan.duration != Duration::max()) {
    limits.push_back(fmt::format("{:.4g} s", Seconds(report.plan.duration)));
  }
  return {{"about", fmt::format("{}, a run of at most {}, seed {}", report.fleet.problem.gpu->name,
                                fmt::join(limits, " and "), report.plan.seed)},
          {"gpu", report.fleet.problem.gpu->name},
          {"best", PairOf(report, ranked.front().plan, ranked.front().route)},
          {"models", ModelsJson(report)},
          {"pairs", PairsJson(report)},
          {"rows", RowsJson(report, report.study.rows)},
          {"curve", RowsJson(report, report.study.curve)},
          {"cuts", CutsJson(report)},
          {"partitions", PartitionsJson(report)},
          {"mix", MixJson(report)},
          {"rejected", std::move(rejected)},
          {"notes", report.Notes()}};
}

}  // namespace

std::string HtmlReport(const SimulateReport& report) {
  return HtmlPage("Simulation of " + report.fleet_name, kReportStyle,
                  std::string(kPageScript) + std::string(kReportScript), DataOf(report));
}

}  // namespace divvy::app
