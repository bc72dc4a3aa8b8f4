#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/number.h"
#include "command.h"
#include "control/policies.h"
#include "event_file.h"
#include "fleet_input.h"
#include "html_report.h"
#include "planner/baselines.h"
#include "planning.h"
#include "run_progress.h"
#include "simulate_arguments.h"
#include "simulate_control.h"
#include "simulate_plans.h"
#include "simulate_report.h"
#include "simulate_runs.h"
#include "simulate_trace.h"
#include "text_file.h"

namespace divvy::app {
namespace {

// As they stand on the command line.
struct SimulateOptions {
  std::string fleet;
  std::vector<std::string> plans;
  std::vector<std::string> routes;
  std::optional<std::string> trace;
  std::optional<std::string> sweep;
  std::optional<std::uint64_t> requests;
  std::optional<std::string> duration;
  std::optional<std::uint64_t> seed;
  std::string spread = "none";
  bool bounded = false;
  std::vector<std::string> changes;
  std::string change_cost;
  std::optional<std::string> events;
  std::optional<std::string> html;
  OutputFormat format = OutputFormat::kTable;
  ControlOptions control;
};

// The fleet's own where none is named.
[[nodiscard]] Result<std::vector<serving::RouteOptions>> ReadRoutes(const SimulateOptions& options,
                                                                    const LoadedFleet& fleet) {
  std::vector<serving::RouteOptions> routes;
  for (const std::string& word : options.routes) {
    auto route = serving::ParseRoute(word);
    if (!route) return Fail(route.error());
    routes.push_back(std::move(*route));
  }
  if (!routes.empty()) return routes;
  auto route = serving::ParseRoute(fleet.fleet.policy.route);
  if (!route) {
    return Fail(route.error().code,
                fmt::format("{}:{}: {}", NameOfInput(options.fleet), fleet.fleet.policy.route_line,
                            route.error().message));
  }
  routes.push_back(std::move(*route));
  return routes;
}

[[nodiscard]] Result<RunPlan> ReadRunPlan(const SimulateOptions& options,
                                          const LoadedFleet& fleet) {
  RunPlan plan;
  auto routes = ReadRoutes(options, fleet);
  if (!routes) return Fail(routes.error());
  plan.routes = std::move(*routes);
  if (options.sweep) {
    auto factors = ParseSweep(*options.sweep);
    if (!factors) return Fail(factors.error());
    plan.factors = std::move(*factors);
  }
  if (options.duration) {
    const auto duration = ParseTimeArgument("--duration", *options.duration);
    if (!duration) return Fail(duration.error());
    if (*duration <= Duration(0)) {
      return Fail(ErrorCode::kInvalidArgument, "--duration: a run must last longer than nothing");
    }
    plan.duration = *duration;
    plan.requests = std::nullopt;
  }
  if (options.requests) plan.requests = *options.requests;
  const auto spread = ParseSpread(options.spread);
  if (!spread) return Fail(spread.error());
  plan.spread = *spread;
  plan.seed = fleet.problem.seed;
  plan.details = options.html.has_value();
  plan.bounded = options.bounded || plan.details || options.format == OutputFormat::kJson;
  return plan;
}

[[nodiscard]] Result<Candidates> ReadCandidates(const SimulateOptions& options,
                                                const LoadedFleet& fleet) {
  std::vector<LaterPlan> changes;
  for (const std::string& word : options.changes) {
    auto change = ParseLaterPlan(word);
    if (!change) return Fail(change.error());
    changes.push_back(std::move(*change));
  }
  sim::ChangeCost cost;
  if (!options.change_cost.empty()) {
    const auto parsed = ParseChangeCost(options.change_cost);
    if (!parsed) return Fail(parsed.error());
    cost = *parsed;
  }
  std::vector<std::string> plans = options.plans;
  if (plans.empty()) {
    const workload::FleetPolicy& policy = fleet.fleet.policy;
    if (const auto planner = FindPlanner(policy.planner); !planner) {
      return Fail(planner.error().code, fmt::format("{}:{}: {}", NameOfInput(options.fleet),
                                                    policy.planner_line, planner.error().message));
    }
    plans.push_back(policy.planner);
  }
  return FindCandidates(fleet, plans, std::move(changes), cost);
}

[[nodiscard]] Result<std::unique_ptr<EventFile>> OpenEvents(const SimulateOptions& options,
                                                            const Candidates& candidates,
                                                            const RunPlan& plan) {
  const std::size_t runs = candidates.plans.size() * plan.routes.size() * plan.factors.size();
  if (runs != 1) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--events is the log of one run, but here are {}; give one --plan and "
                            "one --route, and no --sweep",
                            runs));
  }
  return EventFile::Create(*options.events);
}

