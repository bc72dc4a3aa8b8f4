#include "plan/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/spelling.h"
#include "base/text_safety.h"
#include "gpu/catalogue.h"

namespace divvy::plan {
namespace {

using gpu::GpuModel;
using gpu::MigProfile;

// NVIDIA's MPS documentation: 48 clients a GPU, and on a MIG compute instance
// fewer in proportion to its size.
constexpr int kMpsClients = 48;

// An instance whose profile is known.
struct Known {
  const PlannedInstance* instance;
  const MigProfile* profile;
};

// Memory slices [begin, end).
struct Span {
  int begin;
  int end;
};

bool Overlap(Span a, Span b) { return a.begin < b.end && b.begin < a.end; }

Span SpanAt(const MigProfile& profile, int start) { return {start, start + profile.memory_slices}; }

std::vector<std::string_view> ProfileNames(const GpuModel& model) {
  std::vector<std::string_view> names;
  names.reserve(model.profiles.size());
  for (const MigProfile& profile : model.profiles) names.push_back(profile.name);
  return names;
}

// "; that is a profile of A30-24GB", or an empty string.
std::string WhoHas(std::string_view profile) {
  std::vector<std::string_view> owners;
  for (const GpuModel& model : gpu::Catalogue()) {
    const auto names = ProfileNames(model);
    if (std::ranges::find(names, profile) != names.end()) owners.push_back(model.name);
  }
  return owners.empty() ? "" : "; that is a profile of " + OneOf(owners);
}

std::string UnknownProfile(const GpuModel& model, std::string_view profile) {
  const auto names = ProfileNames(model);
  std::string hint = WhoHas(profile) + DidYouMean(profile, names);
  if (hint.empty()) hint = "; it has " + OneOf(names);
  return fmt::format("{} has no profile {}{}", model.name, Quoted(profile), hint);
}

// Collects the problems of one GPU.
class GpuCheck {
 public:
  GpuCheck(const PlannedGpu& gpu, const GpuModel& model) : gpu_(gpu), model_(model) {}

  std::vector<Problem> Run() {
    if (gpu_.mig) {
      CheckCut();
    } else {
      CheckWhole();
    }
    return std::move(problems_);
  }

 private:
  void Add(SourceLine line, std::string message) {
    problems_.push_back({line, std::move(message)});
  }

  void CheckWhole() {
    if (!gpu_.instances.empty()) {
      Add(gpu_.line, fmt::format("{} is to stay whole, yet has instances", Describe(gpu_.gpu)));
    }
    CheckRuns(gpu_.runs, kMpsClients, "a whole GPU");
  }

  void CheckCut() {
    if (!gpu_.runs.empty()) {
      Add(gpu_.line, fmt::format("{} is cut into instances, yet runs something outside of them",
                                 Describe(gpu_.gpu)));
    }
    FindProfiles();
    CheckStarts();
    CheckOverlaps();
    CheckCounts();
    // What has no place cannot have engines either: the first reason is enough.
    if (problems_.empty()) CheckPlaces();
    if (problems_.empty()) CheckEngines();
    for (const Known& known : known_) {
      const int clients =
          std::max(1, kMpsClients * known.profile->compute_slices / model_.compute_slices);
      CheckRuns(known.instance->runs, clients, known.profile->name);
    }
  }

  void FindProfiles() {
    for (const PlannedInstance& instance : gpu_.instances) {
      const auto found = std::ranges::find(model_.profiles, instance.profile, &MigProfile::name);
      if (found != model_.profiles.end()) {
        known_.push_back({&instance, &*found});
      } else {
        Add(instance.line, UnknownProfile(model_, instance.profile));
      }
    }
  }

  void CheckStarts() {
    for (const auto& [instance, profile] : known_) {
      if (!instance->start) continue;
      if (std::ranges::find(profile->starts, *instance->start) != profile->starts.end()) continue;
      Add(instance->line,
          fmt::format("{} may not begin at slice {} of {}, only at {}", profile->name,
                      *instance->start, model_.name, fmt::join(profile->starts, ", ")));
    }
  }

  void CheckOverlaps() {
    for (std::size_t i = 0; i < known_.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        const auto& [later, later_profile] = known_[i];
        const auto& [earlier, earlier_profile] = known_[j];
        if (!later->start || !earlier->start) continue;
        if (!Overlap(SpanAt(*later_profile, *later->start),
                     SpanAt(*earlier_profile, *earlier->start))) {
          continue;
        }
        Add(later->line, fmt::format("{} at {} overlaps {} at {}, which takes {} slices",
                                     later_profile->name, *later->start, earlier_profile->name,
                                     *earlier->start, earlier_profile->memory_slices));
      }
    }
  }

  void CheckCounts() {
    std::map<const MigProfile*, int> counts;
    for (const auto& [instance, profile] : known_) {
      // Once a profile, at the first instance too many.
      if (++counts[profile] != profile->max_instances + 1) continue;
      const auto all = std::ranges::count(known_, profile, &Known::profile);
      Add(instance->line, fmt::format("{} instances of {}; {} can have {}", all, profile->name,
                                      model_.name, profile->max_instances));
    }
  }

  void CheckEngines() {
    const std::optional<gpu::Engines>& all = model_.engines;
    if (!all) return;
    CheckEngine("video decoders", all->decoders, &gpu::Engines::decoders);
    CheckEngine("video encoders", all->encoders, &gpu::Engines::encoders);
    CheckEngine("JPEG engines", all->jpeg, &gpu::Engines::jpeg);
    CheckEngine("optical flow engines", all->ofa, &gpu::Engines::ofa);
  }

