#include "simulate_control.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <utility>

#include "base/spelling.h"
#include "base/text_safety.h"
#include "control/estate.h"
#include "control/forecast.h"
#include "control/policies.h"
#include "run_progress.h"
#include "simulate_arguments.h"
#include "simulate_control_html.h"
#include "simulate_control_report.h"
#include "simulate_control_runs.h"
#include "table.h"
#include "text_file.h"

namespace divvy::app {
namespace {

constexpr int kDefaultWindows = 3;
constexpr int kMostDurationSlots = 100'000;
constexpr double kMostRequests = 100e6;  // Of a run: its arrivals are held in memory.

[[nodiscard]] tl::unexpected<Error> WrongControl(std::string message) {
  return Fail(ErrorCode::kInvalidArgument, std::move(message));
}

std::vector<std::string_view> KnownPolicies() {
  std::vector<std::string_view> names;
  for (const control::PolicyName& policy : control::PolicyNames()) names.push_back(policy.name);
  return names;
}

// Each once, in the order they were named.
[[nodiscard]] Result<std::vector<std::string>> ReadPolicies(const std::vector<std::string>& words) {
  const std::vector<std::string_view> known = KnownPolicies();
  std::vector<std::string> policies;
  const auto add = [&](std::string_view name) {
    if (std::ranges::find(policies, name) == policies.end()) policies.emplace_back(name);
  };
  for (const std::string& word : words) {
    if (word == "all") {
      for (const std::string_view name : known) add(name);
    } else if (std::ranges::find(known, word) != known.end()) {
      add(word);
    } else {
      std::string hint = DidYouMean(word, known);
      if (hint.empty()) hint = fmt::format("; there are {}, and all", fmt::join(known, ", "));
      return WrongControl(fmt::format("--control: no policy is called {}{}", Quoted(word), hint));
    }
  }
  return policies;
}

// A time that is a whole number of slots, one at least.
[[nodiscard]] Result<Duration> ReadSlots(std::string_view option, const std::string& word,
                                         Duration slot) {
  const auto time = ParseTimeArgument(option, word);
  if (!time) return Fail(time.error());
  if (*time >= slot && *time % slot == Duration(0) && *time <= slot * kMostDurationSlots)
    return *time;
  return WrongControl(
      fmt::format("{}: {} is not a whole number of the fleet's slots of {} s, 1 to {}", option,
                  Quoted(word), FourDigits(Seconds(slot)), kMostDurationSlots));
}

// The fleet's `control`, with what the command line says instead.
[[nodiscard]] Result<void> ChangeControl(const ControlOptions& options, std::string_view fleet_name,
                                         workload::FleetControl& control) {
  if (options.restart) {
    const auto restart = ParseTimeArgument("--restart", *options.restart);
    if (!restart) return Fail(restart.error());
    control.restart = {.change = *restart, .start = Duration(0), .prepared = 0};
  }
  if (options.every) {
    const auto every = ReadSlots("--every", *options.every, control.slot);
    if (!every) return Fail(every.error());
    control.every = *every;
  }
  if (options.quantile) control.quantile = *options.quantile;
  if (options.forecast) control.forecast = *options.forecast;
  const auto known = control::MakeForecaster(control.forecast, {});
  if (known) return {};
  return Fail(known.error().code, options.forecast
                                      ? "--forecast: " + known.error().message
                                      : fmt::format("{}:{}: {}", fleet_name, control.forecast_line,
                                                    known.error().message));
}

[[nodiscard]] Result<ControlPlan> ReadControlPlan(const LoadedFleet& fleet,
                                                  const ControlOptions& options,
                                                  const ControlSetting& setting) {
  ControlPlan plan;
  auto policies = ReadPolicies(options.policies);
  if (!policies) return Fail(policies.error());
  plan.policies = std::move(*policies);
  const workload::FleetControl& control = fleet.fleet.control;
  Duration duration = control.window * kDefaultWindows;
  if (setting.duration) {
    const auto given = ReadSlots("--duration", *setting.duration, control.slot);
    if (!given) return Fail(given.error());
    duration = *given;
  }
  plan.slots = static_cast<int>(duration / control.slot);
  double requests = 0;
  for (const planner::ModelDemand& model : fleet.problem.models) {
    requests += model.rate * Seconds(duration);
  }
  if (requests > kMostRequests) {
    return WrongControl(
        fmt::format("{:.3g} requests would come in {} s, and a run under --control may "
                    "have {:.0f}; --duration makes it shorter",
                    requests, FourDigits(Seconds(duration)), kMostRequests));
  }
  for (std::uint64_t i = 0; i < options.seeds; ++i) plan.seeds.push_back(fleet.problem.seed + i);
  plan.route = setting.route;
  return plan;
}

// A policy shares out GPUs that are there.
[[nodiscard]] Result<int> ReadGpus(const LoadedFleet& fleet, const ControlOptions& options,
                                   std::string_view fleet_name) {
  if (options.gpus) return *options.gpus;
  if (fleet.problem.gpus) return *fleet.problem.gpus;
  return WrongControl(
      fmt::format("{}:{}: count is auto, but --control has to know how many GPUs there "
                  "are; give a number here, or --gpus N",
                  fleet_name, fleet.fleet.gpus.line));
}

std::vector<std::string> NotesOf(const LoadedFleet& fleet, const control::Estate& estate) {
  std::vector<std::string> notes = fleet.notes;
  if (!fleet.fleet.jobs.empty()) {
    notes.emplace_back("jobs of the fleet are left out: control shares the GPUs among models");
  }
  for (const control::EstateTenant& tenant : estate.tenants) {
    const bool served = std::ranges::any_of(
        tenant.by_profile, [](const control::Offer& offer) { return offer.capacity > 0; });
    if (!served) {
      notes.push_back(
          fmt::format("{}: no instance answers its requests within the SLO", tenant.name));
    }
  }
  return notes;
}

std::string PolicyList() {
  std::string text;
  for (const control::PolicyName& policy : control::PolicyNames()) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", policy.name);
  }
  return text;
}

[[nodiscard]] Result<void> Report(const ControlSetting& setting, const ControlReport& report) {
  if (setting.html && !report.study.policies.empty()) {
    if (auto saved = SaveText(*setting.html, ControlHtml(report)); !saved) return saved;
  }
  const std::string text =
      setting.format == OutputFormat::kJson ? ControlJson(report) : ControlTable(report);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return {};
}

}  // namespace

