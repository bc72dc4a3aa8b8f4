#include "plan/plan_json.h"

#include <nlohmann/json.hpp>

namespace divvy::plan {
namespace {

using nlohmann::ordered_json;

ordered_json ToJson(const std::vector<Assignment>& runs) {
  ordered_json list = ordered_json::array();
  for (const Assignment& run : runs) {
    ordered_json entry;
    entry[run.kind == Assignment::Kind::kModel ? "model" : "job"] = run.name;
    entry["processes"] = run.processes;
    if (run.batch) entry["batch"] = *run.batch;
    if (run.mps_share) entry["mps_share"] = *run.mps_share;
    list.push_back(std::move(entry));
  }
  return list;
}

ordered_json ToJson(const PlannedInstance& instance) {
  ordered_json entry;
  entry["profile"] = instance.profile;
  entry["start"] = instance.start ? ordered_json(*instance.start) : ordered_json(nullptr);
  entry["runs"] = ToJson(instance.runs);
  return entry;
}

ordered_json ToJson(const PlannedGpu& gpu) {
  ordered_json entry;
  std::visit([&](const auto& ref) { entry["gpu"] = ref; }, gpu.gpu);
  entry["kind"] = gpu.kind;
  entry["mig"] = gpu.mig;
  if (gpu.mig) {
    entry["instances"] = ordered_json::array();
    for (const PlannedInstance& instance : gpu.instances) {
      entry["instances"].push_back(ToJson(instance));
    }
  } else {
    entry["runs"] = ToJson(gpu.runs);
  }
  return entry;
}

}  // namespace

ordered_json ToJson(const Plan& plan) {
  ordered_json json;
  json["version"] = 1;
  json["gpus"] = ordered_json::array();
  for (const PlannedGpu& gpu : plan.gpus) json["gpus"].push_back(ToJson(gpu));
  return json;
}

}  // namespace divvy::plan
