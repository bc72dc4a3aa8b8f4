#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "command.h"
#include "device/apply.h"
#include "device/plan_match.h"

namespace divvy::app {

// Prints what a change will do: each GPU's strip before and after, and the
// steps with whom they disturb.
void PrintChanges(const std::vector<device::GpuChange>& changes, gpu::Ink ink);

// The same for programs.
[[nodiscard]] nlohmann::json ToJson(const std::vector<device::GpuChange>& changes);

// Tells standard error how a change gets on, a line a step, and stops it on
// SIGINT, SIGTERM or SIGHUP, which from its construction on no longer end the
// program. One at a time.
class ApplyProgress : public device::ApplyListener {
 public:
  ApplyProgress();
  ~ApplyProgress() override;
  ApplyProgress(const ApplyProgress&) = delete;
  ApplyProgress& operator=(const ApplyProgress&) = delete;

  void OnStepBegins(const device::Step& step, int number, int count) override;
  void OnStepEnds(const device::Step& step, const std::string& outcome) override;
  void OnRollback(const std::string& why) override;
  bool Cancelled() override;

  // Says that the change is complete.
  void OnDone();
};

}  // namespace divvy::app