[[nodiscard]] Result<void> Report(const SimulateOptions& options, const SimulateReport& report) {
  if (options.html && !report.study.rows.empty()) {
    if (auto saved = SaveText(*options.html, HtmlReport(report)); !saved) return saved;
  }
  const std::string text =
      options.format == OutputFormat::kJson ? SimulateJson(report) : SimulateTable(report);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return {};
}

// What has no meaning when a policy shares out the GPUs.
[[nodiscard]] Result<void> RefuseBesideControl(const SimulateOptions& options) {
  const struct {
    bool given;
    const char* option;
    const char* why;
  } kRefused[] = {
      {!options.plans.empty(), "--plan", "a policy cuts the GPUs itself"},
      {!options.changes.empty(), "--change", "a policy changes the cut itself"},
      {!options.change_cost.empty(), "--change-cost", "--restart says what a change costs"},
      {options.routes.size() > 1, "a second --route", "policies are compared, all under one route"},
      {options.sweep.has_value(), "--sweep", "the load is the fleet's"},
      {options.bounded, "--bounded", "the load is the fleet's"},
      {options.requests.has_value(), "--requests", "--duration says how long a run is"},
      {options.spread != "none", "--spread", "batches take their measured time"},
      {options.events.has_value(), "--events", "there is no log of single requests"},
  };
  for (const auto& [given, option, why] : kRefused) {
    if (!given) continue;
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} does not go with --control: {}", option, why));
  }
  return {};
}

[[nodiscard]] Result<ExitStatus> SimulatePolicies(const SimulateOptions& options,
                                                  LoadedFleet& fleet) {
  if (auto sound = RefuseBesideControl(options); !sound) return Fail(sound.error());
  auto routes = ReadRoutes(options, fleet);
  if (!routes) return Fail(routes.error());
  return SimulateControl(fleet, options.control,
                         {.fleet = options.fleet,
                          .route = std::move(routes->front()),
                          .duration = options.duration,
                          .html = options.html,
                          .format = options.format});
}

[[nodiscard]] Result<ExitStatus> Simulate(const SimulateOptions& options) {
  auto fleet = LoadFleet(options.fleet);
  if (!fleet) return Fail(fleet.error());
  if (options.seed) (*fleet)->problem.seed = *options.seed;
  if (options.trace) {
    if (auto replaced = ReplaceLoad(**fleet, *options.trace); !replaced) {
      return Fail(replaced.error());
    }
  }
  if (!options.control.policies.empty()) return SimulatePolicies(options, **fleet);
  const auto plan = ReadRunPlan(options, **fleet);
  if (!plan) return Fail(plan.error());

  std::optional<RunProgress> progress(std::in_place);
  progress->Show("planning");
  const auto candidates = ReadCandidates(options, **fleet);
  if (!candidates) return Fail(candidates.error());
  std::unique_ptr<EventFile> events;
  if (options.events && !candidates->plans.empty()) {
    auto opened = OpenEvents(options, *candidates, *plan);
    if (!opened) return Fail(opened.error());
    events = std::move(*opened);
  }
  const Study study = RunStudy(**fleet, *candidates, *plan, events.get(), *progress);
  progress.reset();
  if (events) {
    if (auto finished = events->Finish(); !finished) return Fail(finished.error());
  }
  const SimulateReport report{std::string(NameOfInput(options.fleet)), **fleet, *candidates, *plan,
                              study};
  if (auto reported = Report(options, report); !reported) return Fail(reported.error());
  return candidates->plans.empty() ? ExitStatus::kFailed : ExitStatus::kOk;
}

void Run(const SimulateOptions& options, Invocation& invocation) {
  const auto status = Simulate(options);
  if (!status) return Complain(invocation, status.error());
  invocation.status = *status;
}

template <typename Names>
std::string ListOf(const Names& names) {
  std::string text;
  for (const auto& name : names) text += fmt::format("  {:<18} {}\n", name.name, name.what);
  return text;
}

