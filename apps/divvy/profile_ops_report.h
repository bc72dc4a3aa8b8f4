#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "gate/ops_summary.h"

namespace divvy::app {

// What is shown of a run's kernels.
struct OpsView {
  std::vector<std::string> command;
  double seconds = 0;       // From the command's start to its end.
  std::size_t top = 20;     // Kernels to list; 0 for all.
  std::size_t columns = 0;  // Names are cut so that lines fit; 0: they are not.
  std::vector<std::string> notes;
};

// A kernel's name as one would say it: demangled, without what it returns and takes.
[[nodiscard]] std::string ReadableKernel(const std::string& kernel);

// Tables: processes if there are several, kernels, phases.
[[nodiscard]] std::string DescribeOps(const gate::OpsSummary& summary, const OpsView& view);
// All of it, whatever the view cuts.
[[nodiscard]] std::string OpsToJson(const gate::OpsSummary& summary, const OpsView& view);

// What a reader should know of the figures: launches past the gate, samples lost.
[[nodiscard]] std::vector<std::string> NotesOnOps(const gate::OpsSummary& summary);

}  // namespace divvy::app
