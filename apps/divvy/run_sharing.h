#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/result.h"
#include "run_mps.h"
#include "run_options.h"

namespace divvy::app {

// How a job will share its GPU with others: by MPS, where blocks of several processes run
// side by side, or by taking turns, be it that its own interrupt those of others.
struct Sharing {
  std::string line;         // For the user: which, and why.
  std::string why_not_mps;  // What stood in its way; empty if nothing did.
  bool by_mps = false;
  bool apart = false;         // The gate is to give it long time slices of its own.
  std::optional<MpsUse> mps;  // Our part in the daemon, where it is one of ours.
  // Where the job counts devices as its daemon does: which GPU its first one is to others.
  std::optional<std::string> gpu_outside;
  // Nothing takes a variable away.
  std::map<std::string, std::optional<std::string>> environment;
};

// Takes back what a run around this one set for its own job, where it still is as it was set: what
// is run in it is its own. Which GPU it is to use stays as it was said there.
void LeaveOuterRun();
// The variables of `sharing`, and for a run inside the job what they are, and were without us.
[[nodiscard]] std::map<std::string, std::optional<std::string>> WithFormerValues(
    const Sharing& sharing);

// Chooses the GPU and, unless told not to, joins or starts its MPS daemon. What stands in
// the way of MPS is told, not an error: the gate works without. A job that is to be apart comes by
// the same rules to the GPU whose daemon others join. `gate` is the gate's library, as
// MpsUse::Begin takes it.
// Fails as ChooseGpu does, for a --gpu that is wrong.
[[nodiscard]] Result<Sharing> ShareGpu(const RunOptions& options, const std::string& nvml,
                                       const std::string& gate);

}  // namespace divvy::app