std::string SimulateFooter() {
  return fmt::format(
      "Planners:\n{}"
      "\n"
      "Routes (baselines are as published; +merge, +shed and +learn add what divvy has):\n{}"
      "\n"
      "Policies of --control:\n{}"
      "\n"
      "SHED counts requests that were refused because they could not be answered in\n"
      "time. BOUNDED/S is the rate at which 95 % of each model's requests are still in\n"
      "time. One seed gives one outcome. Under --control, GOODPUT/S is what answers in time\n"
      "are worth, each by the accuracy of the model that gave it and the model's weight;\n"
      "LOST is what fresh instances could have answered while they started.\n"
      "\n"
      "Examples:\n"
      "  divvy simulate fleet.yaml\n"
      "  divvy simulate fleet.yaml --plan paris --plan best-homogeneous --route divvy "
      "--route fifs --bounded\n"
      "  divvy simulate fleet.yaml --plan plan.yaml --sweep 0.5:1.5:0.1\n"
      "  divvy simulate fleet.yaml --trace requests.csv --html report.html\n"
      "  divvy simulate fleet.yaml --plan day.yaml --change night.yaml@60s --duration 120s\n"
      "  divvy simulate fleet.yaml --control migrator,ekya,static --seeds 3 --html report.html\n",
      ListOf(planner::Planners()), ListOf(serving::PolicyNames()), ListOf(control::PolicyNames()));
}

void AddWhatToRun(CLI::App& command, SimulateOptions& options) {
  command.add_option("FLEET", options.fleet, "Fleet file, - for standard input")->required();
  command
      .add_option("--plan", options.plans,
                  "Planner, or plan file; may be repeated (default: the fleet's planner)")
      ->type_name("PLAN")
      ->allow_extra_args(false);
  command
      .add_option("--route", options.routes,
                  "How requests find a partition; may be repeated (default: the fleet's route)")
      ->type_name("ROUTE")
      ->allow_extra_args(false);
  command.add_option("--trace", options.trace, "Arrivals instead of the fleet's load")
      ->type_name("FILE");
  command.add_option("--sweep", options.sweep, "Factors on all rates, one run each")
      ->type_name("FROM:TO:STEP");
  command
      .add_option("--change", options.changes,
                  "Turn to another plan during the run; may be repeated")
      ->type_name("PLAN@TIME")
      ->allow_extra_args(false);
  command
      .add_option("--change-cost", options.change_cost,
                  "What that takes (default: destroy=150ms,create=130ms,start=5s)")
      ->type_name("COSTS");
}

void AddHowToRun(CLI::App& command, SimulateOptions& options) {
  command.add_option("--requests", options.requests, "Requests a run, at most (default: 100000)")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1'000'000'000'000}).description(""))
      ->type_name("N");
  command
      .add_option("--duration", options.duration,
                  "Simulated time a run, at most, e.g. 60s (default with --control: 3 windows)")

      ->type_name("TIME");
  command.add_option("--seed", options.seed, "For all that is drawn by lot (default: the fleet's)")
      ->check([](const std::string& text) {
        return ParseUnsigned(text) ? "" : text + " is not a whole number from 0 to 2^64 - 1";
      })
      ->type_name("N");
  command
      .add_option("--spread", options.spread,
                  "How batches vary around their measured time: not at all (default), as p95 was "
                  "measured, or log-normal with this sigma")
      ->type_name("none|measured|SIGMA");
  command.add_flag("--bounded", options.bounded,
                   "Find the latency-bounded rate too (json and html always do)");
  command.add_option("--events", options.events, "Write every event of the one run to a file")
      ->type_name("FILE");
  command.add_option("--html", options.html, "Write a page with plots, which needs no network")
      ->type_name("FILE");
  AddOutputOption(command, options.format);
}

}  // namespace

void AddSimulateCommand(CLI::App& app, Invocation& invocation) {
  CLI::App* const command = app.add_subcommand(
      "simulate", "Serve a fleet's load in simulated time under plans and routes");
  // Shared by the options, which fill it, and the callback, which reads it.
  const auto options = std::make_shared<SimulateOptions>();
  AddWhatToRun(*command, *options);
  AddHowToRun(*command, *options);
  AddControlOptions(*command, options->control);
  command->footer([] { return SimulateFooter(); });
  command->callback([options, &invocation] { Run(*options, invocation); });
}

}  // namespace divvy::app
