#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "apply_report.h"
#include "command.h"
#include "device/apply.h"
#include "device/journal.h"
#include "device/node.h"
#include "device/nvml_library.h"
#include "device/plan_match.h"
#include "plan/plan_file.h"
#include "text_file.h"

namespace divvy::app {
namespace {

using device::GpuChange;
using device::NvmlLibrary;

struct ApplyOptions {
  std::string plan;
  std::optional<std::string> gpu;
  bool dry_run = false;
  bool yes = false;
  bool rollback = false;
  bool recover = false;
  OutputFormat format = OutputFormat::kTable;
};

// How the journal names a plan: the same from every working directory.
std::string PlanName(const std::string& path) {
  if (path == "-") return std::string(NameOfInput(path));
  std::error_code error;
  const auto absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.lexically_normal().string();
}

// Where the wanted layout comes from: a plan, or the layout before the last
// change.
class Wish {
 public:
  static Result<Wish> Of(const ApplyOptions& options, const std::string& state_dir) {
    return options.rollback ? FromLastChange(options, state_dir) : FromPlan(options);
  }

  const std::string& name() const { return name_; }

  [[nodiscard]] Result<std::vector<GpuChange>> Match(const NvmlLibrary& nvml) const {
    const auto node = device::ReadNode(nvml);
    if (!node) return Fail(node.error());
    return before_.empty() ? device::MatchPlan(plan_, file_, *node, only_)
                           : device::MatchTargets(before_, *node);
  }

 private:
  Wish() = default;

  static Result<Wish> FromPlan(const ApplyOptions& options) {
    const auto text = ReadText(options.plan);
    if (!text) return Fail(text.error());
    auto plan = plan::ParsePlan(*text, NameOfInput(options.plan));
    if (!plan) return Fail(plan.error());
    Wish wish;
    wish.name_ = PlanName(options.plan);
    wish.file_ = NameOfInput(options.plan);
    wish.plan_ = *std::move(plan);
    wish.only_ = options.gpu;
    return wish;
  }

  // A plan, where one is named, must be the one that was applied last.
  static Result<Wish> FromLastChange(const ApplyOptions& options, const std::string& state_dir) {
    const auto read = device::ReadLast(state_dir);
    if (!read) return Fail(read.error());
    const std::optional<device::JournalRecord>& last = *read;
    if (!last) {
      return Fail(ErrorCode::kFailedPrecondition,
                  "nothing to roll back: no change has been applied here");
    }
    const device::Change& change = last->change;
    if (!options.plan.empty() && PlanName(options.plan) != change.plan) {
      return Fail(
          ErrorCode::kFailedPrecondition,
          fmt::format("the last change came from {}, not from {}", change.plan, options.plan));
    }
    Wish wish;
    wish.name_ = fmt::format("the layout before {}", change.plan);
    wish.before_ = change.before;
    return wish;
  }

