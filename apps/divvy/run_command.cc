#include <poll.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "command.h"
#include "run_boards.h"
#include "run_home.h"
#include "run_job.h"
#include "run_library.h"
#include "run_options.h"
#include "run_report.h"
#include "run_sharing.h"
#include "run_watch.h"

namespace divvy::app {
namespace {

using Variables = std::map<std::string, std::optional<std::string>>;

// Not fmt::print, which throws when nobody can hear it any more.
void TellUser(const std::string& line) { std::fprintf(stderr, "divvy: %s\n", line.c_str()); }

std::optional<std::string> TextOf(const auto& number) {
  if (!number) return std::nullopt;
  return std::to_string(*number);
}

std::optional<std::string> UnlessEmpty(const std::string& text) {
  if (text.empty()) return std::nullopt;
  return text;
}

// The kernel's own, 50 us, makes each thread that sleeps until a request comes so late.
constexpr Duration kLatencyTimerSlack = std::chrono::microseconds(1);

// What the gate reads. Each variable is set or taken away, for a run inside a run.
Variables GateVariables(const RunOptions& options, const Sharing& sharing,
                        const std::string& library, const std::string& run_id,
                        const std::optional<RunReport>& report) {
  const auto flag = [](bool set) { return set ? std::optional<std::string>("1") : std::nullopt; };
  std::optional<std::string> slo;
  if (options.slo) {
    slo = std::to_string(std::chrono::round<std::chrono::microseconds>(*options.slo).count());
  }
  return {{"LD_PRELOAD", PreloadedBefore(library)},
          {"DIVVY_CLASS", options.latency ? "latency" : "batch"},
          {"DIVVY_SLO_US", slo},
          {"DIVVY_PROTECT", UnlessEmpty(options.protect)},
          {"DIVVY_WEIGHT", TextOf(options.weight)},
          {"DIVVY_MEMORY_BYTES", TextOf(options.memory_bytes)},
          {"DIVVY_NAME", options.name},
          {"DIVVY_REPORT", report ? std::optional(report->path()) : std::nullopt},
          {"DIVVY_OPS", UnlessEmpty(options.ops)},
          {"DIVVY_LOG", std::nullopt},
          {"DIVVY_APART", flag(sharing.apart)},
          {"DIVVY_MPS", flag(sharing.mps.has_value())},
          {kRunVariable, MarkOfRun(run_id)}};
}

void CleanUp() {
  ClearBoards(BoardDirectory());
  RemoveAbandoned();
}

// When this process was killed, in the one that watches it. Others may have been killed with
// it, a keeper say, and hold their locks until the kernel is done with them; whoever holds one
// after this time lives.
void CleanUpAfterKill() {
  constexpr int kTries = 40;
  constexpr int kPauseMs = 50;
  ClearBoards(BoardDirectory());
  for (int i = 0; i < kTries && !RemoveAbandoned(); ++i) poll(nullptr, 0, kPauseMs);
  ClearBoards(BoardDirectory());
}

void Run(const RunWords& words, Invocation& invocation) {
  const auto options = CheckRunWords(words, invocation.job);
  if (!options) return Complain(invocation, options.error());
  const auto library = FindGateLibrary(options->library);
  if (!library) return Complain(invocation, library.error());
  std::optional<RunReport> report;
  if (options->report) {
    auto begun = RunReport::Begin(*options->report);
    if (!begun) return Complain(invocation, begun.error());
    report.emplace(*std::move(begun));
  }
  LeaveOuterRun();

  // Whoever read what we say may be gone; that is no reason to end the job.
  std::signal(SIGPIPE, SIG_IGN);
  const std::string run_id = MakeRunId();
  RunWatch watch(run_id, CleanUpAfterKill);
  auto sharing = ShareGpu(*options, invocation.nvml, *library);
  if (!sharing) {
    watch.Dismiss();
    return Complain(invocation, sharing.error());
  }
  TellUser(sharing->line);

  Job job{.command = options->command,
          .environment = GateVariables(*options, *sharing, *library, run_id, report),
          .timer_slack = options->latency ? kLatencyTimerSlack : Duration::zero()};
  job.environment.merge(WithFormerValues(*sharing));
  if (sharing->mps) job.inherited_fd = sharing->mps->share();
  const JobEnd end = RunJob(job, MpsPace::FromEnvironment().look, [&] {
    if (!sharing->mps) return;
    if (const auto line = sharing->mps->LookAfter()) TellUser(*line);
  });
  sharing->mps.reset();
  CleanUp();
  watch.Dismiss();
  if (!end.error.empty()) TellUser(end.error);
  if (report) report->End(end);
  // Commands have statuses of ours; a job has its own.
  invocation.status = static_cast<ExitStatus>(EndAs(end));
}

constexpr const char* kRunFooter = R"(
  divvy run --class latency|batch [OPTIONS] -- COMMAND [ARGUMENTS]

Runs a CUDA program, unchanged, so that it shares its GPU with other jobs: batch jobs
take what latency jobs leave. All jobs of a GPU must be run so, by one user.
'divvy top' shows them. Programs that are statically linked, or run as another user,
are not reached; --report says what was.

A latency job with a fixed protection (--protect tight or balanced), or with --no-mps, has
time slices of its own: the GPU interrupts batch kernels in their middle for it. The others,
and such a job with --mps or --sm-percent, share by MPS, if nvidia-cuda-mps-control is on
PATH: a daemon of our own for the GPU is started with the first of them, looked after, and
ended with the last. Otherwise they take turns. A daemon that the node or the user has is
used by all as it is, but for --no-mps. So is ours on a GPU in compute mode
exclusive-process. A line says which it is, and why.

Signals are passed on, and the exit status is the job's. If 'divvy run' itself is killed,
all processes of the job are too. Processes that a job leaves behind when it ends by itself
are left alone.

Examples:
  divvy run --class latency --slo 20ms -- python serve.py
  divvy run --class batch --memory 20GiB -- python train.py --epochs 3
  divvy run --class batch --weight 2 --gpu 1 --report -- ./simulate)";

}  // namespace

void AddRunCommand(CLI::App& app, Invocation& invocation) {
  CLI::App* const command =
      app.add_subcommand("run", "Run a CUDA program beside others on one GPU, behind the gate");
  const auto words = std::make_shared<RunWords>();
  AddRunOptions(*command, *words);
  command->footer(kRunFooter);
  command->callback([words, &invocation] { Run(*words, invocation); });
}

}  // namespace divvy::app
