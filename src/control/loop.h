#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "control/policy.h"

namespace divvy::control {

// What carries out changes: a simulation, or a node.
class Plant {
 public:
  virtual ~Plant() = default;

  // Turns from the cells that are there to others, all or nothing; what is in both
  // goes on. After an error everything is as before.
  [[nodiscard]] virtual Result<void> Change(int slot, std::span<const CellState> before,
                                            std::span<const Cell> after) = 0;

  // The accuracy, at the time of its data, of the model that a retraining gave.
  [[nodiscard]] virtual double Outcome(const planner::Work& work, int window) = 0;
};

// What a loop has to tell, for a report or a log.
struct LoopEvent {
  enum class Kind {
    kChanged,    // There are other cells now; `text` says why.
    kRetrained,  // A retraining came to its end.
    kGivenUp,    // The window ended before a retraining did.
    kKept,       // A decision failed or was refused: the layout stays; `text` says why.
  };
  Kind kind;
  int slot = 0;
  std::string text;
};

// The control loop: observes, lets a policy decide, has it carried out, and knows
// what is running. The same in the simulator and on a node. It fails safe: when the
// policy fails, decides what cannot be, or the plant refuses, the present layout stays
// and one event says why. Not thread-safe.
class Loop {
 public:
  using Listener = std::function<void(const LoopEvent&)>;

  // All must outlive the loop.
  Loop(const Estate& estate, Policy& policy, Plant& plant, Listener listener);

  // Begins a slot. Slots come in order from 0; `arrivals` are requests of the slot that
  // ended, by tenant (not looked at for slot 0).
  void Begin(int slot, std::span<const double> arrivals);

  // The same, but what is to be decided waits for the next Begin. Without arrivals: they
  // are not known, and taken to be as those of the slot before.
  void Pass(int slot, std::span<const double> arrivals = {});

  // Takes up where another loop over the same estate ended: the slot after view.slot is
  // the next to begin. Forecasts learn anew. REQUIRES: nothing has begun.
  void Resume(View view);

  // These cells are no longer there, by no decision of ours. The next Begin decides.
  void Lose(std::span<const Cell> gone);

  const View& view() const { return view_; }

  // Of decisions that had one.
  const std::vector<double>& gaps() const { return gaps_; }

  // Serving cells that began anew after the start, and times at which any did.
  int starts() const { return starts_; }
  int reconfigurations() const { return reconfigurations_; }
  int retrained() const { return retrained_; }

 private:
  bool Advance(int slot, std::span<const double> arrivals);
  bool Learn();
  void TakeModel(const planner::Work& work);
  bool BeginWindow();
  void Decide();
  void Take(const std::vector<Cell>& cells);
  void Tell(LoopEvent::Kind kind, std::string text);

  const Estate& estate_;
  Policy& policy_;
  Plant& plant_;
  Listener listener_;
  View view_;
  std::vector<std::vector<double>> arrivals_;  // By tenant and slot.
  std::vector<double> gaps_;
  int starts_ = 0;
  int reconfigurations_ = 0;
  int retrained_ = 0;
  bool begun_ = false;
  bool due_ = false;  // A decision.
};

}  // namespace divvy::control
