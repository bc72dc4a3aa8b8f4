#include "plan_fleet.h"

#include <fmt/format.h>
#include <unistd.h>
#include <filesystem>
#include <system_error>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/spelling.h"
#include "fleet_input.h"
#include "plan/plan_file.h"
#include "plan_fleet_report.h"
#include "planning.h"
#include "text_file.h"
#include "workload/jobs_file.h"

namespace divvy::app {
namespace {

struct Options {
  std::optional<std::string> fleet;
  std::optional<std::string> policy;  // Nothing: the fleet's own.
  std::string save;
  std::optional<std::string> jobs;  // Jobs file: what could run in what is left.
  OutputFormat format = OutputFormat::kTable;
  bool no_compare = false;
};

// One line on standard error, while a person looks on, that says what is being
// computed; gone when this goes.
class ProgressLine {
 public:
  ProgressLine() : shown_(isatty(STDERR_FILENO) == 1) {}
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine() {
    if (shown_) std::fputs("\r\x1b[K", stderr);
  }

  void Say(std::string_view policy) {
    if (!shown_) return;
    std::fprintf(stderr, "\r\x1b[Kplanning: %.*s ...", static_cast<int>(policy.size()),
                 policy.data());
    std::fflush(stderr);
  }

 private:
  const bool shown_;
};

Result<const planner::NamedPlanner*> ChosenPlanner(const Options& options,
                                                   const LoadedFleet& loaded) {
  if (options.policy) return FindPlanner(*options.policy);
  const workload::FleetPolicy& policy = loaded.fleet.policy;
  const auto planner = FindPlanner(policy.planner);
  if (planner) return planner;
  return Fail(planner.error().code, fmt::format("{}:{}: planner: {}", NameOfInput(*options.fleet),
                                                policy.planner_line, planner.error().message));
}

std::vector<Rival> Compare(const planner::Problem& problem, const planner::NamedPlanner& chosen,
                           ProgressLine& progress) {
  std::vector<Rival> rivals;
  for (const planner::NamedPlanner& planner : planner::Planners()) {
    if (planner.name == chosen.name) continue;
    progress.Say(planner.name);
    Rival rival{PlanBy(planner, problem)};
    if (rival.attempt.carries) {
      rival.gpus_needed = rival.attempt.gpus();
    } else if (problem.gpus) {
      rival.gpus_needed = GpusNeeded(planner, problem);
    }
    rivals.push_back(std::move(rival));
  }
  return rivals;
}

PlanReport MakeReport(const LoadedFleet& loaded, const planner::NamedPlanner& planner,
                      bool compare) {
  ProgressLine progress;
  progress.Say(planner.name);
  PlanReport report{.fleet = loaded, .chosen = PlanBy(planner, loaded.problem)};
  planner::Infeasible& failure = report.chosen.failure;
  if (!report.chosen.carries && loaded.problem.gpus && !failure.gpus_needed) {
    failure.gpus_needed = GpusNeeded(planner, loaded.problem);
  }
  if (compare) report.rivals = Compare(loaded.problem, planner, progress);
  return report;
}

// Only what ParsePlan reads back is saved: a plan file is for one node, and fleets
// may be larger than any.
Result<std::string> PlanText(const PlanReport& report) {
  std::string text =
      plan::FormatPlan(planner::ToPlan(report.fleet.problem, *report.chosen.deployment));
  if (const auto read = plan::ParsePlan(text, "the plan"); !read) {
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("cannot save a plan for {} GPUs, since a plan file is for the GPUs of "
                            "one node: {}",
                            report.chosen.gpus(), read.error().message));
  }
  return text;
}

void Print(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void Deliver(Invocation& invocation, const Options& options, const PlanReport& report) {
  std::string text = options.format == OutputFormat::kJson ? PlanToJson(report)
                                                           : DescribePlan(report, invocation.ink);
  if (!report.chosen.carries) invocation.status = ExitStatus::kFailed;
  if (options.save.empty() || !report.chosen.deployment) return Print(text);
  std::error_code unknown;  // Of a file that is not there yet: then it is no fleet either.
  if (std::filesystem::equivalent(options.save, *options.fleet, unknown)) {
    return Complain(invocation, {ErrorCode::kInvalidArgument,
                                 fmt::format("--save {} would overwrite the fleet", options.save)});
  }
  const auto plan = PlanText(report);
  if (options.save == "-" && plan) return Print(*plan);
  Print(text);
  if (!plan) return Complain(invocation, plan.error());
  if (const auto saved = SaveText(options.save, *plan); !saved) {
    return Complain(invocation, saved.error());
  }
  if (options.format == OutputFormat::kTable) fmt::print("\nwrote {}\n", options.save);
}

Result<workload::JobsFile> LoadJobs(const std::string& path, const gpu::GpuModel& gpu) {
  const auto text = ReadText(path);
  if (!text) return Fail(text.error());
  auto file = workload::ParseJobs(*text, NameOfInput(path));
  if (file && file->gpu != gpu.name) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: its jobs were measured on {}, and the fleet has {}",
                            NameOfInput(path), file->gpu, gpu.name));
  }
  return file;
}

