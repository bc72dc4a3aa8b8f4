#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "gpu/brute_force.h"
#include "gpu/transition.h"

namespace divvy::gpu {

// Tests' independent judge of a Transition: replays it and holds it to every
// promise of transition.h but the minimal number destroyed, which takes a
// LayoutGraph to know.
class TransitionChecker {
 public:
  TransitionChecker(const GpuModel& model, std::span<const PresentInstance> present,
                    const Transition& transition)
      : model_(model), present_(present), transition_(transition) {
    for (const PresentInstance& each : present) now_.push_back(each.instance);
  }

  // What is wrong, or an empty string. In `starts`, -1 is allowed iff `partly`.
  std::string Complaint(std::span<const WantedInstance> wanted, bool partly) {
    if (std::string wrong = CheckSteps(); !wrong.empty()) return wrong;
    std::ranges::sort(now_);
    if (now_ != transition_.target) return "ends elsewhere";
    return CheckStarts(wanted, partly);
  }

 private:
  std::string CheckSteps() {
    std::size_t expected = 0;
    for (const MigInstance& instance : now_)
      expected += Contains(transition_.target, instance) ? 0 : 1;
    if (transition_.destroyed != static_cast<int>(expected)) {
      return "miscounts the destroyed";
    }
    for (const MigInstance& instance : transition_.target)
      expected += Contains(now_, instance) ? 0 : 1;
    if (transition_.steps.size() != expected) return "detours";
    for (std::size_t i = 0; i < transition_.steps.size(); ++i) {
      if (const std::string wrong = CheckStep(i); !wrong.empty()) {
        return wrong + " at step " + std::to_string(i);
      }
    }
    return "";
  }

  std::string CheckStep(std::size_t i) {
    const auto& [kind, instance] = transition_.steps[i];
    if (kind == TransitionStep::Kind::kCreate) {
      now_.push_back(instance);
      if (!brute_force::IsLegal(model_, now_)) return "illegal";
      return "";
    }
    const bool idle = std::ranges::any_of(present_, [&](const PresentInstance& each) {
      return each.instance == instance && !each.busy;
    });
    if (!idle || !Contains(now_, instance)) {
      return "destroys what is busy or not there";
    }
    if (std::string wrong = CheckLateness(i); !wrong.empty()) return wrong;
    std::erase(now_, instance);
    return "";
  }

  // A destroy is late enough when nothing that is still to be created fits before
  // it, and the next create needs it gone.
  std::string CheckLateness(std::size_t i) const {
    const auto is_create = [](const TransitionStep& step) {
      return step.kind == TransitionStep::Kind::kCreate;
    };
    const auto here = transition_.steps.begin() + static_cast<std::ptrdiff_t>(i);
    const auto next = std::find_if(here, transition_.steps.end(), is_create);
    if (next == transition_.steps.end()) return "";
    for (auto later = next; later != transition_.steps.end(); ++later) {
      if (is_create(*later) && FitsWith(now_, later->instance)) {
        return "destroys before creating what fits";
      }
    }
    std::vector<MigInstance> others = now_;
    for (auto step = here + 1; step != next; ++step) std::erase(others, step->instance);
    if (FitsWith(others, next->instance)) {
      return "destroys what the next create does not need gone";
    }
    return "";
  }

  std::string CheckStarts(std::span<const WantedInstance> wanted, bool partly) const {
    if (transition_.starts.size() != wanted.size()) return "starts";
    std::vector<MigInstance> left = transition_.target;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const int start = transition_.starts[i];
      if (start == -1 && partly) continue;
      if (wanted[i].start.value_or(start) != start ||
          std::erase(left, MigInstance{start, wanted[i].profile}) != 1) {
        return "wanted instance " + std::to_string(i) + " is not at " + std::to_string(start);
      }
    }
    // What nobody wanted may stay only where it is busy.
    for (const PresentInstance& each : present_) {
      if (each.busy) std::erase(left, each.instance);
    }
    if (!left.empty()) return "keeps what nobody wanted";
    return "";
  }

  bool FitsWith(std::vector<MigInstance> instances, const MigInstance& more) const {
    instances.push_back(more);
    return brute_force::IsLegal(model_, instances);
  }

  static bool Contains(const std::vector<MigInstance>& instances, const MigInstance& instance) {
    return std::ranges::find(instances, instance) != instances.end();
  }

  const GpuModel& model_;
  std::span<const PresentInstance> present_;
  const Transition& transition_;
  std::vector<MigInstance> now_;
};

}  // namespace divvy::gpu
