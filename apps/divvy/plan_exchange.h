#pragma once

#include <CLI/CLI.hpp>

#include "command.h"

namespace divvy::app {

// Add `export` and `import` to the plan command; like the Add...Command
// functions.
void AddPlanExport(CLI::App& plan, Invocation& invocation);
void AddPlanImport(CLI::App& plan, Invocation& invocation);

}  // namespace divvy::app
