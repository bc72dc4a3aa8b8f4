#include "apply_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>

#include "gpu/strip.h"

namespace divvy::app {
namespace {

using device::GpuChange;
using device::GpuTarget;
using device::InstanceTarget;
using device::Step;
using nlohmann::json;

constexpr std::array<int, 3> kSignals = {SIGINT, SIGTERM, SIGHUP};

// Progress is a courtesy: a terminal that is gone must not stop a change midway,
// so a failed write is nobody's business (fmt::print would throw).
void Tell(const std::string& text) {
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

// A signal handler can reach nothing but a global.
volatile std::sig_atomic_t signalled = 0;

extern "C" void OnSignal(int signal) { signalled = signal; }

std::vector<gpu::StripCell> CellsBefore(const device::GpuState& now) {
  std::vector<gpu::StripCell> cells;
  for (const auto& state : now.instances) {
    cells.push_back({state.instance, state.busy() ? "busy" : ""});
  }
  return cells;
}

std::vector<gpu::StripCell> CellsAfter(const GpuChange& change) {
  std::vector<gpu::StripCell> cells;
  for (const InstanceTarget& t : change.after.instances) {
    const auto profile = change.now.model.FindProfileById(t.profile_id);
    if (!profile) continue;
    const gpu::MigInstance instance{t.start, *profile};
    const bool stays = std::ranges::any_of(
        change.now.instances, [&](const auto& state) { return state.instance == instance; });
    cells.push_back({instance, stays ? "stays" : "new"});
  }
  return cells;
}

json InstancesJson(const GpuTarget& target) {
  json array = json::array();
  for (const InstanceTarget& t : target.instances) {
    array.push_back({{"profile", t.profile}, {"start", t.start}, {"size", t.size}});
  }
  return array;
}

std::string_view Word(Step::Kind kind) {
  switch (kind) {
    case Step::Kind::kEnableMig:
      return "enable-mig";
    case Step::Kind::kDisableMig:
      return "disable-mig";
    case Step::Kind::kDestroy:
      return "destroy";
    case Step::Kind::kCreate:
      return "create";
    case Step::Kind::kComplete:
      return "complete";
  }
  return "";
}

}  // namespace

void PrintChanges(const std::vector<GpuChange>& changes, gpu::Ink ink) {
  int number = 0;  // Over all GPUs, as they will be taken.
  for (const GpuChange& change : changes) {
    fmt::print("GPU {}  {}  {}\n", change.now.index, change.now.name, change.now.uuid);
    const auto before = CellsBefore(change.now);
    const auto after = CellsAfter(change);
    const int scale = std::max(gpu::StripScale(change.now.model, before),
                               gpu::StripScale(change.now.model, after));
    if (change.now.mig_enabled) {
      PrintStrip("  now   ", gpu::DrawStrip(change.now.model, before, scale, ink));
    } else {
      fmt::print("  now   whole, MIG disabled\n");
    }
    if (change.steps.empty()) {
      fmt::print("  Nothing to do: this GPU is as planned.\n");
      continue;
    }
    if (change.after.mig) {
      PrintStrip("  then  ", gpu::DrawStrip(change.now.model, after, scale, ink));
    } else {
      fmt::print("  then  whole, MIG disabled\n");
    }
    for (const Step& step : change.steps) {
      fmt::print("  {:>2}. {:<26} {}\n", ++number, device::Describe(step), step.effect);
    }
  }
}

json ToJson(const std::vector<GpuChange>& changes) {
  json gpus = json::array();
  for (const GpuChange& change : changes) {
    json steps = json::array();
    for (const Step& step : change.steps) {
      json s = {{"action", Word(step.kind)}, {"effect", step.effect}};
      if (!step.instance.profile.empty()) {
        s["profile"] = step.instance.profile;
        s["start"] = step.instance.start;
      }
      steps.push_back(std::move(s));
    }
    gpus.push_back({{"index", change.now.index},
                    {"uuid", change.now.uuid},
                    {"before", InstancesJson(AsItIs(change.now))},
                    {"mig_before", change.now.mig_enabled},
                    {"after", InstancesJson(change.after)},
                    {"mig_after", change.after.mig},
                    {"steps", std::move(steps)}});
  }
  return {{"gpus", std::move(gpus)}};
}

ApplyProgress::ApplyProgress() {
  signalled = 0;
  for (const int signal : kSignals) std::signal(signal, OnSignal);
  // The reader of our messages may go away; the change must not go with it.
  std::signal(SIGPIPE, SIG_IGN);
}

ApplyProgress::~ApplyProgress() {
  for (const int signal : kSignals) std::signal(signal, SIG_DFL);
  std::signal(SIGPIPE, SIG_DFL);
}

void ApplyProgress::OnStepBegins(const Step& step, int number, int count) {
  Tell(fmt::format("[{}/{}] GPU {}: {} ... ", number, count, step.gpu_index,
                   device::Describe(step)));
}

void ApplyProgress::OnStepEnds(const Step& /*step*/, const std::string& outcome) {
  Tell(outcome + "\n");
}

void ApplyProgress::OnRollback(const std::string& why) {
  Tell(fmt::format("\ndivvy: {}; going back\n", why));
}

void ApplyProgress::OnDone() { Tell("divvy: done; the layout was read back and is as wanted\n"); }

bool ApplyProgress::Cancelled() { return signalled != 0; }

}  // namespace divvy::app
