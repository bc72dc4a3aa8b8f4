#include "serve_daemons.h"

#include <poll.h>
#include <sys/types.h>

#include <csignal>
#include <optional>

#include "base/number.h"
#include "run_home.h"
#include "worker_command.h"

namespace divvy::app {
namespace {

// Many times what a keeper without users takes to end.
constexpr int kMostLooks = 100;
constexpr int kLookMs = 20;

bool HasFailed(const MpsHome& home) { return ReadState(home).kind == DaemonState::Kind::kFailed; }

// Ours, and given up by its keeper.
bool IsLost(const Sharing& sharing) { return sharing.mps && HasFailed(sharing.mps->home()); }

ServeDaemons::Variables VariablesOf(const Sharing& sharing) {
  ServeDaemons::Variables variables;
  for (const auto& [name, value] : sharing.environment) {
    if (value) variables.emplace_back(name, *value);
  }
  return variables;
}

}  // namespace

Result<ServeDaemons::Variables> ServeDaemons::Join(const std::string& gpu,
                                                   const std::string& nvml) {
  std::optional<MpsHome> home;
  {
    const std::lock_guard lock(mutex_);
    const auto known = by_gpu_.find(gpu);
    if (known != by_gpu_.end() && !IsLost(known->second)) return VariablesOf(known->second);
    if (known != by_gpu_.end()) {
      home = known->second.mps->home();
      by_gpu_.erase(known);
    }
  }
  // Unlocked: the server's loop must not wait for a daemon to start.
  // A keeper that has given up ends now that its last user has gone.
  for (int i = 0; home && i < kMostLooks && HasFailed(*home); ++i) poll(nullptr, 0, kLookMs);
  auto sharing = JoinMps(gpu, nvml);
  if (!sharing) return Fail(sharing.error());
  const std::lock_guard lock(mutex_);
  return VariablesOf(by_gpu_.insert_or_assign(gpu, std::move(*sharing)).first->second);
}

bool ServeDaemons::IsReady(const std::string& gpu) {
  const std::lock_guard lock(mutex_);
  const auto known = by_gpu_.find(gpu);
  if (known == by_gpu_.end()) return false;
  if (!known->second.mps) return true;  // The node's own, for others to look after.
  const DaemonState state = ReadState(known->second.mps->home());
  if (state.kind != DaemonState::Kind::kReady) return false;
  // Killed a moment ago, it is still called ready.
  const auto daemon = ParseInteger(state.text);
  return daemon && kill(static_cast<pid_t>(*daemon), 0) == 0;
}

std::vector<ServeDaemons::Change> ServeDaemons::LookAfter() {
  const std::lock_guard lock(mutex_);
  std::vector<Change> changes;
  for (auto& [gpu, sharing] : by_gpu_) {
    if (!sharing.mps) continue;
    const std::optional<std::string> line = sharing.mps->LookAfter();
    if (!line) continue;
    const bool ready = ReadState(sharing.mps->home()).kind == DaemonState::Kind::kReady;
    // What it says of a daemon that was started anew is for the user of one job.
    changes.push_back({.gpu = gpu,
                       .ready = ready,
                       .line = ready ? "the MPS daemon had died or hung and was started anew"
                                     : *line + "; SIGHUP tries again"});
  }
  return changes;
}

}  // namespace divvy::app
