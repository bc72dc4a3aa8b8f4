#include "run_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/number.h"
#include "base/text_safety.h"
#include "base/yaml_reader.h"
#include "gate/ops.h"

namespace divvy::app {
namespace {

// What the board has room for, less the end of the text.
constexpr std::size_t kLongestName = 47;
constexpr RealRange kWeights{0.01, 100};
constexpr double kMostSloNs = 3600e9;

[[nodiscard]] tl::unexpected<Error> Wrong(std::string message) {
  return Fail(ErrorCode::kInvalidArgument, std::move(message));
}

Result<Duration> ParseSlo(const std::string& text) {
  const auto nanoseconds = ParseTime(text);
  if (nanoseconds && *nanoseconds >= 1e3 && *nanoseconds <= kMostSloNs) {
    return FromMilliseconds(*nanoseconds / 1e6);
  }
  return Wrong(
      fmt::format("--slo: {} is not a time from 1us to 1h with its unit, such as 20ms, "
                  "1.5s or 500us",
                  Quoted(text)));
}

Result<std::uint64_t> ParseSize(const std::string& text) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  constexpr std::array kUnits = {Unit{"KiB", 0x1p10}, Unit{"MiB", 0x1p20}, Unit{"GiB", 0x1p30},
                                 Unit{"TiB", 0x1p40}};
  const std::size_t digits = text.find_last_of("0123456789.") + 1;  // 0 when there is none.
  const auto number = ParseReal(std::string_view(text).substr(0, digits));
  for (const Unit& unit : kUnits) {
    if (!number || std::string_view(text).substr(digits) != unit.name) continue;
    const double bytes = *number * unit.bytes;
    if (bytes >= 1 && bytes <= 0x1p50) return static_cast<std::uint64_t>(bytes);
  }
  return Wrong(
      fmt::format("--memory: {} is not a size with its unit (KiB, MiB, GiB or TiB), such "
                  "as 20GiB or 512MiB",
                  Quoted(text)));
}

Result<int> ParseWeight(const std::string& text) {
  const auto weight = ParseReal(text);
  if (weight && *weight >= kWeights.least && *weight <= kWeights.most) {
    return static_cast<int>(std::lround(*weight * 100));
  }
  return Wrong(
      fmt::format("--weight: {} is not {}; a job of weight 2 gets twice the time of one "
                  "of weight 1",
                  Quoted(text), Describe(kWeights)));
}

// "train.py" for `python3 -u train.py`: all jobs of an interpreter would look alike.
std::string NameOf(const std::vector<std::string>& command) {
  constexpr std::array<std::string_view, 6> kInterpreters = {"python", "sh",   "bash",
                                                             "env",    "perl", "torchrun"};
  const auto base = [](const std::string& word) {
    return std::filesystem::path(word).filename().string();
  };
  std::string name = base(command.front());
  const bool interpreter = std::ranges::any_of(kInterpreters, [&](std::string_view known) {
    return name.starts_with(known) &&
           name.find_first_not_of("0123456789.", known.size()) == std::string::npos;
  });
  for (std::size_t i = 1; interpreter && i < command.size(); ++i) {
    if (command[i] == "-c") break;  // What follows is a program, not a name.
    if (command[i].empty() || command[i].starts_with('-')) continue;
    name = base(command[i]);
    break;
  }
  if (name.size() > kLongestName) name.resize(kLongestName);
  return IsName(name) ? name : "job";
}

// The job may change its working directory.
std::string AbsolutePath(const std::string& path) {
  std::error_code error;
  const auto absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.lexically_normal().string();
}

Result<std::string> ExistingFile(std::string_view option, const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return Wrong(fmt::format("{}: {} is a folder, not a file", option, Quoted(path)));
  }
  if (!std::filesystem::is_regular_file(path, error)) {
    return Fail(ErrorCode::kNotFound, fmt::format("{}: there is no file {}", option, Quoted(path)));
  }
  return AbsolutePath(path);
}

Result<void> CheckTogether(const RunWords& words, bool latency) {
  if (!words.slo.empty() && !words.protect.empty()) {
    return Wrong(
        "--slo and --protect exclude each other: an SLO lets the gate find how far to protect "
        "the job, a preset fixes it");
  }
  if (!latency && (!words.slo.empty() || !words.protect.empty())) {
    return Wrong(fmt::format("{} is for latency jobs: a batch job is what they are protected from",
                             words.slo.empty() ? "--protect" : "--slo"));
  }
  if (latency && !words.weight.empty()) {
    return Wrong("--weight is for batch jobs, which share by weight what latency jobs leave");
  }
  if (words.mps && words.no_mps) {
    return Wrong(
        "--mps and --no-mps exclude each other: by MPS kernels of several jobs run side by side, "
        "without it jobs take turns");
  }
  if (words.no_mps && words.sm_percent) {
    return Wrong("--sm-percent is a setting of MPS: leave out --no-mps or --sm-percent");
  }
  return {};
}

Result<void> TakeNumbers(const RunWords& words, RunOptions& options) {
  if (!words.slo.empty()) {
    const auto slo = ParseSlo(words.slo);
    if (!slo) return Fail(slo.error());
    options.slo = *slo;
  } else if (options.latency) {
    options.protect = words.protect.empty() ? "tight" : words.protect;
  }
  if (!words.weight.empty()) {
    const auto weight = ParseWeight(words.weight);
    if (!weight) return Fail(weight.error());
    options.weight = *weight;
  }
  if (!words.memory.empty()) {
    const auto memory = ParseSize(words.memory);
    if (!memory) return Fail(memory.error());
    options.memory_bytes = *memory;
  }
  return {};
}