  void CheckEngine(std::string_view name, int there, int gpu::Engines::* engine) {
    int wanted = 0;
    for (const auto& [instance, profile] : known_) {
      const int before = wanted;
      if (profile->engines) wanted += *profile->engines.*engine;
      if (before <= there && wanted > there) {
        Add(instance->line, fmt::format("with this {} the instances need over {} {}, which is all "
                                        "that {} has",
                                        profile->name, there, name, model_.name));
      }
    }
  }

  void CheckPlaces() {
    std::vector<Span> taken;
    std::vector<const Known*> floating;
    for (const Known& known : known_) {
      if (known.instance->start) {
        taken.push_back(SpanAt(*known.profile, *known.instance->start));
      } else {
        floating.push_back(&known);
      }
    }
    if (floating.empty()) return;
    // Large ones first: they fail soonest. Otherwise in the plan's order.
    std::ranges::sort(floating, {},
                      [](const Known* k) { return std::pair(-k->profile->memory_slices, k); });
    if (CanPlace(floating, 0, taken)) return;
    std::vector<std::string_view> names;
    for (const Known& known : known_) {
      if (!known.instance->start) names.push_back(known.profile->name);
    }
    Add(floating.front()->instance->line,
        fmt::format("{} has no room for {} without a start{}", model_.name, fmt::join(names, ", "),
                    taken.empty() ? "" : ", beside the instances that have one"));
  }

  // True when floating[next..] find places that keep clear of `taken`. Tries all.
  static bool CanPlace(const std::vector<const Known*>& floating, std::size_t next,
                       std::vector<Span>& taken) {
    if (next == floating.size()) return true;
    const MigProfile& profile = *floating[next]->profile;
    for (const int start : profile.starts) {
      const Span place = SpanAt(profile, start);
      if (std::ranges::any_of(taken, [&](Span other) { return Overlap(place, other); })) continue;
      taken.push_back(place);
      const bool placed = CanPlace(floating, next + 1, taken);
      taken.pop_back();
      if (placed) return true;
    }
    return false;
  }

  void CheckRuns(const std::vector<Assignment>& runs, int clients, std::string_view partition) {
    long long processes = 0;
    long long share = 0;
    for (const Assignment& run : runs) {
      if (!IsName(run.name)) Add(run.line, fmt::format("{} is not a name", Quoted(run.name)));
      CheckNumbers(run);
      const long long processes_before = std::exchange(processes, processes + run.processes);
      if (processes_before <= clients && processes > clients) {
        Add(run.line, fmt::format("with {} {} has {} processes; MPS serves at most {} there",
                                  run.name, partition, processes, clients));
      }
      if (!run.mps_share) continue;
      const long long added = static_cast<long long>(run.processes) * *run.mps_share;
      const long long share_before = std::exchange(share, share + added);
      if (share_before <= 100 && share > 100) {
        Add(run.line,
            fmt::format("with {} the mps_share of all processes on {} adds up to {}%; at "
                        "most 100% can be had ({} x {}% are from {})",
                        run.name, partition, share, run.processes, *run.mps_share, run.name));
      }
    }
  }

  void CheckNumbers(const Assignment& run) {
    if (run.processes < 1) {
      Add(run.line, fmt::format("{} has {} processes; at least 1", run.name, run.processes));
    }
    if (run.batch && *run.batch < 1) {
      Add(run.line, fmt::format("{} has batch {}; at least 1", run.name, *run.batch));
    }
    if (run.batch && run.kind == Assignment::Kind::kJob) {
      Add(run.line, fmt::format("{} is a job; only models have a batch", run.name));
    }
    if (run.mps_share && (*run.mps_share < 1 || *run.mps_share > 100)) {
      Add(run.line, fmt::format("{} has mps_share {}; 1 to 100", run.name, *run.mps_share));
    }
  }

  const PlannedGpu& gpu_;
  const GpuModel& model_;
  std::vector<Known> known_;
  std::vector<Problem> problems_;
};

}  // namespace

std::string Describe(const Problem& problem, std::string_view file_name) {
  if (problem.line.number == 0) return fmt::format("{}: {}", file_name, problem.message);
  return fmt::format("{}:{}: {}", file_name, problem.line.number, problem.message);
}

std::vector<Problem> Validate(const Plan& plan) {
  std::multimap<int, Problem> by_line;  // Keeps the order of problems on one line.
  const auto add = [&](Problem problem) {
    by_line.emplace(problem.line.number, std::move(problem));
  };
  std::set<GpuRef> seen;
  for (const PlannedGpu& gpu : plan.gpus) {
    if (!seen.insert(gpu.gpu).second) {
      add({gpu.line, Describe(gpu.gpu) + " appears twice"});
    }
    if (const int* index = std::get_if<int>(&gpu.gpu); index != nullptr && *index < 0) {
      add({gpu.line, fmt::format("{}: an index is 0 or more", Describe(gpu.gpu))});
    }
    const auto model = gpu::FindGpuModel(gpu.kind);
    if (!model) {
      add({gpu.line, model.error().message});
      continue;
    }
    for (Problem& problem : ValidateGpu(gpu, **model)) add(std::move(problem));
  }
  std::vector<Problem> problems;
  for (auto& [line, problem] : by_line) problems.push_back(std::move(problem));
  return problems;
}

std::vector<Problem> ValidateGpu(const PlannedGpu& gpu, const GpuModel& model) {
  return GpuCheck(gpu, model).Run();
}

}  // namespace divvy::plan