  std::string name_;  // For the journal.
  std::string file_;  // For messages, as the user wrote it.
  plan::Plan plan_;
  std::optional<std::string> only_;
  std::vector<device::GpuTarget> before_;
};

void Show(const std::vector<GpuChange>& changes, const ApplyOptions& options,
          const Invocation& invocation) {
  if (options.format == OutputFormat::kJson) {
    fmt::print("{}\n", ToJson(changes).dump(2));
  } else {
    PrintChanges(changes, invocation.ink);
  }
  std::fflush(stdout);
}

Result<void> Confirm(int steps, const ApplyOptions& options, const Invocation& invocation) {
  if (options.yes) return {};
  if (!invocation.interactive || options.plan == "-") {
    return Fail(ErrorCode::kInvalidArgument,
                "nobody is here to confirm; pass --yes to apply, or --dry-run to only look");
  }
  fmt::print(stderr, "Apply {}? [y/N] ", steps == 1 ? "this step" : "these steps");
  std::string answer;
  std::getline(std::cin, answer);
  if (answer == "y" || answer == "Y" || answer == "yes") return {};
  return Fail(ErrorCode::kAborted, "not confirmed; nothing was changed");
}

Result<void> ApplyUnderLock(const NvmlLibrary& nvml, const ApplyOptions& options,
                            const Invocation& invocation) {
  const auto lock = device::ChangeLock::Acquire(invocation.state_dir);
  if (!lock) return Fail(lock.error());
  // Before anything is shown: what a crash left behind must be settled first.
  const auto read = device::ReadUnfinished(invocation.state_dir);
  if (!read) return Fail(read.error());
  const std::optional<device::JournalRecord>& unfinished = *read;
  if (unfinished) return Fail(device::UnfinishedError(*unfinished));
  // The last change is only the last one while nobody else makes another.
  const auto wish = Wish::Of(options, invocation.state_dir);
  if (!wish) return Fail(wish.error());
  const auto shown = wish->Match(nvml);
  if (!shown) return Fail(shown.error());
  Show(*shown, options, invocation);
  const int steps = device::CountSteps(*shown);
  if (steps == 0) return {};
  if (auto confirmed = Confirm(steps, options, invocation); !confirmed) return confirmed;
  if (!options.yes) {
    // Processes come and go while a person thinks.
    const auto again = wish->Match(nvml);
    if (!again) return Fail(again.error());
    if (ToJson(*again) != ToJson(*shown)) {
      return Fail(ErrorCode::kAborted, "the node changed meanwhile; look again");
    }
  }
  ApplyProgress progress;
  auto applied = device::Apply(nvml, *lock, invocation.state_dir, wish->name(), *shown, progress);
  if (applied) progress.OnDone();
  return applied;
}

Result<void> ShowOnly(const NvmlLibrary& nvml, const ApplyOptions& options,
                      const Invocation& invocation) {
  const auto wish = Wish::Of(options, invocation.state_dir);
  if (!wish) return Fail(wish.error());
  const auto changes = wish->Match(nvml);
  if (!changes) return Fail(changes.error());
  Show(*changes, options, invocation);
  return {};
}

// What came of a recovery, for people or programs; nothing: there was none to do.
void ReportRecovery(std::optional<device::Outcome> outcome, OutputFormat format) {
  const bool applied = outcome == device::Outcome::kApplied;
  if (format == OutputFormat::kJson) {
    const char* const word = applied ? "applied" : "rolled back";
    fmt::print("{}\n",
               nlohmann::json{{"outcome", outcome ? nlohmann::json(word) : nullptr}}.dump());
  } else if (!outcome) {
    fmt::print("Nothing to recover: no change is unfinished.\n");
  } else {
    fmt::print("Recovered: {}.\n",
               applied ? "the change is complete" : "what the change had done is undone");
  }
}

Result<void> RecoverChange(const NvmlLibrary& nvml, const ApplyOptions& options,
                           const Invocation& invocation) {
  // Nothing to do should need no right to write.
  const auto unfinished = device::ReadUnfinished(invocation.state_dir);
  if (unfinished && !*unfinished) {
    ReportRecovery(std::nullopt, options.format);
    return {};
  }
  const auto lock = device::ChangeLock::Acquire(invocation.state_dir);
  if (!lock) return Fail(lock.error());
  ApplyProgress progress;
  const auto outcome = device::Recover(nvml, *lock, invocation.state_dir, progress);
  if (!outcome) return Fail(outcome.error());
  ReportRecovery(*outcome, options.format);
  return {};
}

Result<void> CheckOptions(const ApplyOptions& options) {
  if (options.plan.empty() && !options.rollback && !options.recover) {
    return Fail(ErrorCode::kInvalidArgument,
                "nothing to apply: name a plan, or --rollback (undo the last change) or --recover "
                "(finish an unfinished one)");
  }
  if (options.recover && (!options.plan.empty() || options.rollback || options.dry_run)) {
    return Fail(ErrorCode::kInvalidArgument,
                "--recover takes no plan, --rollback or --dry-run: it finishes what the journal "
                "says");
  }
  if (options.gpu && (options.rollback || options.recover)) {
    return Fail(ErrorCode::kInvalidArgument, "--gpu chooses a GPU of a plan that is applied");
  }
  return {};
}

void Run(const ApplyOptions& options, Invocation& invocation) {
  if (auto sound = CheckOptions(options); !sound) return Complain(invocation, sound.error());
  auto nvml = NvmlLibrary::Open(invocation.nvml);
  if (!nvml) return Complain(invocation, nvml.error());
  const auto done = options.recover   ? RecoverChange(**nvml, options, invocation)
                    : options.dry_run ? ShowOnly(**nvml, options, invocation)
                                      : ApplyUnderLock(**nvml, options, invocation);
  if (!done) Complain(invocation, done.error());
}

constexpr const char* kApplyFooter = R"(
Steps are shown before anything happens. Busy instances are never touched; what
fits free space is created before anything is destroyed. Each step is journaled
first: a failure rolls everything back, and after a crash --recover does. -o json
prints the steps; the exit status says what came of them (0: all taken).

Examples:
  divvy apply plan.yaml --dry-run     show the steps, change nothing
  divvy apply plan.yaml --yes         apply without asking
  divvy apply plan.yaml --gpu 1       only GPU 1 of the plan
  divvy apply --rollback              back to the layout before the last change
  divvy apply --recover               finish what a crash cut short)";

}  // namespace

void AddApplyCommand(CLI::App& app, Invocation& invocation) {
  CLI::App* const command =
      app.add_subcommand("apply", "Change this node's MIG layout to a plan's, step by step");
  const auto options = std::make_shared<ApplyOptions>();
  command->add_option("PLAN", options->plan, "Plan file; - is standard input")->type_name("FILE");
  command->add_option("--gpu", options->gpu, "Only this GPU of the plan, by index or UUID")
      ->type_name("GPU");
  command->add_flag("--dry-run", options->dry_run, "Show the steps and change nothing");
  command->add_flag("-y,--yes", options->yes, "Do not ask");
  command->add_flag("--rollback", options->rollback,
                    "Undo the last change: back to the layout that it found");
  command->add_flag("--recover", options->recover,
                    "Finish a change that a crash cut short: back, or on if that is blocked");
  AddOutputOption(*command, options->format);
  command->footer(kApplyFooter);
  command->callback([options, &invocation] { Run(*options, invocation); });
}

}  // namespace divvy::app
