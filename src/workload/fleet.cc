#include "workload/fleet.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "base/number.h"
#include "base/spelling.h"
#include "base/text_safety.h"
#include "base/yaml_reader.h"
#include "base/yaml_tree.h"
#include "gpu/catalogue.h"
#include "workload/fleet_control.h"
#include "workload/fleet_file.h"
#include "workload/fleet_learning.h"
#include "workload/fleet_load.h"
#include "workload/fleet_serve.h"
#include "workload/partition_size.h"

namespace divvy::workload {
namespace {

// Beyond these a number is a slip, whatever the fleet.
constexpr IntRange kGpuCounts{1, 100'000};
constexpr IntRange kJobCounts{1, 100'000};
constexpr IntRange kPriorities{0, 7};
constexpr RealRange kWeights{0.001, 1000};
constexpr RealRange kSafeties{0.01, 1};
constexpr RealRange kDelays{0, 100};
constexpr TimeRange kSlos{std::chrono::microseconds(1), std::chrono::hours(1)};
constexpr std::size_t kMaxModels = 10'000;
constexpr std::size_t kMaxJobs = 10'000;

constexpr std::array<std::string_view, 5> kFleetKeys = {"gpus", "models", "jobs", "policy",
                                                        "control"};
constexpr std::array<std::string_view, 2> kGpuKeys = {"kind", "count"};
constexpr std::array<std::string_view, 8> kModelKeys = {"name",   "profile",  "slo",      "load",
                                                        "weight", "priority", "learning", "serve"};
constexpr std::array<std::string_view, 3> kJobKeys = {"name", "instance", "count"};
constexpr std::array<std::string_view, 5> kPolicyKeys = {"planner", "route", "safety",
                                                         "batching_delay", "seed"};

FleetGpus ReadGpus(YamlReader& reader, const YamlNode& node, const gpu::GpuModel*& gpu) {
  constexpr std::string_view kWhat = "gpus";
  FleetGpus gpus{.kind = {}, .count = {}, .line = node.line};
  if (!reader.ExpectMapping(node, kWhat, kGpuKeys)) return gpus;
  if (const YamlNode* kind = reader.Require(node, "kind", kWhat)) {
    const std::string name = reader.Name("kind", *kind);
    const auto model = gpu::FindGpuModel(name);
    if (model) {
      gpu = *model;
      gpus.kind = gpu->name;
    } else {
      reader.Complain(kind->line, fmt::format("kind: {}", model.error().message));
    }
  }
  if (const YamlNode* count = reader.Require(node, "count", kWhat)) {
    const bool is_auto = count->kind == YamlNode::Kind::kScalar && count->text == "auto";
    const bool is_word = count->kind == YamlNode::Kind::kScalar && !ParseInteger(count->text);
    if (is_word && !is_auto) {
      reader.Complain(count->line, fmt::format("count: {} is neither auto nor {}",
                                               Quoted(count->text), Describe(kGpuCounts)));
    }
    if (!is_auto) gpus.count = reader.Integer("count", *count, kGpuCounts);
  }
  return gpus;
}

FleetModel ReadModel(YamlReader& reader, const YamlNode& node) {
  constexpr std::string_view kWhat = "a model";
  FleetModel model;
  model.line = node.line;
  if (!reader.ExpectMapping(node, kWhat, kModelKeys)) return model;
  if (const YamlNode* name = reader.Require(node, "name", kWhat)) {
    model.name = reader.Name("name", *name);
  }
  if (const YamlNode* profile = reader.Require(node, "profile", kWhat)) {
    auto [file, name] = ReadModelInFile(reader, "profile", *profile, model.name);
    model.profile = std::move(file);
    model.profile_model = std::move(name);
  }
  if (const YamlNode* slo = reader.Require(node, "slo", kWhat)) {
    model.slo = reader.Time("slo", *slo, kSlos);
  }
  if (const YamlNode* load = reader.Require(node, "load", kWhat)) {
    model.load = ReadLoad(reader, *load);
  }
  if (const YamlNode* weight = node.Find("weight")) {
    model.weight = reader.Real("weight", *weight, kWeights);
  }
  if (const YamlNode* priority = node.Find("priority")) {
    model.priority = reader.Integer("priority", *priority, kPriorities);
  }
  if (const YamlNode* learning = node.Find("learning")) {
    model.learning = ReadLearning(reader, *learning, model.name);
  }
  if (const YamlNode* serve = node.Find("serve")) model.serve = ReadServe(reader, *serve);
  return model;
}

// Complains unless `gpu` can be cut into what the job asks for.
void CheckInstance(YamlReader& reader, const YamlNode& node, const std::string& instance,
                   const gpu::GpuModel& gpu) {
  std::vector<std::string_view> names;
  for (const gpu::MigProfile& profile : gpu.profiles) names.push_back(profile.name);
  const auto size = ParsePartitionSize(instance);
  if (!size || size->unit == PartitionSize::Unit::kSms) {
    reader.Complain(node.line,
                    fmt::format("instance: {} is neither a MIG profile such as {} nor a "
                                "size such as 1g{}",
                                Quoted(instance), names.front(), DidYouMean(instance, names)));
    return;
  }
  const bool has = std::ranges::any_of(gpu.profiles, [&](const gpu::MigProfile& profile) {
    return MatchQuality(*size, profile) > 0;
  });
  if (has) return;
  std::string hint = DidYouMean(instance, names);
  if (hint.empty()) hint = "; it has " + OneOf(names);
  reader.Complain(node.line,
                  fmt::format("instance: {} has no {}{}", gpu.name, Quoted(instance), hint));
}

FleetJob ReadJob(YamlReader& reader, const YamlNode& node, const gpu::GpuModel* gpu) {
  constexpr std::string_view kWhat = "a job";
  FleetJob job{.name = {}, .instance = {}, .count = 1, .line = node.line};
  if (!reader.ExpectMapping(node, kWhat, kJobKeys)) return job;
  if (const YamlNode* name = reader.Require(node, "name", kWhat)) {
    job.name = reader.Name("name", *name);
  }
  if (const YamlNode* instance = reader.Require(node, "instance", kWhat)) {
    job.instance = reader.Name("instance", *instance);
    if (reader.ok() && gpu != nullptr) CheckInstance(reader, *instance, job.instance, *gpu);
  }
  if (const YamlNode* count = node.Find("count")) {
    job.count = reader.Integer("count", *count, kJobCounts);
  }
  return job;
}

FleetPolicy ReadPolicy(YamlReader& reader, const YamlNode& node) {
  FleetPolicy policy;
  policy.planner_line = policy.route_line = node.line;
  if (!reader.ExpectMapping(node, "policy", kPolicyKeys)) return policy;
  if (const YamlNode* planner = node.Find("planner")) {
    policy.planner = reader.Name("planner", *planner);
    policy.planner_line = planner->line;
  }
  if (const YamlNode* route = node.Find("route")) {
    policy.route = reader.Name("route", *route);
    policy.route_line = route->line;
  }
  if (const YamlNode* safety = node.Find("safety")) {
    policy.safety = reader.Real("safety", *safety, kSafeties);
  }
  if (const YamlNode* delay = node.Find("batching_delay")) {
    policy.batching_delay = reader.Real("batching_delay", *delay, kDelays);
  }
  if (const YamlNode* seed = node.Find("seed")) policy.seed = reader.Unsigned("seed", *seed);
  return policy;
}

// Complains about the first name that an earlier entry has. `what` is "model".
template <typename Entry>
void RefuseRepeatedNames(YamlReader& reader, std::string_view what,
                         const std::vector<Entry>& entries) {
  std::map<std::string_view, int> first_lines;
  for (const Entry& entry : entries) {
    const auto [first, is_new] = first_lines.emplace(entry.name, entry.line);
    if (is_new) continue;
    reader.Complain(entry.line, fmt::format("the {} {} appears twice; it stands on line {} already",
                                            what, Quoted(entry.name), first->second));
  }
}

void ReadModels(YamlReader& reader, const YamlNode& node, Fleet& fleet) {
  const auto items = reader.List("models", node);
  if (items.empty()) reader.Complain(node.line, "models: a fleet serves at least one");
  if (items.size() > kMaxModels) {
    reader.Complain(node.line, fmt::format("models: {}; at most {}", items.size(), kMaxModels));
  }
  for (const YamlNode& item : items) {
    if (!reader.ok()) return;
    fleet.models.push_back(ReadModel(reader, item));
  }
  RefuseRepeatedNames(reader, "model", fleet.models);
}

void ReadJobs(YamlReader& reader, const YamlNode& node, const gpu::GpuModel* gpu, Fleet& fleet) {
  const auto items = reader.List("jobs", node);
  if (items.size() > kMaxJobs) {
    reader.Complain(node.line, fmt::format("jobs: {}; at most {}", items.size(), kMaxJobs));
  }
  for (const YamlNode& item : items) {
    if (!reader.ok()) return;
    fleet.jobs.push_back(ReadJob(reader, item, gpu));
  }
  RefuseRepeatedNames(reader, "job", fleet.jobs);
}

}  // namespace

Result<Fleet> ParseFleet(std::string_view text, std::string_view file_name) {
  constexpr std::string_view kWhat = "a fleet";
  const auto root = ParseYaml(text, file_name);
  if (!root) return Fail(root.error());
  if (root->kind == YamlNode::Kind::kNull) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: the file is empty; a fleet has the keys 'gpus' and 'models'", file_name));
  }
  YamlReader reader(file_name);
  Fleet fleet;
  if (reader.ExpectMapping(*root, kWhat, kFleetKeys)) {
    const gpu::GpuModel* gpu = nullptr;
    if (const YamlNode* gpus = reader.Require(*root, "gpus", kWhat)) {
      fleet.gpus = ReadGpus(reader, *gpus, gpu);
    }
    if (const YamlNode* models = reader.Require(*root, "models", kWhat)) {
      ReadModels(reader, *models, fleet);
    }
    if (const YamlNode* jobs = root->Find("jobs")) ReadJobs(reader, *jobs, gpu, fleet);
    if (const YamlNode* policy = root->Find("policy")) fleet.policy = ReadPolicy(reader, *policy);
    if (const YamlNode* control = root->Find("control")) {
      fleet.control = ReadControl(reader, *control);
    }
  }
  if (!reader.ok()) return Fail(reader.error());
  return fleet;
}

}  // namespace divvy::workload
