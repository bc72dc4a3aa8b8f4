#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "command.h"
#include "control_stop.h"
#include "device/node.h"
#include "device/nvml_library.h"
#include "run_boards.h"
#include "simulate_arguments.h"
#include "terminal.h"
#include "top_boards.h"
#include "top_view.h"

namespace divvy::app {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr Duration kLeastInterval = std::chrono::milliseconds(10);
constexpr Duration kBetweenQuestions = std::chrono::seconds(10);

struct TopOptions {
  bool once = false;
  std::string interval;
  OutputFormat format = OutputFormat::kTable;
};

std::string HexOf(const std::string& uuid) {
  std::string hex;
  for (const char c : uuid.substr(uuid.find('-') + 1)) {
    if (c != '-') hex += c;
  }
  return hex;
}

// Empty where there is no NVML: GPUs then go by their UUID.
GpuNames ReadNames(const std::string& nvml) {
  GpuNames names;
  const auto library = device::NvmlLibrary::Open(nvml);
  const auto node = library ? device::ReadNode(**library) : Fail(library.error());
  if (!node) return names;
  for (const device::GpuState& gpu : node->gpus) {
    const int index = static_cast<int>(gpu.index);
    const std::string label = fmt::format("GPU {}  {}", index, gpu.name);
    names[HexOf(gpu.uuid)] = {label, index, gpu.name, gpu.uuid, gpu.processes};
    for (const device::GpuInstanceState& instance : gpu.instances) {
      for (const auto& compute : instance.compute) {
        names[HexOf(compute.uuid)] = {fmt::format("{}  {}", label, compute.uuid), index, gpu.name,
                                      compute.uuid, instance.processes};
      }
    }
  }
  return names;
}

std::vector<int> PidsOf(const std::vector<GpuRates>& gpus) {
  std::vector<int> pids;
  for (const GpuRates& gpu : gpus) {
    for (const JobRates& job : gpu.jobs) pids.push_back(job.now.pid);
  }
  return pids;
}

// A screen of its own for as long as this lives, where standard output is a terminal.
class Screen {
 public:
  explicit Screen(bool wanted) : on_(wanted && isatty(STDOUT_FILENO)) {
    if (on_) fmt::print("\x1b[?1049h\x1b[?25l");
  }
  ~Screen() {
    if (!on_) return;
    // Not fmt::print: it throws when the terminal is gone.
    std::fputs("\x1b[?25h\x1b[?1049l", stdout);
    std::fflush(stdout);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // `between`: what parts it from the last one where both stay.
  void Show(const std::string& text, std::string_view between) {
    fmt::print("{}{}", on_ ? "\x1b[H\x1b[2J" : shown_ ? between : "", text);
    std::fflush(stdout);
    shown_ = true;
  }

 private:
  bool on_;
  bool shown_ = false;
};

class Top {
 public:
  Top(const TopOptions& options, Duration interval, const Invocation& invocation)
      : options_(options), interval_(interval), invocation_(invocation) {}

  void Run() {
    StopSignal stop;
    std::vector<BoardReading> before;
    if (options_.once) {
      if (!options_.interval.empty()) {
        before = ReadBoards();
        if (stop.SleepUntil(Clock::now() + interval_)) return;
      }
      const std::string text = Draw(before, ReadBoards());
      fmt::print("{}", text);
      return;
    }
    const bool as_table = options_.format == OutputFormat::kTable;
    Screen screen(as_table);
    while (true) {
      std::vector<BoardReading> now = ReadBoards();
      screen.Show(Draw(before, now), as_table ? "\n" : "");
      before = std::move(now);
      // At the end of standard output, say of `divvy top | head`, nobody looks any more.
      if (std::ferror(stdout) != 0 || stop.SleepUntil(Clock::now() + interval_)) return;
    }
  }

