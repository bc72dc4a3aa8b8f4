#pragma once

// A run's timed launches as a Chrome trace, which Perfetto (ui.perfetto.dev) and chrome://tracing
// open: a process a process, a track a stream, and counters over all launches.

#include <functional>
#include <string>
#include <string_view>

#include "gate/ops_record.h"

namespace divvy::gate {

// Hands the trace to `out`, a piece at a time, as JSON in ASCII. `name` makes a kernel's name
// readable. The record must have kept its samples.
void WriteOpsTrace(const OpsRecord& record,
                   const std::function<std::string(const std::string& kernel)>& name,
                   const std::function<void(std::string_view)>& out);

}  // namespace divvy::gate
