#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/goodput.h"
#include "planner/goodput_tally.h"

namespace divvy::planner {

// What tenants pay.
struct Prices {
  SlotTable request;               // For a request answered in a slot, by tenant.
  std::vector<double> retraining;  // By tenant.
};

// The best that all GPUs together earn at given prices, and how.
struct Earnings {
  double total = 0;
  SlotTable capacity;                         // Requests that their instances can answer.
  std::vector<std::vector<Stretch>> retrain;  // By tenant: every use, GPU after GPU.
};

// Solves the GPUs' side of the relaxed problem. Instances may begin and end at `times`
// only (ascending, from 0 to problem.slots; a bound needs every slot).
//
// MIG places are nested: of two that share a memory slice, one lies within the other.
// So the uses of a GPU are paths in time over a tree of spans: a span is one instance,
// or is left to the spans within it, and at every turn what is on it begins anew. That
// is solved exactly, from the smallest spans to the whole GPU, in O(times^3) for each
// kind of span.
class RelaxedGpus {
 public:
  RelaxedGpus(const GoodputProblem& problem, std::vector<int> times);

  [[nodiscard]] Earnings Earn(const Prices& prices);

 private:
  // What can be done with a stretch of time on an instance.
  struct Arc {
    enum class Kind : std::uint16_t { kIdle, kServe, kRetrain, kSplit };
    double worth = 0;
    Kind kind = Kind::kIdle;
    std::uint16_t profile = 0;
    std::uint16_t tenant = 0;
    std::uint16_t retraining = 0;
  };
  // Spans of the same profiles with the same within are of one kind.
  struct Kind {
    std::vector<gpu::ProfileIndex> profiles;
    std::vector<std::size_t> within;  // Kinds, with repetition.
    std::vector<double> arc;          // By from and to: the best single use.
    std::vector<double> best;         // By from and to: the best path.
  };
  struct Span {
    int start;
    std::size_t kind;
    std::vector<std::size_t> within;  // Spans.
  };

  void BuildTree();
  [[nodiscard]] std::size_t AddSpan(int start, int length);
  void Price(const Prices& prices);
  void SolveKind(Kind& kind);
  [[nodiscard]] Arc SingleUse(gpu::ProfileIndex profile, std::size_t from, std::size_t to) const;
  [[nodiscard]] double Served(std::size_t tenant, double from, double to) const;
  [[nodiscard]] double RetrainWorth(std::size_t tenant, std::size_t option, int done) const;
  [[nodiscard]] Arc FirstUse(std::size_t gpu, const Span& span, std::size_t to) const;
  void SolveFirst(std::size_t gpu);
  void Collect(std::size_t gpu, std::size_t span, std::size_t from, std::size_t to, int copies,
               Earnings& earnings) const;
  void CollectFirst(std::size_t gpu, std::size_t span, std::size_t to, int copies,
                    Earnings& earnings) const;
  void Use(const Span& span, const Arc& arc, int from, int to, double delay, int copies,
           Earnings& earnings) const;

  std::size_t At(std::size_t from, std::size_t to) const { return from * times_.size() + to; }

  const GoodputProblem& problem_;
  std::vector<int> times_;
  std::vector<Kind> kinds_;  // Smaller ones first.
  std::vector<Span> spans_;
  std::vector<std::size_t> roots_;
  const Prices* prices_ = nullptr;
  SlotTable paid_;                                         // Prefix sums of prices, by tenant.
  std::vector<SlotTable> gain_;                            // By tenant, retraining, slot done.
  std::vector<std::vector<double>> single_;                // By profile: best single serving use.
  std::vector<std::vector<std::uint16_t>> single_tenant_;  // And whose.
  std::vector<std::vector<double>> first_arc_;             // By span: best first use up to a time.
  std::vector<std::vector<double>> first_best_;            // By span: best path from 0.
};

}  // namespace divvy::planner
