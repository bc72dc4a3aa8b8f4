#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text_safety.h"
#include "command.h"
#include "control/policies.h"
#include "control_cutter.h"
#include "control_drive.h"
#include "control_lines.h"
#include "control_node.h"
#include "control_observe.h"
#include "control_solver.h"
#include "control_state.h"
#include "control_stop.h"
#include "device/journal.h"
#include "device/nvml_library.h"
#include "fleet_input.h"
#include "planner/goodput.h"
#include "text_file.h"

namespace divvy::app {
namespace {

constexpr const char* kTritonCounter = "nv_inference_request_success";

struct NodeControlOptions {
  std::string fleet;
  std::string policy;
  std::string metrics;
  std::string metric = kTritonCounter;
  bool replay = false;
  bool real_pace = true;
  std::optional<int> slots;
  std::uint64_t seed = 1;
  std::string save;
  bool dry_run = false;
  EventLines::Form form = EventLines::Form::kText;
};

Result<void> CheckOptions(const NodeControlOptions& options, bool named_metric) {
  const auto wrong = [](const char* message) { return Fail(ErrorCode::kInvalidArgument, message); };
  if (options.metrics.empty() == !options.replay) {
    return wrong(
        "where do requests come from? Give --metrics FILE, counters that a server or a scraper "
        "rewrites, or --replay, the fleet's own load drawn by seed; one of the two");
  }
  if (named_metric && options.replay) return wrong("--metric names a counter of --metrics FILE");
  if (!options.real_pace && !options.slots) {
    return wrong("--pace none does not wait between slots and needs --slots N, to end");
  }
  if (options.dry_run && !options.save.empty()) {
    return wrong("--dry-run writes nothing: leave --save out");
  }
  return {};
}

// The policies that a node can follow.
Result<void> CheckPolicy(std::string_view name) {
  const auto refuse = [&](std::string_view why) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("the policy {} is for 'divvy simulate --control' alone: {}; on a node "
                            "there are migrator and static",
                            name, why));
  };
  if (name == "oracle" || name == "hindsight") return refuse("it knows what will come");
  if (name == "ekya" || name == "astraea") {
    return refuse("it shares GPUs by MPS, which divvy does not set up yet");
  }
  return {};
}

Result<int> GpuCount(const LoadedFleet& fleet, const std::string& name) {
  if (fleet.problem.gpus) return *fleet.problem.gpus;
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{}:{}: count: 'auto' leaves open how many GPUs of this node are to be "
                          "controlled; give a number",
                          name, fleet.fleet.gpus.line));
}

// A plan names retrainings after model and option; such names have a longest.
Result<void> CheckJobNames(const control::Estate& estate, const std::string& file) {
  for (std::size_t m = 0; m < estate.tenants.size(); ++m) {
    const auto& learning = estate.tenants[m].learning;
    for (std::size_t o = 0; learning && o < learning->options.size(); ++o) {
      const std::string name = JobName(estate, {planner::Work::Kind::kRetrain, m, o});
      if (IsName(name)) continue;
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}: {} is too long for a job's name (200 bytes): shorten the "
                              "model's or the option's",
                              file, Quoted(name)));
    }
  }
  return {};
}

std::string Absolute(const std::string& path) {
  std::error_code error;
  const auto absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.lexically_normal().string();
}

// One run of the command: what it is made of, in the order in which it comes to be.
class NodeControl {
 public:
  NodeControl(const NodeControlOptions& options, const Invocation& invocation,
              const LoadedFleet& fleet)
      : options_(options),
        invocation_(invocation),
        fleet_(fleet),
        dir_(invocation.state_dir + "/control"),
        state_path_(dir_ + "/state.json"),
        plan_path_(Absolute(options.save.empty() ? dir_ + "/plan.yaml" : options.save)) {}

  Result<void> Run() {
    if (auto made = MakePolicy(); !made) return made;
    lines_.emplace(*estate_, options_.form);
    return options_.dry_run ? RunDry() : RunOnNode();
  }

