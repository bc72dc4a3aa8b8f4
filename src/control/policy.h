#pragma once

#include <compare>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "control/estate.h"
#include "gpu/mig_layout.h"
#include "planner/goodput.h"

namespace divvy::control {

// A part of a GPU under MPS.
struct Share {
  int tenths = 0;  // 1 to 10.

  friend auto operator<=>(const Share&, const Share&) = default;
};

// A part of a GPU at work.
struct Cell {
  int gpu = 0;
  std::variant<gpu::MigInstance, Share> where;
  planner::Work work;

  friend bool operator==(const Cell&, const Cell&) = default;
};

struct CellState {
  Cell cell;
  double ready_at = 0;  // Slot from which it answers, or learns.
  double progress = 0;  // Of a retraining: 0 to 1.
};

struct TenantState {
  double accuracy = 1;     // Of the model that serves, now.
  double trained = 1;      // The same at the time of its data,
  int data_slot = 0;       // which was this; negative before the start.
  bool retrained = false;  // In this window.
};

// What a policy sees at the beginning of a slot.
struct View {
  int slot = 0;                                   // The one that begins.
  std::span<const std::vector<double>> arrivals;  // By tenant: requests of each slot so far.
  std::vector<TenantState> tenants;
  std::vector<CellState> cells;

  // Slots from now to the end of the window.
  [[nodiscard]] int WindowLeft(const Estate& estate) const {
    return estate.window - slot % estate.window;
  }
};

struct Decision {
  std::optional<std::vector<Cell>> cells = {};  // All there shall be; nothing: as it is.
  std::string why = {};                         // For the log: one line.
  bool failed = false;                          // It could not decide, and `why` says why.
  std::optional<double> gap = {};               // How far from the best it may be.
};

// How GPUs are shared out over time. Asked at the start, at every multiple of
// Estate::every, at the start of each window and when a retraining has ended. At the
// start there are no cells, no arrivals, and what it decides stands ready at once; later,
// cells that were not there begin anew.
class Policy {
 public:
  enum class Sharing { kMig, kMps };

  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;
  virtual Sharing sharing() const = 0;
  [[nodiscard]] virtual Decision Decide(const View& view) = 0;
};

// Why `cells` cannot be, or nothing: an illegal layout, more than ten tenths, a tenant
// where it cannot run, two retrainings of one tenant or one that the window has no need
// of, a MIG instance gone while it retrains.
[[nodiscard]] std::optional<std::string> FindFault(const Estate& estate, const View& view,
                                                   std::span<const Cell> cells);

// Accuracy of a tenant's present model at a slot from now on.
[[nodiscard]] double AccuracyAt(const Estate& estate, const View& view, std::size_t tenant,
                                int slot);

// Accuracy at a slot of a model that `option` of this window's retraining gives.
[[nodiscard]] double AccuracyAfter(const Estate& estate, const View& view, std::size_t tenant,
                                   std::size_t option, int slot);

// What a tenant does where a cell is.
[[nodiscard]] const Offer& OfferAt(const Estate& estate, const Cell& cell);

}  // namespace divvy::control
