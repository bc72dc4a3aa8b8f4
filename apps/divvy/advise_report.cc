#include "advise_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "table.h"

namespace divvy::app {
namespace {

using nlohmann::json;
using planner::Advice;
using planner::AdviceRequest;
using planner::JobOutlook;
using planner::ModeOutlook;
using workload::SharingMode;

std::string GibText(std::optional<double> gib) {
  return gib ? fmt::format("{:.1f} GiB", *gib) : std::string("?");
}

void PrintJobs(const AdviceRequest& request, const Advice& advice) {
  std::vector<std::vector<std::string>> rows = {{"job", "class", "from", "needs", "memory"}};
  for (std::size_t i = 0; i < request.jobs.size(); ++i) {
    const auto& job = request.jobs[i];
    const auto& demand = advice.demands[i];
    rows.push_back({job.name, job.job_class == workload::JobClass::kLatency ? "latency" : "batch",
                    demand.basis,
                    fmt::format("{:.0f} % +- {:.0f}", 100 * demand.share, 100 * demand.error),
                    GibText(job.profile.memory_gib)});
  }
  fmt::print("{}", Table(rows, 3));
}

// The job that loses most.
const JobOutlook& Slowest(const ModeOutlook& outlook) {
  return *std::ranges::min_element(outlook.jobs, {}, &JobOutlook::speed);
}

// The longest tail among latency jobs: "x 3.90".
std::string WorstTail(const ModeOutlook& outlook) {
  double worst = 0;
  for (const JobOutlook& job : outlook.jobs) worst = std::max(worst, job.p99.value_or(0));
  return worst > 0 ? fmt::format("x {:.2f}", worst) : "-";
}

std::string SharesOf(const ModeOutlook& outlook) {
  std::vector<std::string> shares;
  for (const JobOutlook& job : outlook.jobs) {
    if (!job.share.empty()) shares.push_back(job.share);
  }
  return shares.empty() ? "-" : fmt::format("{}", fmt::join(shares, " "));
}

void PrintModes(const AdviceRequest& request, const Advice& advice) {
  std::vector<std::vector<std::string>> rows = {
      {"mode", "work", "slowest", "(range)", "p99",
       fmt::format("all keep {:.0f} %", 100 * request.keep), "memory", "shares"}};
  std::vector<std::string> impossible;
  for (const ModeOutlook& outlook : advice.modes) {
    if (!outlook.impossible.empty()) {
      impossible.push_back(fmt::format("{}: {}", NameOf(outlook.mode), outlook.impossible));
      continue;
    }
    const JobOutlook& slowest = Slowest(outlook);
    rows.push_back({std::string(NameOf(outlook.mode)), fmt::format("{:.2f}", outlook.throughput),
                    fmt::format("{:.2f}", slowest.speed),
                    fmt::format("{:.2f}-{:.2f}", slowest.low, slowest.high), WorstTail(outlook),
                    std::string(Describe(outlook.keeps)), GibText(outlook.memory_gib),
                    SharesOf(outlook)});
  }
  fmt::print("{}", Table(rows, 1));
  for (const std::string& line : impossible) fmt::print("  not {}\n", line);
}

void PrintRecommended(const AdviceRequest& request, const Advice& advice) {
  const ModeOutlook& outlook = advice.outlook(advice.recommended);
  fmt::print("Advice: {}: {}\n",
             outlook.impossible.empty() ? NameOf(advice.recommended) : "not on this GPU",
             advice.reason);
  if (advice.recommended == SharingMode::kOneByOne || outlook.jobs.empty()) return;
  std::vector<std::vector<std::string>> rows = {{"job", "share", "speed", "(range)", "p99"}};
  for (std::size_t i = 0; i < outlook.jobs.size(); ++i) {
    const JobOutlook& job = outlook.jobs[i];
    rows.push_back({request.jobs[i].name, job.share.empty() ? "all" : job.share,
                    fmt::format("{:.2f}", job.speed),
                    fmt::format("{:.2f}-{:.2f}", job.low, job.high),
                    job.p99 ? fmt::format("x {:.2f}", *job.p99) : "-"});
  }
  fmt::print("{}", Table(rows, 2));
}

json JsonNumber(std::optional<double> value) { return value ? json(*value) : json(nullptr); }

json ModeJson(const AdviceRequest& request, const ModeOutlook& outlook) {
  json mode = {{"mode", NameOf(outlook.mode)}, {"possible", outlook.impossible.empty()}};
  mode["memory_gib"] = JsonNumber(outlook.memory_gib);
  if (!outlook.impossible.empty()) {
    mode["why"] = outlook.impossible;
    return mode;
  }
  mode["throughput"] = outlook.throughput;
  mode["all_keep"] = Describe(outlook.keeps);
  mode["jobs"] = json::array();
  for (std::size_t i = 0; i < outlook.jobs.size(); ++i) {
    const JobOutlook& job = outlook.jobs[i];
    mode["jobs"].push_back({{"name", request.jobs[i].name},
                            {"speed", job.speed},
                            {"low", job.low},
                            {"high", job.high},
                            {"share", job.share.empty() ? json(nullptr) : json(job.share)},
                            {"p99_factor", JsonNumber(job.p99)}});
  }
  return mode;
}

}  // namespace

void PrintAdvice(const AdviceRequest& request, const Advice& advice) {
  fmt::print("{} on one {}, {}\n", Count(request.jobs.size(), "job"), request.gpu_name,
             GibText(request.memory_gib));
  PrintJobs(request, advice);
  fmt::print("\n");
  PrintModes(request, advice);
  fmt::print("\n");
  PrintRecommended(request, advice);
  for (const std::string& note : advice.notes) fmt::print("note: {}\n", note);
  if (request.models.learned > 0) {
    fmt::print("note: learned from {} measured here\n",
               Count(static_cast<std::size_t>(request.models.learned), "set"));
  }
}

json AdviceJson(const AdviceRequest& request, const Advice& advice) {
  json out = {{"gpu", request.gpu_name},
              {"gpu_memory_gib", JsonNumber(request.memory_gib)},
              {"keep", request.keep},
              {"recommended", advice.outlook(advice.recommended).impossible.empty()
                                  ? json(NameOf(advice.recommended))
                                  : json(nullptr)},
              {"reason", advice.reason},
              {"notes", advice.notes},
              {"learned_from", request.models.learned}};
  out["jobs"] = json::array();
  for (std::size_t i = 0; i < request.jobs.size(); ++i) {
    const auto& job = request.jobs[i];
    out["jobs"].push_back(
        {{"name", job.name},
         {"class", job.job_class == workload::JobClass::kLatency ? "latency" : "batch"},
         {"demand", advice.demands[i].share},
         {"demand_error", advice.demands[i].error},
         {"demand_from", advice.demands[i].basis},
         {"memory_gib", JsonNumber(job.profile.memory_gib)}});
  }
  out["modes"] = json::array();
  for (const ModeOutlook& outlook : advice.modes)
    out["modes"].push_back(ModeJson(request, outlook));
  return out;
}

}  // namespace divvy::app
