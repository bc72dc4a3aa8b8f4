#pragma once

#include <CLI/CLI.hpp>

#include "command.h"

namespace divvy::app {

// Makes the plan command itself plan for a fleet when none of its subcommands is
// given; call it once those are there. Like the Add...Command functions.
void AddPlanFleet(CLI::App& plan, Invocation& invocation);

}  // namespace divvy::app
