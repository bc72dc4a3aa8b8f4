#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "control/loop.h"
#include "control_cutter.h"
#include "plan/plan.h"

namespace divvy::app {

// "retrain-NAME-OPTION": what a plan calls the retraining of a model.
[[nodiscard]] std::string JobName(const control::Estate& estate, const planner::Work& work);

// Carries out what a loop decides on the GPUs of a cutter. Retrainings are taken to bring
// what the fleet file says of them. Not thread-safe.
class NodePlant final : public control::Plant {
 public:
  // Both outlive the plant.
  NodePlant(const control::Estate& estate, Cutter& cutter) : estate_(estate), cutter_(cutter) {}

  Result<void> Change(int slot, std::span<const control::CellState> before,
                      std::span<const control::Cell> after) override;
  double Outcome(const planner::Work& work, int window) override;

  // Takes these cells for those that are there.
  void Resume(std::span<const control::CellState> cells);

  // Cells whose instance somebody else took away, which are forgotten. None when the GPUs
  // cannot be read: the next change will say so.
  [[nodiscard]] std::vector<control::Cell> TakeMissing();

  // The plan in force. Instances whose work is not among `working`, because a retraining
  // has ended, run nothing.
  [[nodiscard]] plan::Plan InForce(std::span<const control::CellState> working) const;

  // The steps of the last change that was made, by GPU.
  const std::vector<device::GpuChange>& last_change() const { return last_change_; }

 private:
  const control::Estate& estate_;
  Cutter& cutter_;
  std::vector<control::Cell> cells_;  // One for each instance that we made.
  std::vector<device::GpuChange> last_change_;
};

}  // namespace divvy::app
