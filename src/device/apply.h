#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/change.h"
#include "device/journal.h"
#include "device/nvml_library.h"
#include "device/plan_match.h"

namespace divvy::device {

// Hears about a change while it is made.
class ApplyListener {
 public:
  virtual ~ApplyListener() = default;

  virtual void OnStepBegins(const Step& step, int number, int count) = 0;
  virtual void OnStepEnds(const Step& step, const std::string& outcome) = 0;
  // A step failed or the change was cancelled; steps that follow lead back.
  virtual void OnRollback(const std::string& why) = 0;

  // Asked between steps; true stops the change and rolls it back.
  virtual bool Cancelled() { return false; }
};

// Makes the changes, step by step, each noted in the journal before it is taken,
// then reads the GPUs back and compares. `lock` proves that nobody else does so.
//
// On failure everything is undone, on all GPUs: instances that were destroyed
// are created again (with new UUIDs), and the error has code kAborted. When even
// that fails the journal stays for Recover, and the code is kUnavailable.
[[nodiscard]] Result<void> Apply(const NvmlLibrary& nvml, const ChangeLock& lock,
                                 const std::string& state_dir, const std::string& plan_name,
                                 const std::vector<GpuChange>& changes, ApplyListener& listener);

// Finishes what a process left unfinished: closes the journal if the new layout
// is there whole, otherwise goes back to the old one; if that would touch a busy
// instance, goes on to the new one instead. Instances that belong to neither are
// left alone. kNotFound when nothing is unfinished; kFailedPrecondition when
// neither way is open, and then nothing has changed.
[[nodiscard]] Result<Outcome> Recover(const NvmlLibrary& nvml, const ChangeLock& lock,
                                      const std::string& state_dir, ApplyListener& listener);

}  // namespace divvy::device
