#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/nvml_abi.h"

namespace divvy::device::simulator {

// What faults do to one call.
struct FaultEffect {
  std::chrono::milliseconds delay{0};      // Before anything else.
  std::optional<nvml::Return> error;       // Answer this and do nothing.
  bool kill = false;                       // Die before the call has an effect.
  bool kill_after = false;                 // Die once the effect is written.
  std::optional<nvml::Return> activation;  // nvmlDeviceSetMigMode's activationStatus.
};

// Rules that make calls go wrong, in text: `FUNCTION@N=ACTION`, several with ';'
// between them.
//   FUNCTION  an NVML function, or * for all
//   N         the N-th such call from 1, or * for each
//   ACTION    an NVML error name or number, kill, kill-after, delay:50ms, or
//             activation:ERROR for nvmlDeviceSetMigMode
// Each rule counts the calls that match it. Where several apply to one call,
// their delays add up and the first error wins. Not thread-safe.
class FaultRules {
 public:
  // Without rules nothing goes wrong.
  FaultRules() = default;

  // kInvalidArgument, naming the rule and what is wrong with it.
  [[nodiscard]] static Result<FaultRules> Parse(std::string_view text);

  // Counts a call of `function` and says what is to happen to it.
  [[nodiscard]] FaultEffect Apply(std::string_view function);

  // Starts counting anew, as a new process does.
  void ResetCounts();

 private:
  enum class Action { kError, kKill, kKillAfter, kDelay, kActivation };

  struct Rule {
    std::string function;       // "*" matches every one.
    std::optional<long> count;  // Without it, every call.
    Action action = Action::kError;
    nvml::Return code = nvml::kSuccess;  // Of kError and kActivation.
    std::chrono::milliseconds delay{0};
    long seen = 0;
  };

  [[nodiscard]] static Result<Rule> ParseRule(std::string_view text);
  [[nodiscard]] static Result<Rule> ParseAction(Rule rule, std::string_view text);

  std::vector<Rule> rules_;
};

}  // namespace divvy::device::simulator