 private:
  Result<void> MakePolicy() {
    const std::string name(NameOfInput(options_.fleet));
    const auto gpus = GpuCount(fleet_, name);
    if (!gpus) return Fail(gpus.error());
    estate_ = control::MakeEstate(fleet_.fleet, fleet_.problem, *gpus, fleet_.training);
    if (auto sound = CheckJobNames(*estate_, name); !sound) return sound;
    const workload::FleetControl& control = fleet_.fleet.control;
    const bool from_fleet = options_.policy.empty();
    policy_name_ = from_fleet ? control.policy : options_.policy;
    if (options_.real_pace) limit_ = estate_->slot * estate_->every;
    solver_.emplace([](const planner::GoodputProblem& p) { return planner::PlanGoodput(p); },
                    limit_, stop_);
    if (auto forecaster = control::MakeForecaster(control.forecast, {}); !forecaster) {
      return Fail(forecaster.error().code, fmt::format("{}:{}: {}", name, control.forecast_line,
                                                       forecaster.error().message));
    }
    const auto fits = CheckPolicy(policy_name_);
    auto policy =
        !fits ? Fail(fits.error())
              : control::MakePolicy(policy_name_, {*estate_, fleet_.problem, control, no_arrivals_,
                                                   [this](const planner::GoodputProblem& p) {
                                                     return solver_->Ask(p);
                                                   }});
    if (!policy) {
      Error error = policy.error();
      if (from_fleet && control.policy_line > 0) {
        error.message = fmt::format("{}:{}: {}", name, control.policy_line, error.message);
      }
      return Fail(std::move(error));
    }
    policy_ = *std::move(policy);
    return {};
  }

  Result<void> RunDry() {
    device::NodeState node = ImagineNode(*estate_);
    std::string whose = "the GPUs of the fleet, uncut";
    const auto nvml = device::NvmlLibrary::Open(invocation_.nvml);
    auto read = nvml ? device::ReadNode(**nvml) : Fail(nvml.error());
    const auto fits = read ? CheckNode(*estate_, *read) : Fail(read.error());
    if (fits) {
      node = *std::move(read);
      whose = "the GPUs of this node";
    } else {
      whose += fmt::format(" ({})", fits.error().message);
    }
    Begin(0, fmt::format("a dry run, which changes nothing, for {}", whose));
    ImaginedCutter cutter(std::move(node));
    Go(cutter, std::nullopt);
    return {};
  }

  Result<void> RunOnNode() {
    auto nvml = device::NvmlLibrary::Open(invocation_.nvml);
    if (!nvml) return Fail(nvml.error());
    // Held to the end: two controllers would undo each other's changes.
    const auto lock = device::ChangeLock::Acquire(dir_);
    if (!lock) {
      return Fail(lock.error().code,
                  fmt::format("divvy control cannot begin: {}", lock.error().message));
    }
    NvmlCutter cutter(**nvml, invocation_.state_dir, plan_path_, stop_);
    const auto recovered = cutter.Recover();
    if (!recovered) return Fail(recovered.error());
    const auto node = cutter.Read();
    if (!node) return Fail(node.error());
    if (auto fits = CheckNode(*estate_, *node); !fits) return fits;
    const auto view = TakeUp();
    const int slot = view ? view->slot + 1 : 0;
    if (*recovered) {
      lines_->Tell(slot, "recovered",
                   **recovered == device::Outcome::kApplied
                       ? "a change that was cut short is complete"
                       : "what a change that was cut short had done is undone");
    }
    Begin(slot, fmt::format("{} of this node's {} GPUs; the plan in force is in {}", estate_->gpus,
                            node->gpus.size(), plan_path_));
    Go(cutter, view);
    return {};
  }

  // What an earlier process knew, if that holds for this fleet.
  std::optional<control::View> TakeUp() {
    const auto text = ReadText(state_path_);
    if (!text && text.error().code == ErrorCode::kNotFound) return std::nullopt;
    auto view = text ? ParseControlState(*text, *estate_, policy_name_) : Fail(text.error());
    if (view) {
      lines_->Tell(
          view->slot + 1, "resumes",
          fmt::format("after slot {}, with {} instances at work", view->slot, view->cells.size()));
      return *view;
    }
    lines_->Tell(0, "anew",
                 fmt::format("{} is not taken up: {}", state_path_, view.error().message));
    return std::nullopt;
  }

  void Begin(int slot, const std::string& where) {
    for (const std::string& note : fleet_.notes) lines_->Tell(slot, "note", note);
    if (!fleet_.fleet.jobs.empty()) {
      lines_->Tell(slot, "note",
                   "jobs of the fleet are left out: control shares the GPUs among models");
    }
    lines_->Tell(slot, "begins",
                 fmt::format("{} x {}, policy {}, slots of {:g} s, windows of {}, a decision every "
                             "{}; {}",
                             estate_->gpus, estate_->gpu->name, policy_name_,
                             Seconds(estate_->slot), estate_->window, estate_->every, where));
  }

  std::unique_ptr<Observation> Observe(int last_slot) const {
    if (options_.replay) {
      return std::make_unique<ReplayObservation>(fleet_.sources, options_.seed, estate_->slot,
                                                 last_slot);
    }
    std::vector<std::string> models;
    for (const control::EstateTenant& tenant : estate_->tenants) models.push_back(tenant.name);
    return std::make_unique<MetricsObservation>(
        options_.metrics, control::RequestCounter(std::move(models), options_.metric));
  }

