#include "gpu/step_order.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/check.h"
#include "gpu/tally.h"

namespace divvy::gpu {
namespace {

// Some of the doomed instances, by position; there are fewer than slices.
using DoomedSet = std::uint32_t;

class StepOrder {
 public:
  StepOrder(const GpuModel& model, std::span<const PresentInstance> present,
            std::span<const MigInstance> target)
      : model_(model), tally_(model) {
    std::vector<MigInstance> now;
    for (const PresentInstance& each : present) {
      const MigInstance& instance = each.instance;
      Check(tally_.Fits(instance.profile, Slices(instance)),
            "present instances are a legal layout");
      tally_.Add(instance.profile, Slices(instance));
      now.push_back(instance);
    }
    std::ranges::sort(now);
    std::vector<MigInstance> then(target.begin(), target.end());
    std::ranges::sort(then);
    std::ranges::set_difference(now, then, std::back_inserter(doomed_));
    std::ranges::set_difference(then, now, std::back_inserter(creates_));
    standing_ = (DoomedSet{1} << doomed_.size()) - 1;
  }

  std::vector<TransitionStep> Run() {
    steps_.reserve(doomed_.size() + creates_.size());
    while (!creates_.empty()) CreateNext();
    Destroy(standing_);
    return std::move(steps_);
  }

 private:
  void CreateNext() {
    std::size_t next = 0;
    DoomedSet fewest = ~DoomedSet{0};
    for (std::size_t i = 0; i < creates_.size() && fewest != 0; ++i) {
      const DoomedSet needed = NeededFor(creates_[i]);
      if (std::popcount(needed) >= std::popcount(fewest)) continue;
      next = i;
      fewest = needed;
    }
    Destroy(fewest);
    const MigInstance instance = creates_[next];
    Check(tally_.Fits(instance.profile, Slices(instance)), "the target is a legal layout");
    tally_.Add(instance.profile, Slices(instance));
    steps_.push_back({TransitionStep::Kind::kCreate, instance});
    creates_.erase(creates_.begin() + static_cast<std::ptrdiff_t>(next));
  }

  // What must go before `instance` can come: all that stands in the way, less all
  // that may stand beside it. Counts and engines may leave a choice of what to
  // destroy; those with lower starts stay.
  DoomedSet NeededFor(const MigInstance& instance) {
    const SliceMask slices = Slices(instance);
    if (tally_.Fits(instance.profile, slices)) return 0;
    ForEach(standing_, [&](const MigInstance& d) { tally_.Remove(d.profile, Slices(d)); });
    DoomedSet needed = 0;
    for (std::size_t i = 0; i < doomed_.size(); ++i) {
      if ((standing_ >> i & 1) == 0) continue;
      const MigInstance& d = doomed_[i];
      tally_.Add(d.profile, Slices(d));
      if (tally_.Fits(instance.profile, slices)) continue;
      tally_.Remove(d.profile, Slices(d));
      needed |= DoomedSet{1} << i;
    }
    ForEach(needed, [&](const MigInstance& d) { tally_.Add(d.profile, Slices(d)); });
    return needed;
  }

  void Destroy(DoomedSet set) {
    ForEach(set, [&](const MigInstance& d) {
      tally_.Remove(d.profile, Slices(d));
      steps_.push_back({TransitionStep::Kind::kDestroy, d});
    });
    standing_ &= ~set;
  }

  template <typename Act>
  void ForEach(DoomedSet set, Act act) const {
    for (; set != 0; set &= set - 1) act(doomed_[static_cast<std::size_t>(std::countr_zero(set))]);
  }

  SliceMask Slices(const MigInstance& instance) const {
    return SlicesOf(model_.profile(instance.profile), instance.start);
  }

  const GpuModel& model_;
  Tally tally_;
  std::vector<MigInstance> doomed_;   // Present but not in the target, by start.
  std::vector<MigInstance> creates_;  // What is still to be created, by start.
  DoomedSet standing_ = 0;            // Doomed, but not destroyed yet.
  std::vector<TransitionStep> steps_;
};

}  // namespace

std::vector<TransitionStep> OrderSteps(const GpuModel& model,
                                       std::span<const PresentInstance> present,
                                       std::span<const MigInstance> target) {
  return StepOrder(model, present, target).Run();
}

}  // namespace divvy::gpu
