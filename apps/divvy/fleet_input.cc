#include "fleet_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <variant>

#include "base/spelling.h"
#include "base/text_safety.h"
#include "gpu/catalogue.h"
#include "table.h"
#include "text_file.h"
#include "workload/partition_size.h"

namespace divvy::app {
namespace {

using workload::BatchDistribution;
using workload::FileRef;
using workload::FleetModel;
using workload::ModelProfile;
using workload::ModelTrace;
using workload::ProfileFile;
using workload::Trace;
using workload::TrainingFile;
using workload::TrainingSpeeds;

// What a model sends, in the forms of planner and simulator.
struct Demand {
  double rate;
  BatchDistribution batches;
  decltype(sim::Source::arrivals) arrivals;
};

// The least and the greatest rate that a load may come to.
std::pair<double, double> ExtremesOf(const workload::Load& load) {
  const double least = load.rate * (1 - load.diurnal.amplitude);
  const double most = load.rate * (1 + load.diurnal.amplitude);
  const std::vector<double>& factors = load.shape.factors;
  if (factors.empty()) return {least, most};
  const auto [low, high] = std::ranges::minmax(factors);
  return {least * low, most * high};
}

// Reads the files that a fleet names, each once, and fills the LoadedFleet.
class Loader {
 public:
  Loader(const std::string& fleet_path, LoadedFleet& loaded)
      : name_(NameOfInput(fleet_path)),
        folder_(fleet_path == "-" ? std::filesystem::path()
                                  : std::filesystem::path(fleet_path).parent_path()),
        loaded_(loaded) {}

  [[nodiscard]] Result<void> Load();

 private:
  [[nodiscard]] tl::unexpected<Error> FailAt(int line, std::string_view what) const {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("{}:{}: {}", name_, line, what));
  }

  // As a message names it, and as it is opened.
  [[nodiscard]] std::string PathOf(const FileRef& file) const {
    return (folder_ / file.path).lexically_normal().string();
  }

  [[nodiscard]] Result<std::string> Read(const FileRef& file) const;
  [[nodiscard]] Result<const ProfileFile*> ProfilesIn(const FileRef& file);
  [[nodiscard]] Result<const Trace*> TraceIn(const FileRef& file, int tokens_per_item);
  [[nodiscard]] Result<const ModelTrace*> TraceOf(const FleetModel& model, const FileRef& file,
                                                  int tokens_per_item);
  [[nodiscard]] Result<const TrainingFile*> TrainingIn(const FileRef& file);

  // Of several with this model's name: the one of this very kind of GPU, else one that
  // does not say, else any. `file` is where they stand.
  template <typename Measured>
  [[nodiscard]] Result<const Measured*> Pick(const std::vector<Measured>& measured,
                                             const FileRef& file, std::string_view model) const;

  [[nodiscard]] Result<const ModelProfile*> ProfileOf(const FleetModel& model);
  [[nodiscard]] Result<const TrainingSpeeds*> TrainingOf(const FleetModel& model);
  [[nodiscard]] Result<Demand> DemandOf(const FleetModel& model);
  [[nodiscard]] Result<Demand> DemandOf(const FleetModel& model, const workload::RecipeLoad& load);
  [[nodiscard]] Result<Demand> DemandOf(const FleetModel& model, const workload::TraceLoad& load);
  [[nodiscard]] Result<void> CheckMeasured(const FleetModel& model, const ModelProfile& profile,
                                           const BatchDistribution& batches) const;
  [[nodiscard]] Result<void> AddModel(const FleetModel& model);
  [[nodiscard]] Result<void> AddJob(const workload::FleetJob& job);

  // Remembers where figures come from; `what` is "profiles".
  template <typename Measured>
  void Note(const FleetModel& model, const std::string& what, const Measured& measured);
  void WriteNotes();

