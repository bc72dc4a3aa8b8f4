#pragma once

#include <string>

#include "base/result.h"
#include "device/change.h"
#include "device/node.h"
#include "device/nvml_library.h"

namespace divvy::device {

// Carries out one step through NVML, and says in a few words what came of it
// (for a created instance, its MIG UUID).
//
// Looks again before it destroys: an instance that a process has meanwhile
// moved into is left alone. On failure the GPU may have the GPU instance but not
// its compute instances; StepsTowards from a fresh ReadGpu knows how to go on
// from there, in either direction.
//   kFailedPrecondition  a process is in the way, or a reset is needed;
//   kResourceExhausted   NVML would not place the instance, so it is not ours; the
//                        message says whether something else took its place;
//   kAborted             the GPU instance was created, its compute instances not;
//   kPermissionDenied, kUnsupported, kUnavailable  as NVML answered.
[[nodiscard]] Result<std::string> CarryOut(const NvmlLibrary& nvml, const Step& step);

}  // namespace divvy::device
