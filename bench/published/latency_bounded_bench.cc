// Latency-bounded throughput of cuts and routes, model by model, on published
// profiles: 8 A100s, Poisson arrivals, log-normal requests (median 6, sigma 0.9, at
// most 32), SLO 1.5 times what the largest instance takes for 32. A request that is
// refused counts as late; at least 95 % must be in time.
//
// Needs DIVVY_DATA with parvagpu_a100_mig_mps/profiles.csv and
// migperf_a100_mig/long.csv. The exit status is 1 when a bar is missed.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "gpu/catalogue.h"
#include "planner/baselines.h"
#include "published_data.h"
#include "serving/from_plan.h"
#include "sim/latency_bounded.h"
#include "workload/profile_import.h"

namespace divvy::bench {
namespace {

constexpr int kGpus = 8;
constexpr int kLargest = 32;

planner::Outcome PlanBy(const std::string& name, const planner::Problem& problem) {
  const auto& planners = planner::Planners();
  return std::ranges::find(planners, name, &planner::NamedPlanner::name)->plan(problem);
}

class ModelBench {
 public:
  ModelBench(const workload::ModelProfile& profile, const gpu::GpuModel& gpu, double largest_ms)
      : profile_(profile) {
    problem_.gpu = &gpu;
    problem_.gpus = kGpus;
    problem_.models = {{.name = profile.model,
                        .profile = &profile,
                        .slo = FromMilliseconds(1.5 * largest_ms),
                        .rate = 1000,
                        .batches = workload::BatchDistribution::LogNormal(6, 0.9, kLargest)}};
  }

  double slo_ms() const { return Milliseconds(problem_.models[0].slo); }

  // Requests a second, 0 where there is no such plan.
  double Bounded(const std::string& planner, const std::string& route,
                 std::optional<std::uint64_t> seed = {}) {
    problem_.seed = seed.value_or(1);
    const auto outcome = PlanBy(planner, problem_);
    const auto* planned = std::get_if<planner::Planned>(&outcome);
    if (planned == nullptr) return 0;
    plan::Plan plan = planner::ToPlan(problem_, planned->deployment);
    const std::vector<serving::ServedModel> served = {{profile_.model, &profile_}};
    const auto setup = serving::SetupFromPlan(plan, served);
    if (!setup) {
      fmt::print("{}: {}\n", profile_.model, setup.error().message);
      return 0;
    }
    const std::vector<sim::Source> sources = {
        {.slo = problem_.models[0].slo,
         .arrivals = workload::Load{.rate = problem_.models[0].rate,
                                    .batches = problem_.models[0].batches}}};
    const double factor = sim::LatencyBoundedFactor(setup->setup, *serving::ParseRoute(route),
                                                    sources, {.requests = 40000, .seed = 7});
    return factor * problem_.models[0].rate;
  }

  std::string CutBy(const std::string& planner) {
    const auto outcome = PlanBy(planner, problem_);
    const auto* planned = std::get_if<planner::Planned>(&outcome);
    if (planned == nullptr) return "none";
    std::map<int, int> counts;
    for (const auto& gpu : planned->deployment.gpus) {
      for (const auto& replica : gpu) {
        ++counts[problem_.gpu->profile(replica.instance.profile).compute_slices];
      }
    }
    std::string text;
    for (const auto& [size, count] : counts) text += fmt::format("{}x{}g ", count, size);
    return text;
  }

 private:
  const workload::ModelProfile& profile_;
  planner::Problem problem_;
};

struct Row {
  std::string model;
  std::map<std::string, double> rate;
  bool curve = true;  // Measured at three batch sizes or more. With one, every request takes
                      // as long as the largest, and no cut can be better than another by much.
};

class Table {
 public:
  void Add(const workload::ModelProfile& profile, const gpu::GpuModel& gpu) {
    const auto sizes = gpu.Select(gpu::ProfileSet::kBase);
    const workload::ProfileCurve* largest = nullptr;
    for (const auto size : sizes) {
      if (gpu.profile(size).compute_slices != gpu.compute_slices) continue;
      largest = profile.Find(gpu.profile(size), 1);
    }
    if (largest == nullptr || largest->largest_batch() < kLargest) {
      skipped_.push_back(fmt::format("{} ({}): not measured at batch {} on the whole GPU",
                                     profile.model, gpu.name, kLargest));
      return;
    }
    const auto measured = std::ranges::count_if(
        largest->points, [](const auto& point) { return point.batch <= kLargest; });
    Run(profile, gpu, *largest->LatencyMs(kLargest), measured >= 3);
  }