  const std::string name_;
  const std::filesystem::path folder_;
  LoadedFleet& loaded_;
  std::map<std::string, const ProfileFile*> profiles_;          // By path.
  std::map<std::pair<std::string, int>, const Trace*> traces_;  // And tokens an item.
  std::map<std::string, const TrainingFile*> training_;         // By path.
  // Models, by what was measured and what to say of it.
  std::map<std::string, std::map<std::string, std::vector<std::string_view>>> by_source_;
};

Result<std::string> Loader::Read(const FileRef& file) const {
  if (file.path == "-") {
    return FailAt(file.line, "'-', standard input, is for the fleet alone; name a file");
  }
  auto text = ReadText(PathOf(file));
  if (text) return text;
  return Fail(text.error().code, fmt::format("{}:{}: {}", name_, file.line, text.error().message));
}

Result<const ProfileFile*> Loader::ProfilesIn(const FileRef& file) {
  const std::string path = PathOf(file);
  if (const auto known = profiles_.find(path); known != profiles_.end()) return known->second;
  const auto text = Read(file);
  if (!text) return Fail(text.error());
  auto parsed = workload::ParseProfiles(*text, path);
  if (!parsed) return Fail(parsed.error());
  if (const std::size_t count = parsed->findings.size(); count > 0) {
    loaded_.notes.push_back(fmt::format("{} has {} odd {}; `divvy profile check` lists them", path,
                                        count, count == 1 ? "row" : "rows"));
  }
  return profiles_[path] = &loaded_.profile_files.emplace_back(std::move(*parsed));
}

Result<const Trace*> Loader::TraceIn(const FileRef& file, int tokens_per_item) {
  const std::pair key(PathOf(file), tokens_per_item);
  if (const auto known = traces_.find(key); known != traces_.end()) return known->second;
  const auto text = Read(file);
  if (!text) return Fail(text.error());
  auto parsed = workload::ParseTrace(*text, key.first, {.tokens_per_item = tokens_per_item});
  if (!parsed) return Fail(parsed.error());
  return traces_[key] = &loaded_.traces.emplace_back(std::move(*parsed));
}

Result<const TrainingFile*> Loader::TrainingIn(const FileRef& file) {
  const std::string path = PathOf(file);
  if (const auto known = training_.find(path); known != training_.end()) return known->second;
  const auto text = Read(file);
  if (!text) return Fail(text.error());
  auto parsed = workload::ParseTraining(*text, path);
  if (!parsed) return Fail(parsed.error());
  return training_[path] = &loaded_.training_files.emplace_back(std::move(*parsed));
}

// The arrivals under the model's own name, or all of a trace that names none.
Result<const ModelTrace*> Loader::TraceOf(const FleetModel& model, const FileRef& file,
                                          int tokens_per_item) {
  const auto trace = TraceIn(file, tokens_per_item);
  if (!trace) return Fail(trace.error());
  std::vector<std::string_view> names;
  for (const ModelTrace& entry : (*trace)->models) {
    if (entry.model.empty() || entry.model == model.name) return &entry;
    names.push_back(entry.model);
  }
  return FailAt(file.line, fmt::format("{} has no arrivals of model {}{}", PathOf(file),
                                       Quoted(model.name), DidYouMean(model.name, names)));
}

template <typename Measured>
Result<const Measured*> Loader::Pick(const std::vector<Measured>& measured, const FileRef& file,
                                     std::string_view model) const {
  const Measured* best = nullptr;
  int best_match = -1;
  std::vector<std::string_view> names;
  for (const Measured& entry : measured) {
    names.push_back(entry.model);
    if (entry.model != model) continue;
    const int match = entry.gpu == loaded_.problem.gpu->name ? 2 : entry.gpu.empty() ? 1 : 0;
    if (match <= best_match) continue;
    best = &entry;
    best_match = match;
  }
  if (best != nullptr) return best;
  std::string hint = DidYouMean(model, names);
  if (hint.empty() && !names.empty() && names.size() <= 12) hint = "; it has " + OneOf(names);
  return FailAt(file.line, fmt::format("{} has no model {}{}", PathOf(file), Quoted(model), hint));
}

Result<const ModelProfile*> Loader::ProfileOf(const FleetModel& model) {
  const auto file = ProfilesIn(model.profile);
  if (!file) return Fail(file.error());
  return Pick((*file)->models, model.profile, model.profile_model);
}

// Null when the model does not learn.
Result<const TrainingSpeeds*> Loader::TrainingOf(const FleetModel& model) {
  if (!model.learning) return nullptr;
  const FileRef& ref = model.learning->speed;
  const auto file = TrainingIn(ref);
  if (!file) return Fail(file.error());
  auto speeds = Pick((*file)->models, ref, model.learning->speed_model);
  if (!speeds) return Fail(speeds.error());
  const gpu::GpuModel& gpu = *loaded_.problem.gpu;
  const auto all = gpu.Select(gpu::ProfileSet::kAll);
  const bool somewhere = std::ranges::any_of(all, [&](gpu::ProfileIndex index) {
    return (*speeds)->SamplesPerSecond(gpu, index).has_value();
  });
  if (!somewhere) {
    return FailAt(ref.line, fmt::format("{} has no speed of {} that speaks for an instance of {}",
                                        PathOf(ref), Quoted((*speeds)->model), gpu.name));
  }
  Note(model, "training speeds", **speeds);
  return speeds;
}

Result<Demand> Loader::DemandOf(const FleetModel& model, const workload::RecipeLoad& recipe) {
  workload::Load load = recipe.load;
  if (recipe.batches_from) {
    const auto trace = TraceOf(model, *recipe.batches_from, workload::TokenScale{}.tokens_per_item);
    if (!trace) return Fail(trace.error());
    auto batches = workload::BatchesOf(**trace);
    if (!batches) return FailAt(recipe.batches_from->line, batches.error().message);
    load.batches = std::move(*batches);
  }
  const double mean = MeanRate(load);
  if (load.diurnal.amplitude > 0 || !load.shape.factors.empty()) {
    const auto [least, most] = ExtremesOf(load);
    loaded_.notes.push_back(
        fmt::format("{}: its rate swings from {}/s to {}/s; it is planned for the mean, {}/s",
                    model.name, FourDigits(least), FourDigits(most), FourDigits(mean)));
  }
  return Demand{mean, load.batches, load};
}

Result<Demand> Loader::DemandOf(const FleetModel& model, const workload::TraceLoad& load) {
  const auto trace = TraceOf(model, load.file, load.tokens_per_item);
  if (!trace) return Fail(trace.error());
  const auto whole = TraceIn(load.file, load.tokens_per_item);
  if (!whole) return Fail(whole.error());
  const double seconds = Seconds((*whole)->length);
  if (seconds <= 0) {
    return FailAt(load.file.line, fmt::format("{} ends where it begins, so it has no rate; it "
                                              "needs arrivals at two times at least",
                                              PathOf(load.file)));
  }
  const std::vector<workload::Arrival>& arrivals = (*trace)->arrivals;
  auto batches = workload::BatchesOf(**trace);
  if (!batches) return FailAt(load.file.line, batches.error().message);
  const double rate = static_cast<double>(arrivals.size()) / seconds;
  loaded_.notes.push_back(fmt::format("{}: planned for the mean rate of {}, {}/s over {} s",
                                      model.name, PathOf(load.file), FourDigits(rate),
                                      FourDigits(seconds)));
  return Demand{rate, std::move(*batches), std::span<const workload::Arrival>(arrivals)};
}

Result<Demand> Loader::DemandOf(const FleetModel& model) {
  return std::visit([&](const auto& load) { return DemandOf(model, load); }, model.load);
}

// That its largest requests were measured somewhere on this kind of GPU: otherwise
// no SLO and no number of GPUs would help.
Result<void> Loader::CheckMeasured(const FleetModel& model, const ModelProfile& profile,
                                   const BatchDistribution& batches) const {
  const gpu::GpuModel& gpu = *loaded_.problem.gpu;
  int largest = 0;
  std::set<std::string> sizes;
  for (const workload::ProfileCurve& curve : profile.curves) {
    sizes.insert(Describe(curve.size));
    const bool speaks = std::ranges::any_of(gpu.profiles, [&](const gpu::MigProfile& instance) {
      return MatchQuality(curve.size, instance) > 0;
    });
    if (speaks) largest = std::max(largest, curve.largest_batch());
  }
  if (largest == 0) {
    return FailAt(
        model.profile.line,
        fmt::format("{} has {} on {} only, and {} has no such instance", PathOf(model.profile),
                    Quoted(profile.model), fmt::join(sizes, ", "), gpu.name));
  }
  if (batches.largest() <= largest) return {};
  return FailAt(model.line,
                fmt::format("{}: requests have up to {} items ({}), but {} was measured in "
                            "batches of up to {} only ({}); Divvy does not extrapolate",
                            Quoted(model.name), batches.largest(), batches.description(),
                            Quoted(profile.model), largest, PathOf(model.profile)));
}

template <typename Measured>
void Loader::Note(const FleetModel& model, const std::string& what, const Measured& measured) {
  const gpu::GpuModel& gpu = *loaded_.problem.gpu;
  std::string source = measured.source.empty() ? "of unknown source" : measured.source;
  if (!measured.gpu.empty() && measured.gpu != gpu.name) {
    source += fmt::format("; measured on {}, not on {}", measured.gpu, gpu.name);
  }
  by_source_[what][source].push_back(model.name);
}

Result<void> Loader::AddModel(const FleetModel& model) {
  const auto profile = ProfileOf(model);
  if (!profile) return Fail(profile.error());
  auto demand = DemandOf(model);
  if (!demand) return Fail(demand.error());
  if (auto measured = CheckMeasured(model, **profile, demand->batches); !measured) return measured;
  Note(model, "profiles", **profile);
  const auto training = TrainingOf(model);
  if (!training) return Fail(training.error());
  const auto id = static_cast<serving::ModelId>(loaded_.served.size());
  loaded_.problem.models.push_back({.name = model.name,
                                    .profile = *profile,
                                    .slo = model.slo,
                                    .rate = demand->rate,
                                    .batches = std::move(demand->batches)});
  loaded_.served.push_back({model.name, *profile});
  loaded_.training.push_back(*training);
  loaded_.sources.push_back({.model = id,
                             .slo = model.slo,
                             .priority = model.priority,
                             .arrivals = std::move(demand->arrivals)});
  return {};
}

// A size alone means the plain profile of that size, not one with extras.
Result<void> Loader::AddJob(const workload::FleetJob& job) {
  const gpu::GpuModel& gpu = *loaded_.problem.gpu;
  const auto size = workload::ParsePartitionSize(job.instance);
  if (!size) return FailAt(job.line, size.error().message);
  std::optional<gpu::ProfileIndex> found = gpu.FindProfile(job.instance);
  for (const gpu::ProfileIndex index : gpu.Select(gpu::ProfileSet::kBase)) {
    if (!found && MatchQuality(*size, gpu.profile(index)) > 0) found = index;
  }
  if (!found) {
    return FailAt(job.line, fmt::format("{} has no instance {}", gpu.name, Quoted(job.instance)));
  }
  loaded_.problem.jobs.push_back({.name = job.name, .instance = *found, .count = job.count});
  return {};
}

void Loader::WriteNotes() {
  for (const auto& [what, sources] : by_source_) {
    for (const auto& [source, models] : sources) {
      const bool all = models.size() == loaded_.fleet.models.size() && models.size() > 1;
      loaded_.notes.push_back(
          fmt::format("{} of {}: {}", what,
                      all ? "all models" : fmt::format("{}", fmt::join(models, ", ")), source));
    }
  }
}

Result<void> Loader::Load() {
  const workload::Fleet& fleet = loaded_.fleet;
  const auto gpu = gpu::FindGpuModel(fleet.gpus.kind);
  if (!gpu) return FailAt(fleet.gpus.line, gpu.error().message);
  loaded_.problem.gpu = *gpu;
  loaded_.problem.gpus = fleet.gpus.count;
  loaded_.problem.rule = {.safety = fleet.policy.safety,
                          .batching_delay = fleet.policy.batching_delay};
  loaded_.problem.seed = fleet.policy.seed;
  for (const FleetModel& model : fleet.models) {
    if (auto added = AddModel(model); !added) return added;
  }
  for (const workload::FleetJob& job : fleet.jobs) {
    if (auto added = AddJob(job); !added) return added;
  }
  WriteNotes();
  return {};
}

}  // namespace

Result<std::unique_ptr<LoadedFleet>> LoadFleet(const std::string& path) {
  const auto text = ReadText(path);
  if (!text) return Fail(text.error());
  auto fleet = workload::ParseFleet(*text, NameOfInput(path));
  if (!fleet) return Fail(fleet.error());
  auto loaded = std::make_unique<LoadedFleet>();
  loaded->fleet = std::move(*fleet);
  if (auto filled = Loader(path, *loaded).Load(); !filled) return Fail(filled.error());
  return loaded;
}

}  // namespace divvy::app
