#include "workload/training_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "base/csv.h"
#include "base/text_safety.h"

namespace divvy::workload {
namespace {

constexpr std::string_view kWhat = "a training file";
constexpr std::array<std::string_view, 6> kColumns = {"model",      "size", "samples_per_s",
                                                      "memory_mib", "gpu",  "source"};

// Beyond these a number is a slip, whatever the hardware.
constexpr RealRange kSamplesPerSecond{1e-6, 1e12};
constexpr RealRange kMebibytes{0, 1e9};

struct Columns {
  explicit Columns(CsvReader& csv)
      : model(csv.Require("model", kWhat)),
        size(csv.Require("size", kWhat)),
        samples_per_s(csv.Require("samples_per_s", kWhat)),
        memory_mib(csv.Find("memory_mib")),
        gpu(csv.Find("gpu")),
        source(csv.Find("source")) {}

  std::size_t model, size, samples_per_s;
  std::optional<std::size_t> memory_mib, gpu, source;
};

// One model on one GPU, while it is read.
struct Draft {
  std::string source;
  int source_row = 0;  // Where it was first said.
  std::map<PartitionSize, TrainingSpeed> speeds;
};

using Drafts = std::map<std::pair<std::string, std::string>, Draft>;  // By model and GPU.

// A field that may be empty or missing, else a name.
std::string OptionalName(CsvReader& csv, std::optional<std::size_t> column) {
  return column && !csv.Field(*column).empty() ? csv.Name(*column) : std::string();
}

void ReadRow(CsvReader& csv, const Columns& columns, Drafts& drafts) {
  const std::string model = csv.Name(columns.model);
  auto size = ParsePartitionSize(csv.Field(columns.size));
  if (!size) csv.Complain(fmt::format("size: {}", size.error().message));
  const double speed = csv.Real(columns.samples_per_s, kSamplesPerSecond);
  const std::optional<double> memory = csv.OptionalReal(columns.memory_mib, kMebibytes);
  const std::string gpu = OptionalName(csv, columns.gpu);
  const std::string source = OptionalName(csv, columns.source);
  if (!csv.ok()) return;

  Draft& draft = drafts[{model, gpu}];
  if (draft.source_row == 0) {
    draft.source = source;
    draft.source_row = csv.line();
  }
  if (draft.source != source) {
    csv.Complain(fmt::format(
        "source: {} is another than {} on line {} for the same model; give one of the two another "
        "model name, or the same source",
        Quoted(source), Quoted(draft.source), draft.source_row));
  }
  const auto [first, is_new] = draft.speeds.emplace(
      *size,
      TrainingSpeed{
          .size = *size, .samples_per_second = speed, .memory_mib = memory, .row = csv.line()});
  if (!is_new) {
    csv.Complain(fmt::format("{} on {} stands on line {} already", Quoted(model), Describe(*size),
                             first->second.row));
  }
}

}  // namespace

const TrainingSpeed* TrainingSpeeds::Find(const gpu::MigProfile& profile) const {
  const TrainingSpeed* best = nullptr;
  int best_quality = 0;
  for (const TrainingSpeed& speed : speeds) {
    const int quality = MatchQuality(speed.size, profile);
    if (quality <= best_quality) continue;
    best = &speed;
    best_quality = quality;
  }
  return best;
}

std::optional<double> TrainingSpeeds::SamplesPerSecond(const gpu::GpuModel& gpu_model,
                                                       gpu::ProfileIndex profile) const {
  const gpu::MigProfile& instance = gpu_model.profile(profile);
  const TrainingSpeed* speed = Find(instance);
  if (speed == nullptr) return std::nullopt;
  if (speed->memory_mib && instance.memory_mib && *speed->memory_mib > *instance.memory_mib) {
    return std::nullopt;
  }
  return speed->samples_per_second;
}

const TrainingSpeeds* TrainingFile::Find(std::string_view model) const {
  const auto found = std::ranges::find(models, model, &TrainingSpeeds::model);
  return found == models.end() ? nullptr : &*found;
}

Result<TrainingFile> ParseTraining(std::string_view text, std::string_view file_name) {
  CsvReader csv(text, file_name);
  csv.RefuseOthers(kColumns, kWhat);
  const Columns columns(csv);
  Drafts drafts;
  while (csv.NextRow()) ReadRow(csv, columns, drafts);
  if (drafts.empty()) csv.Complain("the header is followed by no measurements");
  if (!csv.ok()) return Fail(csv.error());

  TrainingFile file;
  for (const auto& [key, draft] : drafts) {
    TrainingSpeeds& model = file.models.emplace_back(TrainingSpeeds{
        .model = key.first, .gpu = key.second, .source = draft.source, .speeds = {}});
    for (const auto& [size, speed] : draft.speeds) model.speeds.push_back(speed);
  }
  return file;
}

}  // namespace divvy::workload
