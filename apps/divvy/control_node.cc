#include "control_node.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>

namespace divvy::app {
namespace {

using control::Cell;
using control::CellState;
using planner::Work;

const gpu::MigInstance& PlaceOf(const Cell& cell) { return std::get<gpu::MigInstance>(cell.where); }

plan::Assignment RunOf(const control::Estate& estate, const Cell& cell) {
  if (cell.work.kind == Work::Kind::kRetrain) {
    return {.kind = plan::Assignment::Kind::kJob, .name = JobName(estate, cell.work)};
  }
  const control::Offer& offer = control::OfferAt(estate, cell);
  plan::Assignment run{.kind = plan::Assignment::Kind::kModel,
                       .name = estate.tenants[cell.work.tenant].name,
                       .processes = offer.processes};
  if (offer.table) run.batch = offer.table->max_batch();
  return run;
}

plan::Plan PlanOf(const control::Estate& estate, std::vector<Cell> cells,
                  std::span<const Cell> idle) {
  std::ranges::sort(cells, {}, PlaceOf);
  plan::Plan plan;
  for (int g = 0; g < estate.gpus; ++g) {
    plan::PlannedGpu& gpu = plan.gpus.emplace_back();
    gpu.gpu = g;
    gpu.kind = estate.gpu->name;
    for (const Cell& cell : cells) {
      if (cell.gpu != g) continue;
      plan::PlannedInstance& instance = gpu.instances.emplace_back();
      instance.profile = estate.gpu->profile(PlaceOf(cell).profile).name;
      instance.start = PlaceOf(cell).start;
      if (std::ranges::find(idle, cell) == idle.end()) {
        instance.runs.push_back(RunOf(estate, cell));
      }
    }
  }
  return plan;
}

// True when NVML shows the GPU, and on it no such instance that could run something.
bool IsMissing(const control::Estate& estate, const device::NodeState& node, const Cell& cell) {
  const auto index = static_cast<std::size_t>(cell.gpu);
  if (index >= node.gpus.size() || !node.gpus[index].instances_known) return false;
  const device::GpuState& gpu = node.gpus[index];
  const std::string& wanted = estate.gpu->profile(PlaceOf(cell).profile).name;
  return std::ranges::none_of(gpu.instances, [&](const device::GpuInstanceState& state) {
    return state.instance.start == PlaceOf(cell).start &&
           gpu.model.profile(state.instance.profile).name == wanted && !state.compute.empty();
  });
}

}  // namespace

std::string JobName(const control::Estate& estate, const Work& work) {
  const control::EstateTenant& tenant = estate.tenants[work.tenant];
  return fmt::format("retrain-{}-{}", tenant.name, tenant.learning->options[work.retraining].name);
}

Result<void> NodePlant::Change(int /*slot*/, std::span<const CellState> /*before*/,
                               std::span<const Cell> after) {
  const std::vector<Cell> cells(after.begin(), after.end());
  auto change = cutter_.Cut(PlanOf(estate_, cells, {}));
  if (!change) return Fail(change.error());
  last_change_ = *std::move(change);
  cells_ = cells;
  return {};
}

double NodePlant::Outcome(const Work& work, int /*window*/) {
  return estate_.tenants[work.tenant].learning->options[work.retraining].accuracy;
}

void NodePlant::Resume(std::span<const CellState> cells) {
  cells_.clear();
  for (const CellState& state : cells) cells_.push_back(state.cell);
}

std::vector<Cell> NodePlant::TakeMissing() {
  std::vector<Cell> missing;
  if (cells_.empty()) return missing;
  const auto node = cutter_.Read();
  if (!node) return missing;
  std::erase_if(cells_, [&](const Cell& cell) {
    const bool gone = IsMissing(estate_, *node, cell);
    if (gone) missing.push_back(cell);
    return gone;
  });
  return missing;
}

plan::Plan NodePlant::InForce(std::span<const CellState> working) const {
  std::vector<Cell> idle;
  for (const Cell& cell : cells_) {
    if (std::ranges::find(working, cell, &CellState::cell) == working.end()) idle.push_back(cell);
  }
  return PlanOf(estate_, cells_, idle);
}

}  // namespace divvy::app
