#pragma once

#include <CLI/CLI.hpp>

#include "command.h"

namespace divvy::app {

// Adds `divvy profile --ops -- COMMAND`, which runs a program and logs its kernels. Also
// to be had as `divvy profile ops`: to CLI11 it is a command with a second name, so that its
// options are its own.
void AddOps(CLI::App& profile, Invocation& invocation);

}  // namespace divvy::app
