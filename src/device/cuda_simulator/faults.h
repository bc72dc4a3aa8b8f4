#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/cuda_simulator/clock.h"
#include "gate/cuda_abi.h"

namespace divvy::device::cuda_simulator {

// What faults do to one call.
struct FaultEffect {
  Nanos delay = 0;                    // Before anything else.
  std::optional<cuda::Result> error;  // Answer this and do nothing.
  bool sticky = false;  // The context answers the error from now on, as after a crash.
  bool kill = false;    // The process dies at once, as by kill -9.
};

// Rules that make calls go wrong, in text, several with ',' between them:
//   FUNCTION@N=CODE         the N-th call of FUNCTION from 1, or each where N is *, answers CODE
//   sticky:FUNCTION@N=CODE  and so does every later call in its context
//   delay:FUNCTION@N=5ms    takes so much longer (ms or us)
//   kill:FUNCTION@N         ends the process by SIGKILL
//   no:FUNCTION             is not found by name, and answers NOT_SUPPORTED if it is called
// FUNCTION is an exported name without _ptsz or _ptds; both forms count as one.
// Each rule counts the calls that match it. Not thread-safe.
class FaultRules {
 public:
  FaultRules() = default;

  // kInvalidArgument, naming the rule and what is wrong with it.
  [[nodiscard]] static Result<FaultRules> Parse(std::string_view text);

  bool empty() const { return rules_.empty(); }

  // Counts a call of `function` and says what is to happen to it.
  FaultEffect Apply(std::string_view function);

  bool IsMissing(std::string_view function) const;

  // The functions that rules name, for a check by who knows which there are.
  std::vector<std::string> Functions() const;

 private:
  enum class Action { kError, kSticky, kDelay, kKill, kMissing };

  struct Rule {
    Action action = Action::kError;
    std::string function;
    std::optional<long> count;  // Without it, every call.
    cuda::Result code = cuda::kSuccess;
    Nanos delay = 0;
    long seen = 0;
  };

  [[nodiscard]] static Result<Rule> ParseRule(std::string_view text);

  std::vector<Rule> rules_;
};

}  // namespace divvy::device::cuda_simulator