void Run(Invocation& invocation, const Options& options) {
  constexpr std::string_view kSubcommands[] = {"show", "check", "export", "import"};
  if (!options.fleet) {
    return Complain(invocation, {ErrorCode::kInvalidArgument,
                                 "plan needs a fleet file to plan for, or one of show, check, "
                                 "export and import; see divvy plan --help"});
  }
  const auto loaded = LoadFleet(*options.fleet);
  if (!loaded) {
    Error error = loaded.error();
    if (error.code == ErrorCode::kNotFound)
      error.message += DidYouMean(*options.fleet, kSubcommands);
    return Complain(invocation, error);
  }
  const auto planner = ChosenPlanner(options, **loaded);
  if (!planner) return Complain(invocation, planner.error());
  std::optional<workload::JobsFile> jobs;
  if (options.jobs) {
    auto read = LoadJobs(*options.jobs, *(*loaded)->problem.gpu);
    if (!read) return Complain(invocation, read.error());
    jobs = std::move(*read);
  }
  PlanReport report = MakeReport(**loaded, **planner, !options.no_compare);
  if (jobs && report.chosen.deployment) {
    report.leftovers = planner::JobsInLeftovers((*loaded)->problem, *report.chosen.deployment,
                                                jobs->jobs, jobs->gpu_power_w);
  }
  Deliver(invocation, options, report);
}

std::string PlanFooter() {
  std::string text = "Policies:\n";
  for (const planner::NamedPlanner& planner : planner::Planners()) {
    text += fmt::format("  {:<18} {}\n", planner.name, planner.what);
  }
  return text +
         "\n"
         "That the fleet cannot be served is an answer too: exit status 1, with what would do.\n"
         "\n"
         "Examples:\n"
         "  divvy plan fleet.yaml                       the fleet's own policy, and how others do\n"
         "  divvy plan fleet.yaml --save plan.yaml      for divvy apply\n"
         "  divvy plan fleet.yaml --policy paris -o json\n"
         "  divvy plan fleet.yaml --jobs jobs.yaml      and where training could run beside it\n";
}

}  // namespace

void AddPlanFleet(CLI::App& plan, Invocation& invocation) {
  auto options = std::make_shared<Options>();  // Shared with the callback, which outlives us.
  plan.add_option("FLEET", options->fleet, "Fleet file to plan for, - for standard input")
      ->type_name("");
  plan.add_option("--policy", options->policy, "Planner (default: the fleet's policy, or exact)")
      ->type_name("NAME");
  plan.add_option("--save", options->save, "Plan file to write; - prints the plan alone")
      ->type_name("OUT");
  plan.add_option("--jobs", options->jobs,
                  "Jobs file: say where these could run in what the plan leaves")
      ->type_name("JOBS");
  plan.add_flag("--no-compare", options->no_compare, "Leave the other planners out");
  AddOutputOption(plan, options->format);
  plan.footer(PlanFooter());
  // Options fall through to this command from its subcommands, where they would be
  // taken and do nothing.
  for (CLI::App* subcommand : plan.get_subcommands({})) {
    for (const char* name : {"FLEET", "--policy", "--save", "--jobs", "--no-compare", "--output"}) {
      subcommand->excludes(plan.get_option(name));
    }
  }
  plan.callback([&plan, &invocation, options] {
    if (plan.get_subcommands().empty()) Run(invocation, *options);
  });
}

}  // namespace divvy::app
