#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace divvy::control {

// Retrainings one after another on places that are set aside for them.
struct QueueProblem {
  int slots = 0;                     // From now to the end of the window.
  std::vector<double> free_at;       // By place: slot from now at which it has nothing to do.
  std::vector<std::size_t> tenants;  // That may be retrained, each once.
  std::size_t options = 0;           // At most so many a tenant.

  // Slots that a tenant's option takes on a place, restart included; 0: not there.
  std::function<double(std::size_t tenant, std::size_t option, std::size_t place)> takes;

  // What is gained when it is done at that slot. Never grows with the slot.
  std::function<double(std::size_t tenant, std::size_t option, int end)> gain;
};

struct QueuedRetraining {
  std::size_t place = 0;
  std::size_t tenant = 0;
  std::size_t option = 0;
  double begin = 0;
  int end = 0;  // The first slot that has the new model.
};

struct RetrainingQueue {
  std::vector<QueuedRetraining> retrainings;  // In order of begin.
  double gain = 0;
};

// The queue that gains most, found by trying what gains most a slot first; near the best
// where there are too many ways to try. Deterministic.
[[nodiscard]] RetrainingQueue BestQueue(const QueueProblem& problem);

}  // namespace divvy::control
