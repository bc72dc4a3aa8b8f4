#include "profile_ops.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/text_safety.h"
#include "gate/board.h"
#include "gate/ops_reader.h"
#include "gate/ops_summary.h"
#include "gate/ops_trace.h"
#include "profile_ops_report.h"
#include "run_boards.h"
#include "run_job.h"
#include "run_library.h"
#include "run_watch.h"
#include "terminal.h"
#include "text_file.h"

namespace divvy::app {
namespace {

// Where standard output is no terminal.
constexpr std::size_t kPlainColumns = 120;
// Often enough for the rings, and so that phases of short runs can be told apart.
constexpr Duration kLookEvery = std::chrono::milliseconds(100);

struct OpsWords {
  std::string trace;
  std::string save;
  std::string summary = "-";
  std::string library;
  double cost_percent = 0.5;
  std::size_t top = 20;
  bool wide = false;
  OutputFormat format = OutputFormat::kTable;
  std::vector<std::string> stray;
};

// A folder for the logs of one run, in memory where boards are; gone when this goes.
class LogFolder {
 public:
  explicit LogFolder(std::string path) : path_(std::move(path)) {}
  ~LogFolder() { Remove(path_); }
  LogFolder(const LogFolder&) = delete;
  LogFolder& operator=(const LogFolder&) = delete;

  static void Remove(const std::string& path) {
    std::error_code error;
    std::filesystem::remove_all(path, error);
  }

 private:
  std::string path_;
};

Result<std::string> MakeLogFolder() {
  std::string pattern = BoardDirectory() + "/divvy-ops-XXXXXX";
  if (mkdtemp(pattern.data()) != nullptr) return pattern;
  return Fail(ErrorCode::kUnavailable,
              fmt::format("cannot make a folder for the kernel log in {}: {}; DIVVY_BOARD_DIR "
                          "names another place",
                          BoardDirectory(), strerror(errno)));
}

Result<void> CheckOpsWords(const OpsWords& words, const std::vector<std::string>& command) {
  if (!words.stray.empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} is no option of 'divvy profile --ops'; the program to be run and "
                            "its arguments come after two dashes",
                            Quoted(words.stray.front())));
  }
  if (command.empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                "what is to be run comes after two dashes, such as 'divvy profile --ops -- python "
                "train.py'");
  }
  for (const auto& [option, path] : {std::pair{"--trace", &words.trace},
                                     {"--save", &words.save},
                                     {"--summary", &words.summary}}) {
    if (path->empty() || *path == "-") continue;
    if (auto writable = CheckWritable(option, *path); !writable) return writable;
  }
  return {};
}

// Then standard output is for whoever parses it, and what the program prints goes elsewhere.
bool JsonToStdout(const OpsWords& words) {
  return words.format == OutputFormat::kJson && words.summary == "-";
}

Job LoggedJob(const OpsWords& words, const std::vector<std::string>& command,
              const std::string& library, const std::string& folder, const std::string& run_id) {
  const auto ppm = static_cast<unsigned>(words.cost_percent * 1e4);
  return {.command = command,
          .environment = {{"LD_PRELOAD", PreloadedBefore(library)},
                          {"DIVVY_CLASS", "log"},
                          {"DIVVY_LOG", folder},
                          {"DIVVY_LOG_COST_PPM", std::to_string(ppm)},
                          {"DIVVY_MEMORY_BYTES", std::nullopt},
                          {"DIVVY_OPS", std::nullopt},
                          {"DIVVY_REPORT", std::nullopt},
                          {kRunVariable, MarkOfRun(run_id)}},
          .inherited_fd = -1,
          .streams = {-1, JsonToStdout(words) ? STDERR_FILENO : -1, -1}};
}

Result<void> SaveTrace(const std::string& path, const gate::OpsRecord& record) {
  // Piece by piece: a trace may be larger than one would like to hold twice.
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  gate::WriteOpsTrace(record, ReadableKernel, [&](std::string_view piece) {
    file.write(piece.data(), static_cast<std::streamsize>(piece.size()));
  });
  file.close();
  if (file) return {};
  return Fail(ErrorCode::kUnavailable,
              fmt::format("cannot write the trace {}: {}", path, strerror(errno)));
}

Result<void> SaveAll(const OpsWords& words, const gate::OpsReader& reader,
                     const gate::OpsSummary& summary, const OpsView& view) {
  const std::string text =
      words.format == OutputFormat::kJson ? OpsToJson(summary, view) : DescribeOps(summary, view);
  if (words.summary == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);  // We may end by a signal.
  } else if (auto saved = SaveText(words.summary, text); !saved) {
    return saved;
  }
  if (!words.save.empty()) {
    if (auto saved = SaveText(words.save, gate::FormatOps(summary.rows)); !saved) return saved;
  }
  return words.trace.empty() ? Result<void>{} : SaveTrace(words.trace, reader.record());
}