// Whether a job is better off with time slices of its own: one whose protection is fixed is not to
// have kernels of others beside its own. A setting of MPS is a wish for MPS.
bool IsApart(const RunWords& words, const RunOptions& options) {
  if (!options.latency) return false;
  if (words.no_mps) return true;
  const bool guarded = !options.slo && options.protect != "off";
  return guarded && !words.mps && !words.sm_percent;
}

// The job reads it too, and says which of its lines are wrong.
Result<void> CheckOps(const std::string& path) {
  if (path.empty()) return {};
  static gate::KnownOps ops;  // It is never freed.
  std::array<char, 512> error{};
  if (ops.Load(path.c_str(), error.data(), error.size())) return {};
  return Wrong(fmt::format("--ops: {}", error.data()));
}

Result<void> TakeNames(const RunWords& words, RunOptions& options) {
  options.name = words.name.empty() ? NameOf(options.command) : words.name;
  if (!IsName(options.name) || options.name.size() > kLongestName) {
    return Wrong(
        fmt::format("--name: {} is not a name: at most {} bytes of text without control "
                    "characters or spaces at its ends",
                    Quoted(options.name), kLongestName));
  }
  for (const auto& [option, path, target] :
       {std::tuple{"--library", &words.library, &options.library},
        std::tuple{"--ops", &words.ops, &options.ops}}) {
    if (path->empty()) continue;
    auto file = ExistingFile(option, *path);
    if (!file) return Fail(file.error());
    *target = *std::move(file);
  }
  if (words.report) {
    const bool to_stderr = words.report->empty() || *words.report == "-";
    options.report = to_stderr ? "-" : AbsolutePath(*words.report);
  }
  return CheckOps(options.ops);
}

}  // namespace

void AddRunOptions(CLI::App& command, RunWords& words) {
  // A variable that a script has not set must not lift a limit.
  const CLI::Validator not_empty(
      [](const std::string& text) {
        // Of `--name= --no-mps` CLI11 takes the second for the first one's value.
        return text.empty() || text.starts_with("--")
                   ? std::string("a value is missing: say it, or leave the option out")
                   : std::string();
      },
      "", "given");
  command.add_option("--class", words.job_class, "Whether the job answers requests or crunches")
      ->check(CLI::IsMember({"latency", "batch"}).description(""))
      ->type_name("latency|batch")
      ->required();
  command
      .add_option("--slo", words.slo,
                  "Latency: keep the p99 of requests below this; a request lasts from its first "
                  "launch to the wait that ends it, unless the program marks them")
      ->check(not_empty)
      ->type_name("TIME");
  command
      .add_option("--protect", words.protect,
                  "Latency: a fixed protection: as if alone (tight, the default), at less cost to "
                  "training, or none")
      ->check(CLI::IsMember({"tight", "balanced", "off"}).description(""))
      ->type_name("tight|balanced|off");
  command
      .add_option("--weight", words.weight,
                  "Batch: share among batch jobs, 0.01 to 100 (default: 1)")
      ->check(not_empty)
      ->type_name("W");
  command.add_option("--memory", words.memory, "Memory of the GPU that the job may allocate")
      ->check(not_empty)
      ->type_name("SIZE");
  command.add_option("--sm-percent", words.sm_percent, "Part of the SMs it may use, under MPS")
      ->check(CLI::Range(1, 100).description(""))
      ->type_name("P");
  command.add_flag("--mps", words.mps,
                   "Latency: share by MPS, where kernels of both run side by side (default with "
                   "--slo and --protect off, and for batch jobs)");
  command.add_flag("--no-mps", words.no_mps, "Leave MPS alone: jobs take turns on the GPU");
  command
      .add_option("--gpu", words.gpu,
                  "GPU to run on (default: what CUDA_VISIBLE_DEVICES names, or the only one)")
      ->check(not_empty)
      ->type_name("INDEX|UUID");
  command.add_option("--name", words.name, "What 'divvy top' calls it (default: its program)")
      ->check(not_empty)
      ->type_name("NAME");
  command
      .add_option_function<std::vector<std::string>>(
          "--report",
          [&words](const std::vector<std::string>& given) {
            words.report = given.empty() ? "" : given.front();
          },
          "At its end, say which launches were seen and gated (default: standard error)")
      ->expected(0, 1)
      ->type_name("[FILE]");
  command.add_option("--library", words.library, "The gate, libdivvy_gate.so")
      ->envname("DIVVY_GATE_LIBRARY")
      ->check(not_empty)
      ->type_name("FILE");
  command.add_option("--ops", words.ops, "Kernel durations known beforehand")
      ->check(not_empty)
      ->type_name("FILE");
  // Taken only to say something better of them than that they were not expected.
  command.add_option("COMMAND", words.stray)->group("");
}

Result<RunOptions> CheckRunWords(const RunWords& words, std::vector<std::string> command) {
  if (!words.stray.empty()) {
    return Wrong(
        fmt::format("{} is no option of 'divvy run'; the program to be run and its "
                    "arguments come after two dashes",
                    Quoted(words.stray.front())));
  }
  if (command.empty()) {
    return Wrong(
        "what is to be run comes after two dashes, such as 'divvy run --class batch -- python "
        "train.py'");
  }
  RunOptions options;
  options.latency = words.job_class == "latency";
  options.sm_percent = words.sm_percent;
  options.mps = !words.no_mps;
  options.asks_for_mps = words.mps;
  options.gpu = words.gpu;
  options.command = std::move(command);
  if (auto fits = CheckTogether(words, options.latency); !fits) return Fail(fits.error());
  if (auto taken = TakeNumbers(words, options); !taken) return Fail(taken.error());
  if (auto taken = TakeNames(words, options); !taken) return Fail(taken.error());
  options.apart = IsApart(words, options);
  return options;
}

}  // namespace divvy::app
