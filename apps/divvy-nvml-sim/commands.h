#pragma once

#include <CLI/CLI.hpp>

namespace divvy::app {

// What `divvy-nvml-sim` exits with.
enum class ExitStatus {
  kOk = 0,
  kFailed = 1,  // It was tried and did not work.
  kUsage = 2,   // The command line is wrong; nothing was tried.
};

// Adds every command to `app`; running one sets `status`. Both outlive the parse.
void AddCommands(CLI::App& app, ExitStatus& status);

}  // namespace divvy::app