void AddControlOptions(CLI::App& command, ControlOptions& options) {
  CLI::Option* const control = command
                                   .add_option("--control", options.policies,
                                               "Share the GPUs out anew while they serve, by each "
                                               "of these policies, separated by commas: " +
                                                   PolicyList() + ", or all")
                                   ->type_name("POLICY")
                                   ->delimiter(',')
                                   ->allow_extra_args(false);
  const auto add = [&](const std::string& name, auto& value, const std::string& what,
                       const std::string& type) {
    return command.add_option(name, value, what)->type_name(type)->needs(control);
  };
  add("--seeds", options.seeds, "Runs of each policy, from --seed on; means are shown", "N")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1000}).description(""));
  add("--gpus", options.gpus, "How many there are (default: the fleet's)", "N")
      ->check(CLI::Range(1, 1000).description(""));
  add("--restart", options.restart,
      "How long a fresh instance needs until it answers (default: the fleet's)", "TIME");
  add("--every", options.every, "Time between decisions (default: the fleet's)", "TIME");
  add("--forecast", options.forecast, "How loads are foretold (default: the fleet's)", "NAME");
  add("--quantile", options.quantile, "Of the forecast, to be planned for (default: the fleet's)",
      "Q")
      ->check(NumberIn({0.001, 0.999}));
}

Result<ExitStatus> SimulateControl(LoadedFleet& fleet, const ControlOptions& options,
                                   const ControlSetting& setting) {
  const std::string name(NameOfInput(setting.fleet));
  if (auto changed = ChangeControl(options, name, fleet.fleet.control); !changed) {
    return Fail(changed.error());
  }
  const auto plan = ReadControlPlan(fleet, options, setting);
  if (!plan) return Fail(plan.error());
  const auto gpus = ReadGpus(fleet, options, name);
  if (!gpus) return Fail(gpus.error());
  fleet.problem.gpus = *gpus;
  fleet.problem.jobs.clear();
  const control::Estate estate =
      control::MakeEstate(fleet.fleet, fleet.problem, *gpus, fleet.training);
  std::optional<RunProgress> progress(std::in_place);
  const ControlStudy study = RunControlStudy(fleet, estate, *plan, *progress);
  progress.reset();
  const ControlReport report{name, fleet, estate, *plan, study, NotesOf(fleet, estate)};
  if (auto reported = Report(setting, report); !reported) return Fail(reported.error());
  return study.policies.empty() ? ExitStatus::kFailed : ExitStatus::kOk;
}

}  // namespace divvy::app
