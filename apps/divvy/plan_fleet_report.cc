#include "plan_fleet_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

#include "plan/drawing.h"
#include "table.h"

namespace divvy::app {
namespace {

using planner::ModelFigures;
using planner::Replica;

using Out = std::back_insert_iterator<std::string>;
using Row = std::vector<std::string>;

std::string LoadText(double load) {
  return std::isfinite(load) ? fmt::format("{:.2f}", load) : "-";
}

std::string HeadroomText(double load) {
  if (load <= 0) return "any";
  return std::isfinite(load) ? fmt::format("x{:.2f}", 1 / load) : "-";
}

std::string WhatFor(const PlanReport& report) {
  const planner::Problem& problem = report.fleet.problem;
  std::string text = Count(problem.models.size(), "model");
  if (!problem.jobs.empty()) text += " and " + Count(problem.jobs.size(), "job");
  return text;
}

void WriteHeadline(Out out, const PlanReport& report) {
  const planner::Problem& problem = report.fleet.problem;
  const Attempt& chosen = report.chosen;
  if (chosen.carries) {
    fmt::format_to(out, "{} x {} for {}, planned by {}; {}\n", chosen.gpus(), problem.gpu->name,
                   WhatFor(report), chosen.policy,
                   chosen.proof.empty() ? "a heuristic: nothing is proven" : chosen.proof);
    return;
  }
  const std::string gpus = problem.gpus ? fmt::format("{} x {}", *problem.gpus, problem.gpu->name)
                                        : fmt::format("any number of {}", problem.gpu->name);
  fmt::format_to(out, "Infeasible: {} has no plan for {} that serves {} in time.\n", chosen.policy,
                 gpus, WhatFor(report));
  const planner::Infeasible& failure = chosen.failure;
  fmt::format_to(out, "  {}\n", failure.why);
  // Planners mostly say it themselves.
  if (failure.why.find("would do") != std::string::npos) return;
  if (failure.gpus_needed) {
    fmt::format_to(out, "  {} would do.\n",
                   Count(static_cast<std::size_t>(*failure.gpus_needed), "GPU"));
  }
  if (failure.slo_needed && failure.model) {
    fmt::format_to(out, "  An SLO of {:.6g} ms for {} would do.\n",
                   Milliseconds(*failure.slo_needed), problem.models[*failure.model].name);
  }
}

// "1, 4-7 and 9"; of many, the first few.
std::string Ranges(const std::vector<int>& numbers) {
  constexpr std::size_t kShown = 8;
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    parts.push_back(end - i == 1 ? std::to_string(numbers[i])
                                 : fmt::format("{}-{}", numbers[i], numbers[end - 1]));
    i = end;
  }
  if (parts.size() > kShown) {
    parts.resize(kShown);
    parts.push_back("...");
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

// GPUs that are cut alike are drawn once: large fleets have few different cuts.
void WriteCut(Out out, const PlanReport& report, gpu::Ink ink) {
  const plan::Plan plan = planner::ToPlan(report.fleet.problem, *report.chosen.deployment);
  plan::Plan drawn;
  std::vector<std::vector<int>> like;  // By GPU drawn: the positions of others like it.
  for (std::size_t i = 0; i < plan.gpus.size(); ++i) {
    const auto same =
        std::ranges::find(drawn.gpus, plan.gpus[i].instances, &plan::PlannedGpu::instances);
    if (same == drawn.gpus.end()) {
      drawn.gpus.push_back(plan.gpus[i]);
      like.emplace_back();
    } else {
      like[static_cast<std::size_t>(same - drawn.gpus.begin())].push_back(static_cast<int>(i));
    }
  }
  std::string text = plan::DrawPlan(drawn, ink);
  if (drawn.gpus.size() < plan.gpus.size()) {
    // Its last line counts what was drawn; that of the whole plan counts all.
    const auto last_line = [](const std::string& lines) {
      return lines.rfind('\n', lines.size() - 2) + 1;
    };
    const std::string whole = plan::DrawPlan(plan, gpu::Ink::kPlain);
    text.replace(last_line(text), std::string::npos, whole.substr(last_line(whole)));
  }
  fmt::format_to(out, "\n{}", text);
  for (std::size_t i = 0; i < like.size(); ++i) {
    if (like[i].empty()) continue;
    fmt::format_to(out, "{} {} cut as {}.\n", like[i].size() == 1 ? "GPU" : "GPUs",
                   Ranges(like[i]) + (like[i].size() == 1 ? " is" : " are"),
                   plan::Describe(drawn.gpus[i].gpu));
  }
}

void WriteModels(Out out, const PlanReport& report) {
  const planner::Problem& problem = report.fleet.problem;
  std::vector<Row> rows = {
      {"MODEL", "RATE/S", "SLO", "ITEMS/S", "CAPACITY", "LOAD", "HEADROOM", "INSTANCES"}};
  for (std::size_t i = 0; i < problem.models.size(); ++i) {
    const ModelFigures& figures = report.chosen.figures[i];
    rows.push_back({problem.models[i].name, FourDigits(problem.models[i].rate),
                    FourDigits(Milliseconds(problem.models[i].slo)) + " ms",
                    FourDigits(figures.demand), FourDigits(figures.capacity),
                    LoadText(figures.load), HeadroomText(figures.load),
                    std::to_string(figures.instances)});
  }
  fmt::format_to(out, "\nModels\n");
  fmt::format_to(out, "{}", Table(rows, 1));
  const planner::InTimeRule& rule = problem.rule;
  fmt::format_to(out,
                 "  CAPACITY is of full batches within {:.3g} of the SLO (safety {:.3g}, batching "
                 "delay {:.3g}).\n",
                 rule.safety / (1 + rule.batching_delay), rule.safety, rule.batching_delay);
  const bool of_many_sizes = std::ranges::any_of(problem.models, [](const auto& model) {
    return model.batches.probability(model.batches.largest()) < 1;
  });
  if (of_many_sizes) {
    fmt::format_to(out,
                   "  LOAD is the highest over request sizes: only some instances take the large "
                   "ones.\n");
  }
}

void WriteReasons(Out out, const PlanReport& report) {
  std::vector<std::pair<std::string_view, int>> reasons;  // In order of appearance.
  std::map<std::string_view, std::size_t> positions;
  for (const auto& gpu : report.chosen.deployment->gpus) {
    for (const Replica& replica : gpu) {
      const auto [entry, is_new] = positions.try_emplace(replica.why, reasons.size());
      if (is_new) reasons.emplace_back(replica.why, 0);
      ++reasons[entry->second].second;
    }
  }
  std::size_t digits = 1;
  for (const auto& [why, count] : reasons) {
    digits = std::max(digits, std::to_string(count).size());
  }
  fmt::format_to(out, "\nWhy each instance is there\n");
  for (const auto& [why, count] : reasons)
    fmt::format_to(out, "  {:>{}}x {}\n", count, digits, why);
}

Row RivalRow(const Rival& rival) {
  const Attempt& attempt = rival.attempt;
  std::string gpus = "none would do";
  if (attempt.carries) {
    gpus = std::to_string(attempt.gpus());
  } else if (rival.gpus_needed) {
    gpus = fmt::format("needs {}", *rival.gpus_needed);
  } else if (attempt.deployment) {
    gpus = fmt::format("{}, not in time", attempt.gpus());
  }
  return {std::string(attempt.policy), gpus, LoadText(attempt.fullest),
          HeadroomText(attempt.fullest)};
}

void WriteComparison(Out out, const PlanReport& report) {
  std::vector<Row> rows = {{"POLICY", "GPUS", "HIGHEST LOAD", "HEADROOM"}};
  Row own = RivalRow({report.chosen, report.chosen.failure.gpus_needed});
  own.front() += " (this)";
  rows.push_back(std::move(own));
  for (const Rival& rival : report.rivals) rows.push_back(RivalRow(rival));
  fmt::format_to(out, "\nCompared with the others\n");
  fmt::format_to(out, "{}", Table(rows, 1));
}

std::string RangeText(const planner::ExpectedSpeed& speed) {
  return fmt::format("{:.2f} ({:.2f}-{:.2f})", speed.speed, speed.low, speed.high);
}

void WriteLeftovers(Out out, const PlanReport& report) {
  std::vector<Row> rows = {{"JOB", "FREE INSTANCE", "SPEED", "OR BESIDE SERVICES", "SPEED"}};
  for (const planner::LeftoverAdvice& job : report.leftovers) {
    Row row = {job.job, "-", "-", "-", "-"};
    if (job.free) {
      row[1] = fmt::format("{} at {} of GPU {}",
                           report.fleet.problem.gpu->profile(job.free->instance.profile).name,
                           job.free->instance.start, job.free->gpu);
      row[2] = RangeText(job.free->speed);
    }
    if (job.beside) {
      row[3] = fmt::format("GPU {}, {:.0f} % busy", job.beside->gpu, 100 * job.beside->busy);
      row[4] = RangeText(job.beside->speed);
    }
    rows.push_back(std::move(row));
  }
  fmt::format_to(out, "\nJobs in what is left\n{}", Table(rows, 2));
  for (const planner::LeftoverAdvice& job : report.leftovers) {
    if (!job.free) fmt::format_to(out, "  {}: {}.\n", job.job, job.why_not);
    if (!job.beside && job.why_not_beside != job.why_not) {
      fmt::format_to(out, "  {}, beside services: {}.\n", job.job, job.why_not_beside);
    }
  }
  fmt::format_to(out,
                 "  SPEED is expected, over that alone on a whole GPU. Beside services: under the "
                 "gate, where the\n"
                 "  cut is one of MPS shares (divvy serve --on mps, divvy run), and one of these "
                 "jobs at a time.\n");
}

}  // namespace

std::string DescribePlan(const PlanReport& report, gpu::Ink ink) {
  std::string text;
  const Out out = std::back_inserter(text);
  WriteHeadline(out, report);
  if (report.chosen.deployment) {
    if (!report.chosen.carries) text += "\nThe best that it has\n";
    WriteCut(out, report, ink);
    WriteModels(out, report);
    WriteReasons(out, report);
    if (!report.leftovers.empty()) WriteLeftovers(out, report);
  }
  if (!report.rivals.empty()) WriteComparison(out, report);
  if (!report.fleet.notes.empty()) text += "\nNotes\n";
  for (const std::string& note : report.fleet.notes) fmt::format_to(out, "  {}\n", note);
  return text;
}

}  // namespace divvy::app
