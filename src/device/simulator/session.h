#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <string>

#include "device/nvml_abi.h"
#include "device/simulator/faults.h"
#include "device/simulator/state_store.h"

// What all entry points have in common: initialisation, locks, faults, the log.

namespace divvy::device::simulator {

// Where the simulated CUDA driver's machine is, and what it is made of if it is not there yet.
struct CudaMachine {
  std::string path;  // Empty: there is none.
  std::string spec;
};

// What a changing call was about, for the log; the call fills in what it learns.
struct ChangeRecord {
  std::optional<std::size_t> gpu;
  std::optional<unsigned> gpu_instance;
  std::optional<unsigned> compute_instance;
  std::optional<unsigned> profile;
  std::optional<unsigned> start;
  std::string detail;                    // More "key=value" words.
  std::chrono::microseconds latency{0};  // What the driver takes for it, if it succeeds.
};

// Answers nvmlInit and its kin: the first one reads the environment and makes or
// reads the state file. Problems are said in one line on standard error.
//   kDriverNotLoaded  no state file, and nothing that says how to make one;
//   kUnknown          the file, the rules or the environment are wrong.
[[nodiscard]] nvml::Return Initialise(const char* function);

// Answers nvmlShutdown; kUninitialized without an Initialise to match.
[[nodiscard]] nvml::Return Shutdown(const char* function);

// One call from outside while it is being answered. Holds the lock of the
// process and of the state file, so calls are answered one after the other.
class Call {
 public:
  // Enters `function`: counts it, looks at the state, and applies delays.
  explicit Call(const char* function);
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // The present state. Changes to it are lost unless CommitChange writes them.
  State& state() { return state_; }

  // False when the state file is gone or damaged; such calls are refused.
  bool readable() const { return readable_; }

  // True when the process may do what NVML grants to administrators.
  bool privileged() const;

  // The simulated CUDA driver's machine, if there is one.
  static const CudaMachine& cuda_machine();

  // What nvmlDeviceSetMigMode is to answer in place of trying, if anything.
  std::optional<nvml::Return> forced_activation() const { return effect_.activation; }

  // Answers a question, or refuses it as faults or the missing nvmlInit demand.
  template <typename Body>
  nvml::Return AnswerQuery(Body body) {
    if (effect_.kill) Die();
    const nvml::Return code = refusal_ ? *refusal_ : body(*this);
    if (effect_.kill_after) Die();
    return code;
  }

  // The like for a change. `describe` says what it is about, even when it is
  // refused; what `body` does to the state is written if it answers kSuccess.
  template <typename Describe, typename Body>
  nvml::Return AnswerChange(Describe describe, Body body) {
    ChangeRecord record;
    if (readable_) describe(*this, record);
    if (effect_.kill) {
      Log(record, "KILL");
      Die();
    }
    const nvml::Return code = refusal_ ? *refusal_ : body(*this, record);
    return CommitChange(code, record);
  }

 private:
  [[noreturn]] static void Die();
  nvml::Return CommitChange(nvml::Return code, const ChangeRecord& record);
  void Log(const ChangeRecord& record, const std::string& result) const;
  void Refresh();

  const char* function_;
  std::unique_lock<std::mutex> process_lock_;
  std::optional<StateLock> file_lock_;
  FaultEffect effect_;
  std::optional<nvml::Return> refusal_;
  bool entered_ = false;   // The library is initialised.
  bool readable_ = false;  // state_ is the present state.
  State state_;
};

// Answers a call that changes nothing; `body` is nvml::Return(Call&).
template <typename Body>
nvml::Return Query(const char* function, Body body) {
  return Call(function).AnswerQuery(body);
}

// Answers a call that changes GPUs; `describe` is void(Call&, ChangeRecord&),
// `body` nvml::Return(Call&, ChangeRecord&).
template <typename Describe, typename Body>
nvml::Return Change(const char* function, Describe describe, Body body) {
  return Call(function).AnswerChange(describe, body);
}

}  // namespace divvy::device::simulator