  void Go(Cutter& cutter, const std::optional<control::View>& view) {
    const auto observation = Observe(view ? view->slot : 0);
    NodePlant plant(*estate_, cutter);
    DriveOptions options{.real_pace = options_.real_pace,
                         .slots = options_.slots,
                         .show_steps = options_.dry_run,
                         .policy = policy_name_};
    if (!options_.dry_run) options.files = KeptFiles{plan_path_, state_path_};
    Drive drive(*estate_, *policy_, plant, *observation, stop_, *lines_, std::move(options));
    if (view) drive.Resume(*view);
    drive.Run();
    if (solver_->busy()) {
      // Nobody waits for an answer any more, and it cannot be called off.
      std::fflush(stdout);
      std::_Exit(static_cast<int>(ExitStatus::kOk));
    }
  }

  const NodeControlOptions& options_;
  const Invocation& invocation_;
  const LoadedFleet& fleet_;
  std::string dir_;
  std::string state_path_;
  std::string plan_path_;
  StopSignal stop_;
  std::optional<control::Estate> estate_;
  std::string policy_name_;
  std::optional<Duration> limit_;
  std::optional<SolverThread> solver_;
  const std::vector<std::vector<double>> no_arrivals_;  // The future is not known here.
  std::unique_ptr<control::Policy> policy_;
  std::optional<EventLines> lines_;
};

constexpr const char* kControlFooter = R"(
Observes requests slot by slot, forecasts them, cuts the GPUs anew where that
promises more goodput than staying (the fleet's 'control' says how often and for
how much), and keeps the plan in force in --save. Layouts change as by 'divvy
apply': under its lock, journaled, busy instances untouched, undone on failure.
Starting and stopping servers and trainings is up to whoever follows the plan.
It fails safe: whatever goes wrong, the layout stays and a line says why. SIGINT
and SIGTERM end it at once, layout as it is. After a crash it goes on where it was.

Examples:
  divvy control fleet.yaml --replay --dry-run --pace none --slots 300
  divvy control fleet.yaml --metrics /run/divvy/triton.prom
  divvy control fleet.yaml --metrics m.prom --metric requests_total -o json)";

void AddOptions(CLI::App& command, NodeControlOptions& options) {
  command.add_option("FLEET", options.fleet, "Fleet file; - is standard input")
      ->type_name("FILE")
      ->required();
  command
      .add_option("--policy", options.policy,
                  "migrator or static (default: control.policy of the fleet)")
      ->type_name("NAME");
  command
      .add_option("--metrics", options.metrics,
                  "Counters in Prometheus' text format, read again each slot")
      ->type_name("FILE");
  command
      .add_option("--metric", options.metric,
                  "The counter of requests, with a label 'model'; other labels are summed up")
      ->type_name("NAME")
      ->capture_default_str();
  command.add_flag("--replay", options.replay, "Instead, requests drawn from the fleet's load");
  command.add_option("--seed", options.seed, "Of --replay")->type_name("S")->capture_default_str();
  command
      .add_option_function<std::string>(
          "--pace", [&options](const std::string& word) { options.real_pace = word == "real"; },
          "real (default): slots take their time; none: as fast as it goes")
      ->check(CLI::IsMember({"real", "none"}).description(""))
      ->type_name("real|none");
  command.add_option("--slots", options.slots, "End after so many")
      ->check(CLI::Range(1, 1'000'000'000).description(""))
      ->type_name("N");
  command
      .add_option("--save", options.save,
                  "Where the plan in force is kept (default: control/plan.yaml in --state-dir)")
      ->type_name("PLAN");
  command.add_flag("--dry-run", options.dry_run,
                   "Change and write nothing; show the steps that would be taken");
  command
      .add_option_function<std::string>(
          "-o,--output",
          [&options](const std::string& word) {
            options.form = word == "json" ? EventLines::Form::kJson : EventLines::Form::kText;
          },
          "text for people (default) or json, a line an event")
      ->check(CLI::IsMember({"text", "json"}).description(""))
      ->type_name("text|json");
}

}  // namespace

void AddControlCommand(CLI::App& app, Invocation& invocation) {
  CLI::App* const command = app.add_subcommand(
      "control", "Keep cutting this node's GPUs for the load that comes, slot by slot");
  const auto options = std::make_shared<NodeControlOptions>();
  AddOptions(*command, *options);
  command->footer(kControlFooter);
  command->callback([command, options, &invocation] {
    const auto sound = CheckOptions(*options, command->count("--metric") > 0);
    if (!sound) return Complain(invocation, sound.error());
    // Before signals are held back: it may be standard input that is waited for.
    const auto fleet = LoadFleet(options->fleet);
    if (!fleet) return Complain(invocation, fleet.error());
    const auto done = NodeControl(*options, invocation, **fleet).Run();
    if (!done) Complain(invocation, done.error());
  });
}

}  // namespace divvy::app
