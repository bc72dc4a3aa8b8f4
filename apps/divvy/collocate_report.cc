#include "collocate_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "html_page.h"
#include "report_assets.h"
#include "table.h"

namespace divvy::app {
namespace {

using Json = nlohmann::ordered_json;
using measure::JobTogether;
using measure::RunRow;
using measure::RunState;
using measure::SetTogether;
using Rows = std::vector<std::vector<std::string>>;

std::string Cell(const std::optional<double>& value, const char* unit = "") {
  return value ? FourDigits(*value) + unit : "-";
}

std::string PercentCell(const std::optional<double>& share) {
  return share ? Percent(*share) : "-";
}

std::string AloneTable(const std::vector<RunRow>& rows) {
  Rows table = {{"JOB", "SECONDS", "STEPS/S", "LATENCY", "GPU BUSY", "SM ACTIVE", "GPU MEMORY",
                 "POWER", "ENERGY", "CPU"}};
  for (const RunRow& row : rows) {
    if (row.mode || row.state != RunState::kDone) continue;
    const auto gib = [](const std::optional<double>& mib) {
      return mib ? fmt::format("{:.1f} GiB", *mib / 1024) : std::string("-");
    };
    table.push_back({row.job, Cell(row.figures.seconds), Cell(row.figures.steps_per_s),
                     Cell(row.figures.latency_ms, " ms"), PercentCell(row.gpu.busy),
                     PercentCell(row.gpu.sm_active), gib(row.gpu.memory_mib),
                     Cell(row.gpu.power_w, " W"), Cell(row.gpu.energy_j(), " J"),
                     Cell(row.figures.cpu_s, " s")});
  }
  return table.size() == 1 ? "" : "Alone\n" + Table(table, 1) + "\n";
}

std::string Saved(const SetTogether& set) {
  if (!set.one_by_one_s || !set.together_s || *set.one_by_one_s <= 0) return "-";
  return fmt::format("{:.0f}%", 100 * (1 - *set.together_s / *set.one_by_one_s));
}

// The jobs of a set, as one text: sets of the same jobs stand in one table.
std::string Members(const SetTogether& set) {
  std::string text;
  for (const JobTogether& job : set.jobs) text += (text.empty() ? "" : " + ") + job.job;
  return text;
}

const planner::Advice* FindAdvice(const CollocateFindings& findings, const std::string& members) {
  const auto of_them = [&](const SetAdvice& of) {
    return fmt::format("{}", fmt::join(of.jobs, " + ")) == members;
  };
  const auto found = std::ranges::find_if(findings.advice, of_them);
  return found == findings.advice.end() ? nullptr : &found->advice;
}

std::optional<double> Work(const planner::ModeOutlook& outlook) {
  if (!outlook.impossible.empty()) return {};
  return outlook.throughput;
}

// Nothing of shares and cuts: advice has its own, and not those that were run. Nor of services,
// whose speed is part of the work that advice foretells, and not of what is measured.
std::optional<double> Foretold(const planner::Advice* advice, const SetTogether& set) {
  if (advice == nullptr || set.mode == workload::SharingMode::kMpsShares ||
      set.mode == workload::SharingMode::kMig ||
      std::ranges::any_of(set.jobs, &JobTogether::by_latency)) {
    return {};
  }
  return Work(advice->outlook(set.mode));
}

std::string AdviceLines(const planner::Advice& advice) {
  std::string text = fmt::format("  Advice from the runs alone: {}. {}\n",
                                 NameOf(advice.recommended), advice.reason);
  for (const std::string& note : advice.notes) text += fmt::format("    {}\n", note);
  return text;
}

void AddWays(const CollocateFindings& findings, const std::string& members, Rows& table) {
  const planner::Advice* const advice = FindAdvice(findings, members);
  bool first = true;
  for (const SetTogether& set : findings.sets) {
    if (Members(set) != members) continue;
    std::vector<std::string> row;
    if (std::exchange(first, false)) {
      row = {"alone"};
      for (const JobTogether& job : set.jobs) {
        row.push_back(job.by_latency ? Cell(job.alone.latency_ms, " ms") : Cell(job.alone_s, " s"));
        row.emplace_back(job.by_latency ? "x 1" : "1");
      }
      table.push_back(row);
      row.assign(row.size(), "");
      row[0] = "one after the other";
      row.insert(row.end(), {Cell(set.one_by_one_s, " s"), "", "1"});
      table.push_back(row);
    }
    row = {std::string(NameOf(set.mode))};
    for (const JobTogether& job : set.jobs) {
      row.push_back(job.by_latency ? Cell(job.together.latency_ms, " ms")
                                   : Cell(job.together_s, " s"));
      row.push_back(job.by_latency ? "x " + FourDigits(1 / *job.speed) : Cell(job.speed));
    }
    row.insert(row.end(), {Cell(set.together_s, " s"), Saved(set), Cell(set.aggregate),
                           Cell(Foretold(advice, set)), PercentCell(set.gpu.busy),
                           PercentCell(set.gpu.sm_active), Cell(set.gpu.power_w, " W"),
                           Cell(set.gpu.energy_j(), " J")});
    table.push_back(row);
  }
}

std::string TogetherTables(const CollocateFindings& findings) {
  std::string text;
  std::vector<std::string> seen;
  for (const SetTogether& set : findings.sets) {
    const std::string members = Members(set);
    if (std::ranges::find(seen, members) != seen.end()) continue;
    seen.push_back(members);
    Rows table = {{"HOW"}};
    for (const JobTogether& job : set.jobs) {
      table[0].push_back(job.job);
      table[0].emplace_back("SPEED");
    }
    table[0].insert(table[0].end(), {"ALL DONE", "SAVED", "WORK", "FORETOLD", "GPU BUSY",
                                     "SM ACTIVE", "POWER", "ENERGY"});
    AddWays(findings, members, table);
    text += members + "\n" + Table(table, 1);
    if (const planner::Advice* advice = FindAdvice(findings, members)) text += AdviceLines(*advice);
    text += "\n";
  }
  if (!text.empty()) {
    text +=
        "  Seconds are for what each job does alone; SPEED is over its speed alone, of a service\n"
        "  how many times (x) its latency alone; WORK their sum, a service counting as one. SAVED\n"
        "  is of the time that one after the other takes, FORETOLD the work that advice expected\n"
        "  from the runs alone.\n";
  }
  return text;
}

// What cannot be, or hardly: sharing makes nobody faster.
std::vector<std::string> Oddities(const CollocateFindings& findings) {
  constexpr double kFasterByChance = 1.1;
  std::vector<std::string> notes;
  for (const SetTogether& set : findings.sets) {
    for (const JobTogether& job : set.jobs) {
      if (job.speed.value_or(0) <= kFasterByChance) continue;
      notes.push_back(fmt::format(
          "{} was {} times as fast in {} as alone: its run alone was disturbed, or its runs differ "
          "that much; empty the state of its row to run it again",
          job.job, FourDigits(*job.speed), set.workload));
    }
  }
  return notes;
}

std::string NotDone(const std::vector<RunRow>& rows) {
  std::string text;
  std::string last;
  for (const RunRow& row : rows) {
    if (row.workload == last || row.why.empty()) continue;
    last = row.workload;
    text +=
        fmt::format("  {}: {}: {}\n", row.workload,
                    row.state == RunState::kSkipped ? "cannot be done here" : "failed", row.why);
  }
  return text.empty() ? "" : "\nNot done\n" + text;
}

const SetTogether* BestMeasured(const std::vector<SetTogether>& sets) {
  const SetTogether* best = nullptr;
  for (const SetTogether& set : sets) {
    if (set.aggregate && (best == nullptr || *set.aggregate > *best->aggregate)) best = &set;
  }
  return best;
}

Json GpuJson(const measure::GpuFigures& gpu) {
  return {{"measured_s", Rounded(gpu.measured_s)}, {"busy", Rounded(gpu.busy)},
          {"sm_active", Rounded(gpu.sm_active)},   {"memory_mib", Rounded(gpu.memory_mib)},
          {"power_w", Rounded(gpu.power_w)},       {"energy_j", Rounded(gpu.energy_j())}};
}

Json JobJson(const measure::JobFigures& job) {
  return {{"seconds", Rounded(job.seconds)},
          {"steps_per_s", Rounded(job.steps_per_s)},
          {"latency_ms", Rounded(job.latency_ms)},
          {"cpu_s", Rounded(job.cpu_s)},
          {"host_mib", Rounded(job.host_mib)}};
}

Json SetJson(const SetTogether& set, const planner::Advice* advice) {
  Json jobs = Json::array();
  for (const JobTogether& job : set.jobs) {
    jobs.push_back({{"job", job.job},
                    {"share_percent", job.share ? Json(*job.share) : Json(nullptr)},
                    {"speed", Rounded(job.speed)},
                    {"by_latency", job.by_latency},
                    {"slowdown", job.speed ? Rounded(1 / *job.speed) : Json(nullptr)},
                    {"alone_s", Rounded(job.alone_s)},
                    {"together_s", Rounded(job.together_s)},
                    {"alone", JobJson(job.alone)},
                    {"together", JobJson(job.together)}});
  }
  return {{"workload", set.workload},
          {"mode", NameOf(set.mode)},
          {"jobs", std::move(jobs)},
          {"one_by_one_s", Rounded(set.one_by_one_s)},
          {"together_s", Rounded(set.together_s)},
          {"work", Rounded(set.aggregate)},
          {"foretold", Rounded(Foretold(advice, set))},
          {"gpu", GpuJson(set.gpu)}};
}

Json AdviceJson(const SetAdvice& of) {
  Json work = Json::object();
  for (const planner::ModeOutlook& mode : of.advice.modes) {
    work[std::string(NameOf(mode.mode))] = Rounded(Work(mode));
  }
  return {{"jobs", of.jobs},
          {"mode", NameOf(of.advice.recommended)},
          {"reason", of.advice.reason},
          {"work", std::move(work)},
          {"notes", of.advice.notes}};
}

}  // namespace

std::string DescribeFindings(const CollocateFindings& findings) {
  std::string text = AloneTable(findings.rows) + TogetherTables(findings) + NotDone(findings.rows);
  for (const SetAdvice& of : findings.advice) {
    const auto shown = [&](const SetTogether& set) {
      return FindAdvice(findings, Members(set)) == &of.advice;
    };
    if (std::ranges::none_of(findings.sets, shown)) text += "\n" + AdviceLines(of.advice);
  }
  if (const SetTogether* best = BestMeasured(findings.sets)) {
    text += fmt::format("Most work measured: {} ({}), {} times one job at a time",
                        NameOf(best->mode), best->workload, FourDigits(*best->aggregate));
    for (const JobTogether& job : best->jobs) {
      if (!job.by_latency) continue;
      text += fmt::format("; {} answers in {} times its latency alone", job.job,
                          FourDigits(1 / *job.speed));
    }
    text += ".\n";
  }
  for (const std::string& note : Oddities(findings)) text += fmt::format("Note: {}\n", note);
  return text;
}

Json FindingsJson(const CollocateFindings& findings) {
  Json alone = Json::array();
  Json not_done = Json::array();
  for (const RunRow& row : findings.rows) {
    if (!row.why.empty()) {
      not_done.push_back({{"workload", row.workload}, {"job", row.job}, {"why", row.why}});
    } else if (!row.mode && row.state == RunState::kDone) {
      alone.push_back({{"job", row.job},
                       {"on", row.on},
                       {"figures", JobJson(row.figures)},
                       {"gpu", GpuJson(row.gpu)}});
    }
  }
  Json sets = Json::array();
  for (const SetTogether& set : findings.sets) {
    sets.push_back(SetJson(set, FindAdvice(findings, Members(set))));
  }
  Json timelines = Json::object();
  for (const auto& [workload, moments] : findings.timelines) {
    Json points = Json::array();
    for (const GpuMoment& moment : moments) {
      points.push_back({Rounded(moment.from_s), Rounded(moment.to_s), Rounded(moment.figures.busy),
                        Rounded(moment.figures.sm_active), Rounded(moment.figures.memory_mib),
                        Rounded(moment.figures.power_w)});
    }
    timelines[workload] = std::move(points);
  }
  Json json = {{"jobs_file", findings.title},     {"gpu", findings.gpu},
               {"driver", findings.driver},       {"on", findings.on},
               {"alone", std::move(alone)},       {"together", std::move(sets)},
               {"not_done", std::move(not_done)}, {"notes", Oddities(findings)},
               {"advice", Json::array()},         {"timelines", std::move(timelines)}};
  for (const SetAdvice& of : findings.advice) json["advice"].push_back(AdviceJson(of));
  return json;
}

std::string FindingsPage(const CollocateFindings& findings) {
  return HtmlPage("divvy collocate " + findings.title, kReportStyle,
                  std::string(kPageScript) + std::string(kCollocateScript), FindingsJson(findings));
}

}  // namespace divvy::app
