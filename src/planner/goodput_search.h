#pragma once

#include <optional>
#include <span>
#include <vector>

#include "planner/goodput_columns.h"
#include "planner/goodput_path.h"

namespace divvy::planner {

// A schedule under improvement: one GPU at a time against what the others leave, one
// retraining at a time. Value() never falls. Not thread-safe.
class GoodputSearch {
 public:
  // Begins by staying put. `problem` outlives the search.
  explicit GoodputSearch(const GoodputProblem& problem);

  // How hard to look.
  enum class Effort { kQuick, kThorough };

  // Lays the serving of one GPU anew around its retrainings; true when that is better.
  bool ImproveGpu(std::size_t gpu, Effort effort);

  // Gives tenants without a retraining one each, the most rewarding first.
  void AddRetrainings();

  // Moves retrainings, one at a time and two at a time where they stand in each other's
  // way, to better places and times; true when that is better.
  bool ImproveRetrainings();

  double value() const { return state_.value; }
  const GoodputSchedule& schedule() const { return state_.schedule; }

 private:
  struct State {
    GoodputSchedule schedule;
    std::vector<SlotTable> capacity;  // By GPU.
    double value = 0;
  };
  struct Trial {
    std::size_t gpu;
    Stretch stretch;
    double promise;
  };
  // What it costs one GPU to have a place pinned.
  struct PinLoss {
    gpu::MigInstance place;
    std::vector<double> before;       // By slot: lost from the start to there.
    std::vector<int> possible_until;  // By slot: when the place is taken by another pin.
  };
  // Times with the same pins on a GPU.
  struct Phase {
    int begin;
    int end;
    Cuts::Pins pins;
  };

  // An allocation that is good for some time, and what must stay beside it then.
  struct Candidate {
    Allocation allocation;
    Cuts::Pins pins;
  };

  [[nodiscard]] bool IsRunning(std::size_t gpu, const Stretch& stretch) const;
  [[nodiscard]] std::optional<std::size_t> GpuThatRetrains(std::size_t tenant) const;
  [[nodiscard]] std::vector<Stretch> PinsOn(std::size_t gpu) const;
  [[nodiscard]] std::vector<Phase> PhasesOf(std::size_t gpu) const;
  [[nodiscard]] Residual ResidualFor(std::size_t gpu) const;
  [[nodiscard]] std::vector<std::size_t> TenantsFor(std::size_t gpu,
                                                    const Residual& residual) const;
  [[nodiscard]] Seating PresentSeats(std::size_t gpu) const;
  [[nodiscard]] std::vector<Seating> SeatingsOf(std::size_t gpu) const;
  [[nodiscard]] std::vector<Candidate> CandidatesFor(std::size_t gpu, const Residual& residual);
  [[nodiscard]] std::vector<PathColumn> ColumnsFor(std::size_t gpu,
                                                   const std::vector<Candidate>& candidates,
                                                   const std::vector<Seating>& near,
                                                   std::size_t most) const;
  void AddNeighbours(const std::vector<Seating>& near, std::vector<Seating>& seatings) const;
  void Replace(std::size_t gpu, std::vector<Stretch> stretches);
  void Revalue();

  [[nodiscard]] std::vector<double> GainsOf(std::size_t tenant, const Retraining& option) const;
  [[nodiscard]] std::vector<PinLoss> PinLosses(std::size_t gpu);
  [[nodiscard]] std::vector<Trial> Trials(std::size_t tenant, std::size_t most);
  void RemoveRetraining(std::size_t tenant);
  void InsertBest(std::size_t tenant, std::size_t most);
  bool Reinsert(std::span<const std::size_t> tenants);
  [[nodiscard]] bool Movable(std::size_t tenant) const;
  void Forget() { pin_losses_.assign(problem_.present.size(), std::nullopt); }

  const GoodputProblem& problem_;
  Cuts cuts_;
  State state_;
  std::vector<std::optional<std::vector<PinLoss>>> pin_losses_;  // By GPU; estimates, for a while.
};

}  // namespace divvy::planner
