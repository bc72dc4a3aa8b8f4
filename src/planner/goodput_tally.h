#pragma once

#include <vector>

#include "planner/goodput.h"

// The parts that Value() is made of, for the planners of goodput.

namespace divvy::planner {

using SlotTable = std::vector<std::vector<double>>;  // By tenant, then slot.

// Slots from the begin of a stretch until it answers.
[[nodiscard]] double RestartOf(const GoodputProblem& problem, std::size_t gpu,
                               const Stretch& stretch);

// Adds `sign` times what a stretch can answer; nothing for retrainings.
void AddCapacity(const GoodputProblem& problem, std::size_t gpu, const Stretch& stretch,
                 double sign, SlotTable& capacity);

// What all instances of a schedule can answer.
[[nodiscard]] SlotTable CapacityOf(const GoodputProblem& problem, const GoodputSchedule& schedule);

// Each tenant's retraining, or null.
[[nodiscard]] std::vector<const Stretch*> RetrainingsOf(const GoodputProblem& problem,
                                                        const GoodputSchedule& schedule);

// Worth of an answer by slot, given the tenant's retraining or null.
[[nodiscard]] std::vector<double> WorthOf(const GoodputProblem& problem, std::size_t tenant,
                                          const Stretch* retraining);

// What the tail adds.
[[nodiscard]] double TailOf(const GoodputProblem& problem, std::size_t tenant,
                            const Stretch* retraining);

}  // namespace divvy::planner
