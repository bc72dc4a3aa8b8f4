#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/number.h"
#include "base/result.h"
#include "gpu/strip.h"

namespace divvy::app {

// What `divvy` exits with.
enum class ExitStatus {
  kOk = 0,
  kFailed = 1,  // It was tried and did not work.
  kUsage = 2,   // The command line or a file it names is wrong; nothing was tried.
};

enum class OutputFormat { kTable, kJson };

// Facts about this run that main() finds out once, options that every command
// has, and the outcome.
struct Invocation {
  gpu::Ink ink = gpu::Ink::kPlain;  // Colour when standard output is a terminal.
  bool interactive = false;         // Standard input is a terminal: questions may be asked.
  std::string nvml = "libnvidia-ml.so.1";
  std::string state_dir = "/var/lib/divvy";
  std::vector<std::string> job;  // What follows "--" on the command line of `divvy run`.
  ExitStatus status = ExitStatus::kOk;
};

// Adds `-o,--output table|json` to a command.
void AddOutputOption(CLI::App& command, OutputFormat& format);

// A check for options that take a number: nan and infinities, which CLI11's own check of a range
// lets pass, are outside of any.
[[nodiscard]] CLI::Validator NumberIn(RealRange range);

// Writes "divvy: MESSAGE" to standard error and sets the exit status that fits
// the error's code.
void Complain(Invocation& invocation, const Error& error);

// Prints a strip, which may have a line of labels below, with `margin` before its
// first line and as many blanks before the second.
void PrintStrip(std::string_view margin, std::string_view strip);

// Each adds one command to `app`; running it sets `invocation.status`. Both
// outlive the parse.
void AddAdviseCommand(CLI::App& app, Invocation& invocation);
void AddApplyCommand(CLI::App& app, Invocation& invocation);
void AddBenchCommand(CLI::App& app, Invocation& invocation);
void AddCollocateCommand(CLI::App& app, Invocation& invocation);
void AddControlCommand(CLI::App& app, Invocation& invocation);
void AddFitCommand(CLI::App& app, Invocation& invocation);
void AddGpusCommand(CLI::App& app, Invocation& invocation);
void AddLayoutsCommand(CLI::App& app, Invocation& invocation);
void AddPlanCommand(CLI::App& app, Invocation& invocation);
void AddProfileCommand(CLI::App& app, Invocation& invocation);
void AddRunCommand(CLI::App& app, Invocation& invocation);
void AddServeCommand(CLI::App& app, Invocation& invocation);
void AddSimulateCommand(CLI::App& app, Invocation& invocation);
void AddTopCommand(CLI::App& app, Invocation& invocation);

}  // namespace divvy::app
