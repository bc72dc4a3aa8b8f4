#include "workload/jobs_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "base/number.h"
#include "base/text_safety.h"
#include "base/yaml_reader.h"
#include "base/yaml_tree.h"
#include "gpu/catalogue.h"
#include "workload/model_families.h"

namespace divvy::workload {
namespace {

// Beyond these a number is a slip, whatever the hardware.
constexpr RealRange kGibibytes{0, 10'000};
constexpr RealRange kGpuGibibytes{0.1, 10'000};
constexpr RealRange kJobWatts{0, 10'000};
constexpr RealRange kGpuWatts{1, 10'000};
constexpr RealRange kShareOfTime{0, 1};
constexpr RealRange kStepsPerSecond{1e-9, 1e9};
constexpr RealRange kGpuSpeeds{0.001, 1000};
constexpr IntRange kBatchSizes{1, 100'000'000};
constexpr IntRange kCopies{1, 64};
constexpr TimeRange kRunTimes{Duration(0), std::chrono::hours(1000)};
constexpr std::size_t kMostJobs = 64;
constexpr std::size_t kMostWords = 1000;

constexpr std::array<std::string_view, 3> kFileKeys = {"gpu", "jobs", "run"};
constexpr std::array<std::string_view, 3> kGpuKindKeys = {"kind", "memory", "power"};
constexpr std::array<std::string_view, 2> kRunKeys = {"warmup", "limit"};
constexpr std::array<std::string_view, 11> kCollocatedKeys = {
    "name",    "command", "class",    "directory", "environment", "copies",
    "profile", "ready",   "progress", "latency",   "waits"};
constexpr std::array<std::string_view, 2> kClassWords = {"latency", "batch"};
constexpr std::array<std::string_view, 11> kSoloKeys = {
    "memory", "utilisation", "sm_activity", "bandwidth", "power", "speed",
    "batch",  "speeds",      "elsewhere",   "demand",    "family"};
constexpr std::array<std::string_view, 2> kElsewhereKeys = {"gpu_speed", "speed"};

std::optional<double> CatalogueMemory(const gpu::GpuModel& model) {
  std::optional<int> most;
  for (const gpu::MigProfile& profile : model.profiles) {
    if (profile.memory_mib > most) most = profile.memory_mib;
  }
  if (!most) return std::nullopt;
  return *most / 1024.0;
}

void ReadGpuKind(YamlReader& reader, const YamlNode& node, JobsFile& file) {
  if (!reader.ExpectMapping(node, "gpu", kGpuKindKeys)) return;
  if (const YamlNode* memory = node.Find("memory")) {
    file.gpu_memory_gib = reader.Real("memory", *memory, kGpuGibibytes);
  }
  if (const YamlNode* power = node.Find("power")) {
    file.gpu_power_w = reader.Real("power", *power, kGpuWatts);
  }
  const YamlNode* const kind = reader.Require(node, "kind", "gpu");
  if (kind == nullptr) return;
  file.gpu = reader.Name("kind", *kind);
  const auto model = gpu::FindGpuModel(file.gpu);
  if (model) {
    file.gpu = (*model)->name;
    if (!file.gpu_memory_gib) file.gpu_memory_gib = CatalogueMemory(**model);
    return;
  }
  // A GPU without MIG is none of the catalogue's; its memory is all that is missing.
  if (file.gpu_memory_gib && model.error().code == ErrorCode::kNotFound) return;
  reader.Complain(kind->line, fmt::format("kind: {}; for another kind give its 'memory' in GiB",
                                          model.error().message));
}

// A list of words, or a line for the shell.
void ReadCommand(YamlReader& reader, const YamlNode& node, CollocatedJob& job) {
  if (node.kind != YamlNode::Kind::kSequence) {
    job.command = {reader.Path("command", node)};
    job.shell = true;
    return;
  }
  const auto words = reader.List("command", node);
  if (words.empty() || words.size() > kMostWords) {
    reader.Complain(node.line, fmt::format("command: {} words; 1 to {}", words.size(), kMostWords));
  }
  for (const YamlNode& word : words) job.command.push_back(reader.Path("command", word));
}

void ReadEnvironment(YamlReader& reader, const YamlNode& node, CollocatedJob& job) {
  for (const YamlNode& item : reader.List("environment", node)) {
    std::string setting = reader.Path("environment", item);
    const std::size_t equals = setting.find('=');
    if (reader.ok() && (equals == 0 || equals == std::string::npos)) {
      reader.Complain(item.line, fmt::format("environment: {} is not NAME=VALUE", Quoted(setting)));
    }
    job.environment.push_back(std::move(setting));
  }
}

void ReadSpeeds(YamlReader& reader, const YamlNode& node, SoloProfile& profile) {
  if (node.kind != YamlNode::Kind::kMapping || node.keys.size() < 2) {
    reader.Complain(node.line,
                    "speeds: is a mapping of two batch sizes or more to steps a second, such as "
                    "{32: 20.1, 64: 12.5}");
    return;
  }
  for (std::size_t i = 0; i < node.keys.size(); ++i) {
    const auto size = ParseInteger(node.keys[i]);
    if (!size || *size < kBatchSizes.least || *size > kBatchSizes.most) {
      reader.Complain(node.key_lines[i], fmt::format("speeds: {} is not a batch size, {}",
                                                     Quoted(node.keys[i]), Describe(kBatchSizes)));
      return;
    }
    profile.speeds.push_back(
        {*size, reader.Real(fmt::format("speeds {}", *size), node.items[i], kStepsPerSecond)});
  }
  std::ranges::sort(profile.speeds, {}, &BatchSpeed::batch);
}

OtherGpuSpeed ReadElsewhere(YamlReader& reader, const YamlNode& node) {
  OtherGpuSpeed other{1, 1};
  if (!reader.ExpectMapping(node, "elsewhere", kElsewhereKeys)) return other;
  if (const YamlNode* gpu_speed = reader.Require(node, "gpu_speed", "elsewhere")) {
    other.gpu_speed = reader.Real("gpu_speed", *gpu_speed, kGpuSpeeds);
    if (other.gpu_speed == 1) {
      reader.Complain(gpu_speed->line,
                      "gpu_speed: 1 is a GPU as fast as this one, which tells nothing");
    }
  }
  if (const YamlNode* speed = reader.Require(node, "speed", "elsewhere")) {
    other.steps_per_second = reader.Real("speed", *speed, kStepsPerSecond);
  }
  return other;
}

// What must be known for `speeds` and `elsewhere` to say anything.
void CheckScaling(YamlReader& reader, const YamlNode& node, const SoloProfile& profile) {
  if (profile.elsewhere && !profile.steps_per_second) {
    reader.Complain(node.line, "elsewhere: needs 'speed', the steps a second on this GPU");
  }
  if (profile.speeds.empty()) return;
  if (!profile.batch) {
    reader.Complain(node.line, "speeds: needs 'batch', the one that the job runs with");
  } else if (std::ranges::find(profile.speeds, *profile.batch, &BatchSpeed::batch) ==
             profile.speeds.end()) {
    reader.Complain(node.line,
                    fmt::format("speeds: has none for the job's own batch, {}", *profile.batch));
  }
}

SoloProfile ReadSolo(YamlReader& reader, const YamlNode& node) {
  SoloProfile profile;
  if (!reader.ExpectMapping(node, "a profile", kSoloKeys)) return profile;
  const auto real = [&](std::string_view key, RealRange range) -> std::optional<double> {
    const YamlNode* const value = node.Find(key);
    if (value == nullptr) return std::nullopt;
    return reader.Real(key, *value, range);
  };
  profile.memory_gib = real("memory", kGibibytes);
  profile.utilisation = real("utilisation", kShareOfTime);
  profile.sm_activity = real("sm_activity", kShareOfTime);
  profile.bandwidth = real("bandwidth", kShareOfTime);
  profile.power_w = real("power", kJobWatts);
  profile.steps_per_second = real("speed", kStepsPerSecond);
  profile.demand = real("demand", kShareOfTime);
  if (const YamlNode* batch = node.Find("batch")) {
    profile.batch = reader.Integer("batch", *batch, kBatchSizes);
  }
  if (const YamlNode* speeds = node.Find("speeds")) ReadSpeeds(reader, *speeds, profile);
  if (const YamlNode* elsewhere = node.Find("elsewhere")) {
    profile.elsewhere = ReadElsewhere(reader, *elsewhere);
  }
  if (const YamlNode* family = node.Find("family")) {
    profile.family = reader.Choice("family", *family, KnownFamilies());
  }
  CheckScaling(reader, node, profile);
  return profile;
}

// What tells of the job's progress. That patterns are patterns is seen where they are used.
void ReadOutput(YamlReader& reader, const YamlNode& node, CollocatedJob& job) {
  if (const YamlNode* ready = node.Find("ready")) job.ready = reader.Path("ready", *ready);
  if (const YamlNode* steps = node.Find("progress")) job.progress = reader.Path("progress", *steps);
  if (const YamlNode* ms = node.Find("latency")) job.latency = reader.Path("latency", *ms);
  const YamlNode* const waits = node.Find("waits");
  if (waits == nullptr) return;
  job.waits = reader.Boolean("waits", *waits);
  if (job.waits && job.ready.empty()) {
    reader.Complain(waits->line, "waits: needs 'ready', by which it is known when to go on");
  }
}

void ReadCollocated(YamlReader& reader, const YamlNode& node, std::vector<CollocatedJob>& jobs) {
  CollocatedJob job;
  job.line = node.line;
  int copies = 1;
  if (!reader.ExpectMapping(node, "a job", kCollocatedKeys)) return;
  if (const YamlNode* name = reader.Require(node, "name", "a job")) {
    job.name = reader.Name("name", *name);
  }
  if (const YamlNode* command = node.Find("command")) ReadCommand(reader, *command, job);
  if (const YamlNode* word = node.Find("class")) {
    const bool latency = reader.Choice("class", *word, kClassWords) == "latency";
    job.job_class = latency ? JobClass::kLatency : JobClass::kBatch;
  }
  if (const YamlNode* directory = node.Find("directory")) {
    job.directory = reader.Path("directory", *directory);
  }
  if (const YamlNode* environment = node.Find("environment")) {
    ReadEnvironment(reader, *environment, job);
  }
  if (const YamlNode* count = node.Find("copies")) {
    copies = reader.Integer("copies", *count, kCopies);
  }
  if (const YamlNode* profile = node.Find("profile")) job.profile = ReadSolo(reader, *profile);
  ReadOutput(reader, node, job);
  for (int copy = 1; copy <= copies && reader.ok(); ++copy) {
    jobs.push_back(job);
    if (copies > 1) jobs.back().name = fmt::format("{}-{}", job.name, copy);
  }
}

void ReadCollocatedJobs(YamlReader& reader, const YamlNode& node, JobsFile& file) {
  for (const YamlNode& item : reader.List("jobs", node)) {
    if (!reader.ok()) return;
    ReadCollocated(reader, item, file.jobs);
    if (file.jobs.size() > kMostJobs) {
      reader.Complain(item.line, fmt::format("jobs: more than {} with this one", kMostJobs));
    }
  }
  if (reader.ok() && file.jobs.empty()) reader.Complain(node.line, "jobs: there are none");
  std::map<std::string_view, int> lines;
  for (const CollocatedJob& job : file.jobs) {
    const auto [first, is_new] = lines.emplace(job.name, job.line);
    if (!is_new) {
      reader.Complain(job.line, fmt::format("name: {} is a job's on line {} already",
                                            Quoted(job.name), first->second));
    }
  }
}

CollocationRun ReadRun(YamlReader& reader, const YamlNode& node) {
  CollocationRun run;
  if (!reader.ExpectMapping(node, "run", kRunKeys)) return run;
  if (const YamlNode* warmup = node.Find("warmup")) {
    run.warmup = reader.Time("warmup", *warmup, kRunTimes);
  }
  if (const YamlNode* limit = node.Find("limit")) {
    run.limit = reader.Time("limit", *limit, kRunTimes);
  }
  if (reader.ok() && run.limit <= run.warmup) {
    reader.Complain(node.line,
                    fmt::format("limit: {} is not longer than the warm-up, {}",
                                divvy::Describe(run.limit), divvy::Describe(run.warmup)));
  }
  return run;
}

}  // namespace

Result<JobsFile> ParseJobs(std::string_view text, std::string_view file_name) {
  constexpr std::string_view kWhat = "a jobs file";
  const auto root = ParseYaml(text, file_name);
  if (!root) return Fail(root.error());
  if (root->kind == YamlNode::Kind::kNull) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: the file is empty; a jobs file has the keys 'gpu' and 'jobs'", file_name));
  }
  YamlReader reader(file_name);
  JobsFile file;
  if (reader.ExpectMapping(*root, kWhat, kFileKeys)) {
    if (const YamlNode* gpu = reader.Require(*root, "gpu", kWhat)) ReadGpuKind(reader, *gpu, file);
    if (const YamlNode* jobs = reader.Require(*root, "jobs", kWhat)) {
      ReadCollocatedJobs(reader, *jobs, file);
    }
    if (const YamlNode* run = root->Find("run")) file.run = ReadRun(reader, *run);
  }
  if (!reader.ok()) return Fail(reader.error());
  return file;
}

}  // namespace divvy::workload
