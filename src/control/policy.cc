#include "control/policy.h"

#include <fmt/format.h>

#include <algorithm>

namespace divvy::control {
namespace {

using planner::Work;
using Fault = std::optional<std::string>;

Fault FaultOf(const Estate& estate, const View& view, const Cell& cell) {
  if (cell.gpu < 0 || cell.gpu >= estate.gpus) return fmt::format("there is no GPU {}", cell.gpu);
  if (cell.work.tenant >= estate.tenants.size()) return "no such tenant";
  if (const auto* share = std::get_if<Share>(&cell.where)) {
    if (share->tenths < 1 || share->tenths > 10) {
      return fmt::format("{} tenths of a GPU", share->tenths);
    }
  } else if (static_cast<std::size_t>(std::get<gpu::MigInstance>(cell.where).profile) >=
             estate.gpu->profiles.size()) {
    return "no such profile";
  }
  const EstateTenant& tenant = estate.tenants[cell.work.tenant];
  const Offer& offer = OfferAt(estate, cell);
  if (cell.work.kind == Work::Kind::kServe) {
    if (offer.capacity <= 0) return tenant.name + " cannot serve there";
    return std::nullopt;
  }
  if (cell.work.retraining >= offer.retraining_slots.size() ||
      offer.retraining_slots[cell.work.retraining] <= 0) {
    return tenant.name + " cannot be retrained there";
  }
  if (view.tenants[cell.work.tenant].retrained) {
    return tenant.name + " has been retrained in this window";
  }
  return std::nullopt;
}

Fault GpuFault(const Estate& estate, std::span<const Cell> cells, int gpu) {
  std::vector<gpu::MigInstance> instances;
  int tenths = 0;
  for (const Cell& cell : cells) {
    if (cell.gpu != gpu) continue;
    if (const auto* share = std::get_if<Share>(&cell.where)) {
      tenths += share->tenths;
    } else {
      instances.push_back(std::get<gpu::MigInstance>(cell.where));
    }
  }
  if (tenths > 0 && !instances.empty()) return fmt::format("GPU {} is cut and shared", gpu);
  if (tenths > 10) return fmt::format("GPU {}: {} tenths are given out", gpu, tenths);
  const auto layout = gpu::MigLayout::Of(*estate.gpu, instances);
  if (!layout) return fmt::format("GPU {}: {}", gpu, layout.error().message);
  return std::nullopt;
}

}  // namespace

Fault FindFault(const Estate& estate, const View& view, std::span<const Cell> cells) {
  std::vector<int> retrained(estate.tenants.size());
  for (const Cell& cell : cells) {
    if (Fault fault = FaultOf(estate, view, cell)) return fault;
    if (cell.work.kind == Work::Kind::kRetrain && ++retrained[cell.work.tenant] > 1) {
      return estate.tenants[cell.work.tenant].name + " is retrained twice";
    }
  }
  for (int gpu = 0; gpu < estate.gpus; ++gpu) {
    if (Fault fault = GpuFault(estate, cells, gpu)) return fault;
  }
  for (const CellState& state : view.cells) {
    const bool pinned = state.cell.work.kind == Work::Kind::kRetrain &&
                        std::holds_alternative<gpu::MigInstance>(state.cell.where);
    if (pinned && std::ranges::find(cells, state.cell) == cells.end()) {
      return fmt::format("GPU {}, {}: {} is being retrained there", state.cell.gpu,
                         gpu::Describe(*estate.gpu, std::get<gpu::MigInstance>(state.cell.where)),
                         estate.tenants[state.cell.work.tenant].name);
    }
  }
  return std::nullopt;
}

double AccuracyAt(const Estate& estate, const View& view, std::size_t tenant, int slot) {
  const auto& learning = estate.tenants[tenant].learning;
  if (!learning) return 1;
  const TenantState& state = view.tenants[tenant];
  return learning->AccuracyAfter(state.trained, estate.slot * (slot - state.data_slot));
}

double AccuracyAfter(const Estate& estate, const View& view, std::size_t tenant, std::size_t option,
                     int slot) {
  const auto& learning = estate.tenants[tenant].learning;
  if (!learning) return 1;
  const int data_slot = view.slot - view.slot % estate.window;
  return learning->AccuracyAfter(learning->options[option].accuracy,
                                 estate.slot * (slot - data_slot));
}

const Offer& OfferAt(const Estate& estate, const Cell& cell) {
  const EstateTenant& tenant = estate.tenants[cell.work.tenant];
  if (const auto* share = std::get_if<Share>(&cell.where)) {
    return tenant.by_tenths[static_cast<std::size_t>(share->tenths)];
  }
  const auto profile = std::get<gpu::MigInstance>(cell.where).profile;
  return tenant.by_profile[static_cast<std::size_t>(profile)];
}

}  // namespace divvy::control
