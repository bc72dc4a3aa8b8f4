#pragma once

#include <string>

#include "gpu/gpu_model.h"
#include "gpu/strip.h"
#include "plan/plan.h"

namespace divvy::plan {

// A plan for a person, each GPU as a strip of its memory slices:
//
//   GPU 0  H200-141GB  7 of 7 compute slices, 8 of 8 memory slices
//     |1g.18gb   |..........|2g.35gb             |3g.71gb                                 |
//      bert                  resnet50             train
//     2g.35gb at 2  resnet50: 2 processes, at most 50% each, batch 8
//     anywhere: 1g.18gb
//
// Below a strip stands what it has no room to say. Ends with a newline; at most
// 100 columns wide as long as the names it is given are of usual length.
// REQUIRES: Validate(plan) finds nothing wrong.
[[nodiscard]] std::string DrawPlan(const Plan& plan, gpu::Ink ink);

// The same for one GPU whose model is known, say from the node's own driver.
// REQUIRES: ValidateGpu(gpu, model) finds nothing wrong.
[[nodiscard]] std::string DrawGpu(const PlannedGpu& gpu, const gpu::GpuModel& model, gpu::Ink ink);

}  // namespace divvy::plan