  int Conclude() const {
    fmt::print("\n{:<34}{:>20}{:>19}{:>20}\n", "", "curves", "", "with single batches");
    fmt::print("{:<34}{:>10}{:>10}{:>12}{:>7}{:>10}{:>10}\n", "ratio", "geo. mean", "least", "bar",
               "", "geo. mean", "least");
    bool all = true;
    const auto ratio = [&](const char* above, const char* below, bool curves_only) {
      double logs = 0;
      double least = 1e300;
      double rows = 0;
      for (const Row& row : rows_) {
        if (curves_only && !row.curve) continue;
        const double one = row.rate.at(above) / std::max(row.rate.at(below), 1e-9);
        logs += std::log(std::clamp(one, 1e-3, 1e3));
        least = std::min(least, one);
        ++rows;
      }
      return std::pair(std::exp(logs / rows), least);
    };
    const auto bar = [&](const char* what, const char* above, const char* below, double mean_bar,
                         double least_bar) {
      const auto [mean, least] = ratio(above, below, true);
      const auto [all_mean, all_least] = ratio(above, below, false);
      const bool met = mean >= mean_bar && least >= least_bar;
      all = all && met;
      fmt::print("{:<34}{:>10.3f}{:>10.3f}{:>7.2f}/{:.2f} {:<7}{:>10.3f}{:>10.3f}\n", what, mean,
                 least, mean_bar, least_bar, met ? "met" : "MISSED", all_mean, all_least);
    };
    bar("paris+elsa / best uniform+fifs", "paris elsa", "uniform fifs", 1.15, 0.98);
    const auto [nearest, nearest_least] = ratio("paris-nearest elsa", "uniform fifs", true);
    fmt::print("{:<34}{:>10.3f}{:>10.3f}   PARIS as published, for comparison\n",
               "paris-nearest+elsa / best uniform", nearest, nearest_least);
    bar("paris+elsa / paris+fifs", "paris elsa", "paris fifs", 1, 1);
    bar("paris+elsa / random+elsa", "paris elsa", "random elsa", 1, 0);
    bar("divvy / elsa, on paris", "paris divvy", "paris elsa", 1.05, 0.99);
    bar("divvy-merge / elsa, on paris", "paris divvy-merge", "paris elsa", 1.05, 0.99);
    bar("divvy / elsa+merge+shed, on paris", "paris divvy", "paris elsa+merge+shed", 1, 0);
    bar("paris / paris-nearest, elsa", "paris elsa", "paris-nearest elsa", 1, 0);
    fmt::print("\nLeft out:\n");
    for (const std::string& line : skipped_) fmt::print("  {}\n", line);
    return all ? 0 : 1;
  }

 private:
  void Run(const workload::ModelProfile& profile, const gpu::GpuModel& gpu, double largest_ms,
           bool curve) {
    ModelBench bench(profile, gpu, largest_ms);
    if (rows_.empty()) {
      fmt::print("{:<24}{:<14}{:>7} |{:>13} |{:>8}{:>8}{:>8}{:>8} |{:>8}{:>8}{:>8} | {}\n", "model",
                 "GPU", "SLO ms", "best uniform", "nearest", "random", "paris", "paris", "divvy",
                 "elsa", "divvy", "cut by paris");
      fmt::print("{:<24}{:<14}{:>7} |{:>13} |{:>8}{:>8}{:>8}{:>8} |{:>8}{:>8}{:>8} |\n", "", "", "",
                 "fifs", "elsa", "elsa", "fifs", "elsa", "-merge", "+m+s", "");
    }
    Row row{profile.model, {}, curve};
    std::string best = "none";
    for (const char* uniform :
         {"homogeneous-1g", "homogeneous-2g", "homogeneous-3g", "homogeneous-7g"}) {
      const double rate = bench.Bounded(uniform, "fifs");
      if (rate <= row.rate["uniform fifs"]) continue;
      row.rate["uniform fifs"] = rate;
      best = std::string(uniform).substr(12);
    }
    double random_log = 0;
    for (const std::uint64_t seed : {1, 2, 3}) {
      random_log += std::log(std::max(bench.Bounded("random", "elsa", seed), 1e-3)) / 3;
    }
    row.rate["random elsa"] = std::exp(random_log);
    row.rate["paris-nearest elsa"] = bench.Bounded("paris-nearest", "elsa");
    for (const char* route : {"fifs", "elsa", "divvy-merge", "elsa+merge+shed", "divvy"}) {
      row.rate[std::string("paris ") + route] = bench.Bounded("paris", route);
    }
    const auto at = [&](const char* what) { return row.rate.at(what); };
    fmt::print(
        "{:<24}{:<14}{:>7.1f} |{:>9.0f} {:<3} |{:>8.0f}{:>8.0f}{:>8.0f}{:>8.0f} "
        "|{:>8.0f}{:>8.0f}{:>8.0f} | {}\n",
        profile.model, gpu.name, bench.slo_ms(), at("uniform fifs"), best, at("paris-nearest elsa"),
        at("random elsa"), at("paris fifs"), at("paris elsa"), at("paris divvy-merge"),
        at("paris elsa+merge+shed"), at("paris divvy"), bench.CutBy("paris"));
    std::fflush(stdout);
    rows_.push_back(std::move(row));
  }

  std::vector<Row> rows_;
  std::vector<std::string> skipped_;
};

int Main() {
  const auto data = DataFolder();
  if (!data) {
    fmt::print("skipped: set DIVVY_DATA to a folder with the published profiles\n");
    return 0;
  }
  Table table;
  const std::pair<workload::ForeignTable, std::string> files[] = {
      {workload::ForeignTable::kParvaGpu, *data + "/parvagpu_a100_mig_mps/profiles.csv"},
      {workload::ForeignTable::kMigPerf, *data + "/migperf_a100_mig/long.csv"}};
  for (const auto& [kind, path] : files) {
    const auto imported = workload::ImportProfiles(kind, ReadAll(path), path);
    if (!imported) {
      fmt::print("{}\n", imported.error().message);
      return 1;
    }
    for (const workload::ModelProfile& profile : imported->models) {
      const auto gpu = gpu::FindGpuModel(profile.gpu);
      if (gpu) table.Add(profile, **gpu);
    }
  }
  return table.Conclude();
}

}  // namespace
}  // namespace divvy::bench

int main() { return divvy::bench::Main(); }
