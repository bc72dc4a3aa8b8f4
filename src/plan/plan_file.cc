#include "plan/plan_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/text_safety.h"
#include "base/yaml_reader.h"
#include "base/yaml_tree.h"

namespace divvy::plan {
namespace {

constexpr int kVersion = 1;

// What no plan for real hardware passes: a number beyond is a slip, whatever the
// GPU. The limits of the GPU itself are Validate's.
constexpr IntRange kGpuIndices{0, 255};
constexpr IntRange kStarts{0, 31};
constexpr IntRange kCounts{1, 32};
constexpr IntRange kProcesses{1, 10'000};
constexpr IntRange kBatches{1, 1'000'000};
constexpr std::size_t kMaxInstances = 64;

constexpr std::array<std::string_view, 2> kPlanKeys = {"version", "gpus"};
constexpr std::array<std::string_view, 5> kGpuKeys = {"gpu", "kind", "mig", "instances", "runs"};
constexpr std::array<std::string_view, 4> kInstanceKeys = {"profile", "start", "count", "runs"};
constexpr std::array<std::string_view, 5> kRunKeys = {"model", "job", "processes", "batch",
                                                      "mps_share"};

bool IsGpuUuid(std::string_view text) {
  constexpr std::string_view kPrefix = "GPU-";
  constexpr std::size_t kLongest = 80;
  if (!text.starts_with(kPrefix) || text.size() == kPrefix.size() || text.size() > kLongest) {
    return false;
  }
  return std::ranges::all_of(
      text, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '-'; });
}

GpuRef ReadGpuRef(YamlReader& reader, const YamlNode& node) {
  if (node.kind == YamlNode::Kind::kScalar && IsGpuUuid(node.text)) return node.text;
  if (node.kind == YamlNode::Kind::kScalar && node.text.starts_with("MIG-")) {
    reader.Complain(node.line, fmt::format("gpu: {} is a MIG device; name the GPU it is cut from",
                                           Quoted(node.text)));
  }
  if (node.kind != YamlNode::Kind::kScalar || !ParseInteger(node.text)) {
    const std::string found =
        node.kind == YamlNode::Kind::kScalar ? Quoted(node.text) + " is neither" : "is";
    reader.Complain(node.line,
                    fmt::format("gpu: {} an index such as 0 {} a UUID such as GPU-5a3c0d6e-...",
                                found, found == "is" ? "or" : "nor"));
  }
  return reader.Integer("gpu", node, kGpuIndices);
}

Assignment ReadAssignment(YamlReader& reader, const YamlNode& node) {
  Assignment run{.kind = Assignment::Kind::kModel, .name = {}, .line = {node.line}};
  if (!reader.ExpectMapping(node, "an entry of runs", kRunKeys)) return run;
  const YamlNode* model = node.Find("model");
  const YamlNode* job = node.Find("job");
  if ((model == nullptr) == (job == nullptr)) {
    reader.Complain(node.line, model == nullptr
                                   ? "an entry of runs needs the key 'model' or the key 'job'"
                                   : "an entry of runs is a model or a job, not both");
    return run;
  }
  run.kind = model != nullptr ? Assignment::Kind::kModel : Assignment::Kind::kJob;
  run.name = model != nullptr ? reader.Name("model", *model) : reader.Name("job", *job);
  if (const YamlNode* processes = node.Find("processes")) {
    run.processes = reader.Integer("processes", *processes, kProcesses);
  }
  if (const YamlNode* batch = node.Find("batch")) {
    if (job != nullptr) {
      reader.Complain(batch->line,
                      fmt::format("batch: is for models; {} is a job", Quoted(run.name)));
    }
    run.batch = reader.Integer("batch", *batch, kBatches);
  }
  if (const YamlNode* share = node.Find("mps_share")) {
    run.mps_share = reader.Percentage("mps_share", *share);
  }
  return run;
}

std::vector<Assignment> ReadRuns(YamlReader& reader, const YamlNode& node) {
  std::vector<Assignment> runs;
  for (const YamlNode& item : reader.List("runs", node)) {
    runs.push_back(ReadAssignment(reader, item));
  }
  return runs;
}

// Appends what one entry of `instances` stands for: as many as its count.
void ReadInstances(YamlReader& reader, const YamlNode& node,
                   std::vector<PlannedInstance>& instances) {
  constexpr std::string_view kWhat = "an instance";
  if (!reader.ExpectMapping(node, kWhat, kInstanceKeys)) return;
  PlannedInstance instance{.profile = {}, .line = {node.line}};
  if (const YamlNode* profile = reader.Require(node, "profile", kWhat)) {
    instance.profile = reader.Name("profile", *profile);
  }
  const YamlNode* start = node.Find("start");
  if (start != nullptr) instance.start = reader.Integer("start", *start, kStarts);
  int count = 1;
  if (const YamlNode* node_count = node.Find("count")) {
    count = reader.Integer("count", *node_count, kCounts);
    if (start != nullptr) {
      reader.Complain(node_count->line,
                      "count: is for instances without a start; one start has room for one");
    }
  }
  if (const YamlNode* runs = node.Find("runs")) instance.runs = ReadRuns(reader, *runs);
  if (instances.size() + static_cast<std::size_t>(count) > kMaxInstances) {
    reader.Complain(node.line, fmt::format("over {} instances on one GPU", kMaxInstances));
  }
  if (reader.ok()) instances.insert(instances.end(), static_cast<std::size_t>(count), instance);
}

PlannedGpu ReadGpu(YamlReader& reader, const YamlNode& node) {
  constexpr std::string_view kWhat = "a GPU";
  PlannedGpu gpu;
  gpu.line = {node.line};
  if (!reader.ExpectMapping(node, kWhat, kGpuKeys)) return gpu;
  if (const YamlNode* ref = reader.Require(node, "gpu", kWhat)) gpu.gpu = ReadGpuRef(reader, *ref);
  if (const YamlNode* kind = reader.Require(node, "kind", kWhat)) {
    gpu.kind = reader.Name("kind", *kind);
  }
  if (const YamlNode* mig = node.Find("mig")) gpu.mig = reader.Boolean("mig", *mig);
  const YamlNode* instances = node.Find("instances");
  const YamlNode* runs = node.Find("runs");
  if (gpu.mig && runs != nullptr) {
    reader.Complain(runs->line,
                    "runs: stands under an instance; here only with 'mig: false', a whole GPU");
  }
  if (!gpu.mig && instances != nullptr) {
    reader.Complain(instances->line,
                    "instances: contradicts 'mig: false', which keeps the GPU "
                    "whole; remove one of the two");
  }
  if (gpu.mig && instances == nullptr) {
    reader.Complain(node.line, "a GPU needs the key 'instances', or 'mig: false' to stay whole");
  }
  if (instances != nullptr) {
    for (const YamlNode& item : reader.List("instances", *instances)) {
      ReadInstances(reader, item, gpu.instances);
    }
  }
  if (runs != nullptr) gpu.runs = ReadRuns(reader, *runs);
  return gpu;
}

void RefuseRepeatedGpus(YamlReader& reader, const Plan& plan) {
  std::map<GpuRef, int> first_lines;
  for (const PlannedGpu& gpu : plan.gpus) {
    const auto [first, is_new] = first_lines.emplace(gpu.gpu, gpu.line.number);
    if (is_new) continue;
    reader.Complain(gpu.line.number, fmt::format("{} appears twice; it stands on line {} already",
                                                 Describe(gpu.gpu), first->second));
  }
}

void ReadVersion(YamlReader& reader, const YamlNode& root) {
  const YamlNode* version = reader.Require(root, "version", "a plan");
  if (version == nullptr || version->text == std::to_string(kVersion)) return;
  reader.Complain(version->line,
                  fmt::format("version: {} is unknown; this program reads version {}",
                              Quoted(version->text), kVersion));
}

}  // namespace

Result<Plan> ParsePlan(std::string_view text, std::string_view file_name) {
  const auto root = ParseYaml(text, file_name);
  if (!root) return Fail(root.error());
  if (root->kind == YamlNode::Kind::kNull) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: the file is empty; a plan begins with 'version: 1'", file_name));
  }
  YamlReader reader(file_name);
  Plan plan;
  if (reader.ExpectMapping(*root, "a plan", kPlanKeys)) {
    ReadVersion(reader, *root);
    if (const YamlNode* gpus = reader.Require(*root, "gpus", "a plan")) {
      for (const YamlNode& item : reader.List("gpus", *gpus)) {
        plan.gpus.push_back(ReadGpu(reader, item));
      }
    }
    RefuseRepeatedGpus(reader, plan);
  }
  if (!reader.ok()) return Fail(reader.error());
  return plan;
}

}  // namespace divvy::plan
