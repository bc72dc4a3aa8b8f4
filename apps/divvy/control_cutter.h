#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "control/estate.h"
#include "control_stop.h"
#include "device/journal.h"
#include "device/node.h"
#include "device/nvml_library.h"
#include "device/plan_match.h"
#include "plan/plan.h"

namespace divvy::app {

// Cuts GPUs as plans say.
class Cutter {
 public:
  virtual ~Cutter() = default;

  // Cuts all GPUs of the plan or none, by the steps that it returns. After an error, whose
  // message names the GPU where one is to blame, they are as before, or a journal says
  // what is left to be done and the next call begins with that.
  [[nodiscard]] virtual Result<std::vector<device::GpuChange>> Cut(const plan::Plan& plan) = 0;

  // The GPUs as they are now.
  [[nodiscard]] virtual Result<device::NodeState> Read() = 0;
};

// The GPUs of this node, by the same lock and journal as `divvy apply`.
class NvmlCutter final : public Cutter {
 public:
  // `plan_name` is what the journal calls the plans. A stop ends a change between two of
  // its steps, and it is undone. What is referred to must outlive this.
  NvmlCutter(const device::NvmlLibrary& nvml, std::string state_dir, std::string plan_name,
             StopSignal& stop);

  Result<std::vector<device::GpuChange>> Cut(const plan::Plan& plan) override;
  Result<device::NodeState> Read() override;

  // Brings a change that a crash left unfinished to its end, as `divvy apply --recover`
  // does. Nothing: there is none.
  [[nodiscard]] Result<std::optional<device::Outcome>> Recover();

 private:
  [[nodiscard]] Result<std::optional<device::Outcome>> RecoverUnder(const device::ChangeLock& lock);

  const device::NvmlLibrary& nvml_;
  std::string state_dir_;
  std::string plan_name_;
  StopSignal& stop_;
};

// GPUs in mind only, for --dry-run.
class ImaginedCutter final : public Cutter {
 public:
  explicit ImaginedCutter(device::NodeState node) : node_(std::move(node)) {}

  Result<std::vector<device::GpuChange>> Cut(const plan::Plan& plan) override;
  Result<device::NodeState> Read() override { return node_; }

 private:
  device::NodeState node_;
};

// Uncut GPUs of the estate's kind, as many as it has.
[[nodiscard]] device::NodeState ImagineNode(const control::Estate& estate);

// Whether the node has the estate's GPUs, at the indices from 0 on, and shows them to this
// user. kFailedPrecondition says what it has instead.
[[nodiscard]] Result<void> CheckNode(const control::Estate& estate, const device::NodeState& node);

}  // namespace divvy::app