void LogOps(const OpsWords& words, Invocation& invocation) {
  if (const auto right = CheckOpsWords(words, invocation.job); !right) {
    return Complain(invocation, right.error());
  }
  const auto library = FindGateLibrary(words.library);
  if (!library) return Complain(invocation, library.error());
  const auto path = MakeLogFolder();
  if (!path) return Complain(invocation, path.error());
  const LogFolder folder(*path);

  // Whoever read what we say may be gone; that is no reason to end the job.
  std::signal(SIGPIPE, SIG_IGN);
  const std::string run_id = MakeRunId();
  RunWatch watch(run_id, [&] { LogFolder::Remove(*path); });
  gate::OpsReader reader(*path, !words.trace.empty());
  const std::uint64_t start_ns = gate::NowNs();
  const JobEnd end = RunJob(LoggedJob(words, invocation.job, *library, *path, run_id), kLookEvery,
                            [&] { reader.Look(gate::NowNs()); });
  reader.Finish(gate::NowNs());
  watch.Dismiss();
  if (!end.error.empty()) {
    std::fprintf(stderr, "divvy: %s\n", end.error.c_str());
  } else {
    const gate::OpsSummary summary = gate::Summarise(reader.record());
    OpsView view{.command = invocation.job,
                 .seconds = static_cast<double>(gate::NowNs() - start_ns) / 1e9,
                 .top = words.top,
                 .columns = words.wide ? 0 : TerminalColumns().value_or(kPlainColumns),
                 .notes = NotesOnOps(summary)};
    for (const std::string& note : reader.notes()) view.notes.push_back(note);
    if (const auto saved = SaveAll(words, reader, summary, view); !saved) {
      Complain(invocation, saved.error());
      if (end.exit_status == 0) return;
    }
  }
  LogFolder::Remove(*path);  // Now: the next line may be our last.
  invocation.status = static_cast<ExitStatus>(EndAs(end));
}

constexpr const char* kOpsFooter = R"(
  divvy profile --ops [OPTIONS] -- COMMAND [ARGUMENTS]

Runs a CUDA program, unchanged, and logs its kernels through the gate's library: every
launch is counted, and some are timed, as many as --cost allows. Nothing is held back,
and CUPTI is not needed. Lists the kernels by the GPU time they took, and how the run
went over time.
  SHARE  of the GPU time of all: launches times mean duration
  FILL   blocks against those that the GPU holds at once; SMS: how many SMs they need
  CLASS  light: short and small enough that the gate lets it pass beside a latency job
  GPU    GPU time of what was launched, by the time that passed
With -o json and no --summary, what the program prints goes to standard error, so that
standard output is JSON and nothing else.
Programs that are statically linked are not reached. Signals are passed on, and the exit
status is the command's.

Examples:
  divvy profile --ops -- python train.py
  divvy profile --ops --trace train.json --save train.ops -- python train.py
  divvy run --class batch --ops train.ops -- python train.py)";

}  // namespace

void AddOps(CLI::App& profile, Invocation& invocation) {
  CLI::App* const command =
      profile.add_subcommand("ops", "Run a program and log its kernels")->alias("--ops");
  const auto words = std::make_shared<OpsWords>();  // Shared with the callback, which outlives us.
  command->add_option("--trace", words->trace, "Chrome trace to write, which Perfetto opens")
      ->type_name("FILE.json");
  command->add_option("--save", words->save, "Kernel profile to write, for 'divvy run --ops'")
      ->type_name("FILE");
  command->add_option("--summary", words->summary, "Where the summary goes, - for standard output")
      ->type_name("FILE")
      ->capture_default_str();
  command->add_option("--cost", words->cost_percent, "Percent of the time that timing may take")
      ->check(NumberIn({0.01, 50.0}))
      ->type_name("P")
      ->capture_default_str();
  command->add_option("--top", words->top, "How many kernels to list, 0 for all")
      ->type_name("N")
      ->capture_default_str();
  command->add_flag("--wide", words->wide, "Whole names, whatever the terminal's width");
  command->add_option("--library", words->library, "The gate, libdivvy_gate.so")
      ->envname("DIVVY_GATE_LIBRARY")
      ->type_name("FILE");
  AddOutputOption(*command, words->format);
  // Taken only to say something better of them than that they were not expected.
  command->add_option("COMMAND", words->stray)->group("");
  command->footer(kOpsFooter);
  command->callback([words, &invocation] { LogOps(*words, invocation); });
}

}  // namespace divvy::app
