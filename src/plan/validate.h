#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gpu/gpu_model.h"
#include "plan/plan.h"

namespace divvy::plan {

// Something in a plan that the hardware or the driver would refuse.
struct Problem {
  SourceLine line;
  std::string message;  // For a person: the value, and what would be right.
};

// "FILE:7: message"; without a line, "FILE: message".
[[nodiscard]] std::string Describe(const Problem& problem, std::string_view file_name);

// Everything that is wrong with a plan, by line; empty means that it can be
// applied to empty GPUs of the kinds it names.
//
// A restatement of the rules for a second opinion: it shares no code with the
// planners, gpu/mig_layout or gpu/transition, only the GPU's data. Memory that
// models need is not known here and not judged.
[[nodiscard]] std::vector<Problem> Validate(const Plan& plan);

// The same for one GPU whose model is known, say from the node's own driver;
// `gpu.kind` is not looked at.
[[nodiscard]] std::vector<Problem> ValidateGpu(const PlannedGpu& gpu, const gpu::GpuModel& model);

}  // namespace divvy::plan