 private:
  std::vector<BoardReading> ReadBoards() {
    std::vector<BoardReading> boards;
    notes_.clear();
    for (const std::string& path : FindBoards(BoardDirectory())) {
      auto board = ReadBoard(path);
      if (board) {
        boards.push_back(*std::move(board));
      } else if (board.error().code != ErrorCode::kNotFound) {
        notes_.push_back(board.error().message);
      }
    }
    return boards;
  }

  std::string Draw(const std::vector<BoardReading>& before, const std::vector<BoardReading>& now) {
    const std::vector<GpuRates> gpus = RatesOf(before, now);
    // Asking NVML takes its time, and the driver's: only when there is something to be named. What
    // it said before a job came or went would name that one as being past the gate.
    std::vector<int> pids = PidsOf(gpus);
    if (!gpus.empty() && (Clock::now() >= ask_at_ || pids != asked_for_)) {
      names_ = ReadNames(invocation_.nvml);
      ask_at_ = Clock::now() + kBetweenQuestions;
      asked_for_ = std::move(pids);
    }
    if (options_.format == OutputFormat::kJson) {
      json document = TopJson(gpus, names_);
      document["notes"] = notes_;
      // One line a reading, so that a reader of many knows where one ends.
      const int indent = options_.once ? 2 : -1;
      return document.dump(indent, ' ', false, json::error_handler_t::replace) + "\n";
    }
    std::string text = gpus.empty()
                           ? fmt::format("nobody runs under the gate here ({})\n", BoardDirectory())
                           : TopTable(gpus, names_, TerminalColumns().value_or(0));
    for (const std::string& note : notes_) text += fmt::format("Note: {}\n", note);
    return text;
  }

  const TopOptions& options_;
  Duration interval_;
  const Invocation& invocation_;
  GpuNames names_;
  Clock::time_point ask_at_;
  std::vector<int> asked_for_;
  std::vector<std::string> notes_;
};

void Run(const TopOptions& options, Invocation& invocation) {
  Duration interval = std::chrono::seconds(1);
  if (!options.interval.empty()) {
    const auto parsed = ParseTimeArgument("--interval", options.interval);
    if (!parsed) return Complain(invocation, parsed.error());
    if (*parsed < kLeastInterval) {
      return Complain(invocation, {ErrorCode::kInvalidArgument,
                                   "--interval: at least 10ms, so that something can happen"});
    }
    interval = *parsed;
  }
  Top(options, interval, invocation).Run();
}

constexpr const char* kTopFooter = R"(
Shows the jobs that 'divvy run' has running on this node's GPUs for this user.
  OPEN     how far a latency job lets batch jobs in: 0% keeps them out while it works
  P50, P99 of its last requests; LATE is the share of requests beyond the SLO
  MODE     latency: apart if its time slices interrupt batch jobs, else whether the program
           marks its requests or they are inferred;
           batch: whether the GPU holds it back (device), its host (host), or nothing (pass)
  GPU      GPU time it is charged for what it launched, by the time that passed
  CLOSED   how much of the time it kept the gate closed; MARK/S: waits put into streams
  RESCUED  how often somebody else had to open a gate that was left closed
Under each GPU: the time slices of MPS' server, and who else has the GPU, past the gate (asked
every 10 s; a job that has yet to launch its first kernel is among them).
Columns that do not fit a terminal are left out from the right. Looks only: no job notices it.

Examples:
  divvy top
  divvy top --once --interval 5s -o json)";

}  // namespace

void AddTopCommand(CLI::App& app, Invocation& invocation) {
  CLI::App* const command =
      app.add_subcommand("top", "Show the jobs behind the gate: latencies, shares, memory");
  const auto options = std::make_shared<TopOptions>();
  command->add_flag("--once", options->once,
                    "Show one table and end: over --interval if given, else since each job began");
  command->add_option("--interval", options->interval, "Between two tables (default: 1s)")
      ->type_name("TIME");
  AddOutputOption(*command, options->format);
  command->footer(kTopFooter);
  command->callback([options, &invocation] { Run(*options, invocation); });
}

}  // namespace divvy::app
