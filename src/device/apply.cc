#include "device/apply.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "device/mig_control.h"
#include "device/node.h"

namespace divvy::device {
namespace {

// Checks what NVML shows now against what was meant, and that nobody who was
// busy has lost a device.
Result<void> Verify(const NvmlLibrary& nvml, const GpuChange& change) {
  auto now = ReadGpu(nvml, change.now.uuid);
  if (!now) return Fail(now.error());
  if (!Matches(*now, change.after)) {
    return Fail(ErrorCode::kUnavailable,
                fmt::format("GPU {} does not show the wanted layout after all steps succeeded",
                            change.now.index));
  }
  for (const GpuInstanceState& before : change.now.instances) {
    if (!before.busy()) continue;
    const auto after = std::ranges::find(now->instances, before.id, &GpuInstanceState::id);
    if (after == now->instances.end() || after->instance != before.instance) {
      return Fail(ErrorCode::kUnavailable,
                  fmt::format("GPU {}: busy instance {} is no longer there", change.now.index,
                              gpu::Describe(change.now.model, before.instance)));
    }
  }
  return {};
}

// True when this change may have made the instance, or found it.
bool IsOurs(const InstanceTarget& t, const GpuTarget& before, const Journal& journal) {
  if (FindTarget(before, t.start, t.profile_id) != nullptr) return true;
  const BegunCreate create{before.uuid, t.profile_id, t.start};
  return std::ranges::find(journal.begun(), create) != journal.begun().end();
}

struct WayOut {
  Outcome outcome;
  std::vector<Step> steps;
};

// One of a change's two layouts for one GPU, made to fit what others did there
// since: what is neither old nor of our making stays, and so do the compute
// instances of what the change leaves alone.
Result<GpuTarget> Adapt(const GpuState& now, const GpuTarget& before, const GpuTarget& after,
                        bool forward, const Journal& journal) {
  GpuTarget target = forward ? after : before;
  for (const InstanceTarget& t : AsItIs(now).instances) {
    const InstanceTarget* const old = FindTarget(before, t.start, t.profile_id);
    const InstanceTarget* const next = FindTarget(after, t.start, t.profile_id);
    if (old != nullptr && next != nullptr && old->compute == next->compute && !t.compute->empty()) {
      std::erase_if(target.instances, [&](const auto& each) { return each.start == t.start; });
      target.instances.push_back(t);
    } else if (!IsOurs(t, before, journal) && (!forward || next == nullptr)) {
      if (!target.mig) {
        return Fail(ErrorCode::kFailedPrecondition,
                    fmt::format("GPU {}: {} at {} is somebody else's, so MIG mode cannot be "
                                "disabled",
                                now.index, t.profile, t.start));
      }
      target.instances.push_back(t);
    }
  }
  std::ranges::sort(target.instances, {}, &InstanceTarget::start);
  return target;
}

// The steps that bring every GPU to the new layout (forward) or back to the old.
Result<std::vector<Step>> StepsToAll(const std::vector<GpuState>& now, const Change& change,
                                     bool forward, const Journal& journal) {
  std::vector<Step> all;
  for (std::size_t i = 0; i < now.size(); ++i) {
    const auto target = Adapt(now[i], change.before[i], change.after[i], forward, journal);
    if (!target) return Fail(target.error());
    auto steps = StepsTowards(now[i], *target);
    if (!steps) return Fail(steps.error());
    std::ranges::move(*steps, std::back_inserter(all));
  }
  return all;
}

Result<std::vector<GpuState>> ReadAll(const NvmlLibrary& nvml,
                                      const std::vector<GpuTarget>& targets) {
  std::vector<GpuState> states;
  for (const GpuTarget& target : targets) {
    auto state = ReadGpu(nvml, target.uuid);
    if (!state) {
      return Fail({state.error().code,
                   fmt::format("{} (if that GPU is gone for good, check the others with 'divvy "
                               "gpus' and remove the journal)",
                               state.error().message)});
    }
    states.push_back(*std::move(state));
  }
  return states;
}

// Where to go from an unfinished change.
Result<WayOut> FindWayOut(const std::vector<GpuState>& now, const Change& change,
                          const Journal& journal) {
  auto forward = StepsToAll(now, change, true, journal);
  if (forward && forward->empty()) return WayOut{Outcome::kApplied, {}};
  auto back = StepsToAll(now, change, false, journal);
  if (back) return WayOut{Outcome::kRolledBack, *std::move(back)};
  if (forward) return WayOut{Outcome::kApplied, *std::move(forward)};
  return Fail(ErrorCode::kFailedPrecondition,
              fmt::format("the way back is blocked ({}), and so is the way on ({}); stop what is "
                          "in the way, then run 'divvy apply --recover'",
                          back.error().message, forward.error().message));
}

// Takes steps whose only purpose is to put things right. The journal is a
// courtesy here: it already holds both ends, so a full disk must not keep
// anybody's instance from being created again.
Result<void> TakeSteps(const NvmlLibrary& nvml, const std::vector<Step>& steps, Journal& journal,
                       ApplyListener& listener) {
  int number = 0;
  for (const Step& step : steps) {
    listener.OnStepBegins(step, ++number, static_cast<int>(steps.size()));
    const auto begun = journal.BeginStep(step);
    auto outcome = CarryOut(nvml, step);
    if (!outcome) return Fail(outcome.error());
    if (begun) static_cast<void>(journal.EndStep());
    listener.OnStepEnds(step, *outcome);
  }
  return {};
}

// Brings an unfinished change to an end, either end.
Result<Outcome> Settle(const NvmlLibrary& nvml, const Change& change, Journal& journal,
                       ApplyListener& listener) {
  auto now = ReadAll(nvml, change.before);
  if (!now) return Fail(now.error());
  auto way = FindWayOut(*now, change, journal);
  if (!way) return Fail(way.error());
  if (auto taken = TakeSteps(nvml, way->steps, journal, listener); !taken) {
    return Fail(taken.error());
  }
  now = ReadAll(nvml, change.before);
  if (!now) return Fail(now.error());
  const auto left = StepsToAll(*now, change, way->outcome == Outcome::kApplied, journal);
  if (!left || !left->empty()) {
    return Fail(ErrorCode::kUnavailable, "NVML does not show the layout that its calls made");
  }
  if (auto finished = journal.Finish(way->outcome); !finished) return Fail(finished.error());
  return way->outcome;
}

Result<void> TakeForwardSteps(const NvmlLibrary& nvml, const std::vector<GpuChange>& changes,
                              Journal& journal, ApplyListener& listener) {
  const int count = CountSteps(changes);
  int number = 0;
  for (const GpuChange& change : changes) {
    for (const Step& step : change.steps) {
      if (listener.Cancelled()) return Fail(ErrorCode::kAborted, "interrupted");
      if (auto begun = journal.BeginStep(step); !begun) return begun;
      listener.OnStepBegins(step, ++number, count);
      auto outcome = CarryOut(nvml, step);
      if (!outcome) {
        const bool refused = step.kind == Step::Kind::kCreate &&
                             outcome.error().code == ErrorCode::kResourceExhausted;
        // Unnoted, the worst is that a recovery takes another's instance for ours.
        if (refused) static_cast<void>(journal.WithdrawStep());
        return Fail({outcome.error().code, fmt::format("step {} of {} failed: {}", number, count,
                                                       outcome.error().message)});
      }
      if (auto ended = journal.EndStep(); !ended) return ended;
      listener.OnStepEnds(step, *outcome);
    }
  }
  for (const GpuChange& change : changes) {
    if (auto verified = Verify(nvml, change); !verified) return verified;
  }
  return {};
}

}  // namespace

Result<void> Apply(const NvmlLibrary& nvml, const ChangeLock& /*lock*/,
                   const std::string& state_dir, const std::string& plan_name,
                   const std::vector<GpuChange>& changes, ApplyListener& listener) {
  Change change{.plan = plan_name, .before = {}, .after = {}};
  for (const GpuChange& c : changes) {
    if (c.steps.empty()) continue;
    change.before.push_back(AsItIs(c.now));
    change.after.push_back(c.after);
  }
  if (change.before.empty()) return {};
  auto journal = Journal::Begin(state_dir, change);
  if (!journal) return Fail(journal.error());

  auto taken = TakeForwardSteps(nvml, changes, *journal, listener);
  if (taken) {
    if (auto finished = journal->Finish(Outcome::kApplied); !finished) {
      return Fail(ErrorCode::kUnavailable,
                  fmt::format("the new layout is in place, but the journal could not be closed "
                              "({}); run 'divvy apply --recover'",
                              finished.error().message));
    }
    return {};
  }
  listener.OnRollback(taken.error().message);
  auto settled = Settle(nvml, change, *journal, listener);
  if (!settled) {
    return Fail(ErrorCode::kUnavailable,
                fmt::format("{}; undoing it failed too: {}; run 'divvy apply --recover'",
                            taken.error().message, settled.error().message));
  }
  return Fail(ErrorCode::kAborted,
              fmt::format("{}; {}", taken.error().message,
                          *settled == Outcome::kRolledBack
                              ? "rolled back: the layout is the one that was found"
                              : "the new layout is complete and stays"));
}

Result<Outcome> Recover(const NvmlLibrary& nvml, const ChangeLock& /*lock*/,
                        const std::string& state_dir, ApplyListener& listener) {
  auto record = ReadUnfinished(state_dir);
  if (!record) return Fail(record.error());
  if (!*record) return Fail(ErrorCode::kNotFound, "nothing to recover: no change is unfinished");
  auto journal = Journal::Resume(state_dir);
  if (!journal) return Fail(journal.error());
  if ((*record)->outcome) {
    // It was over; only the last rename is missing.
    if (auto finished = journal->Finish(*(*record)->outcome); !finished) {
      return Fail(finished.error());
    }
    return *(*record)->outcome;
  }
  return Settle(nvml, (*record)->change, *journal, listener);
}

}  // namespace divvy::device
