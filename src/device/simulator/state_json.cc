#include "device/simulator/state_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "device/simulator/faults.h"
#include "device/simulator/profiles.h"
#include "gpu/catalogue.h"

namespace divvy::device::simulator {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormatKey = "divvy_nvml_sim";
constexpr int kFormatVersion = 1;

constexpr std::pair<ProcessKind, const char*> kKinds[] = {{ProcessKind::kCompute, "compute"},
                                                          {ProcessKind::kGraphics, "graphics"},
                                                          {ProcessKind::kMps, "mps"}};

// That which most GPUs have is not written down.
constexpr std::pair<nvml::ComputeMode, const char*> kComputeModes[] = {
    {nvml::kComputeExclusiveProcess, "exclusive-process"},
    {nvml::kComputeProhibited, "prohibited"}};

Json ToJson(const GpuInstance& instance, const gpu::GpuModel& model) {
  Json compute_instances = Json::array();
  for (const ComputeInstance& compute : instance.compute_instances) {
    compute_instances.push_back({{"id", compute.id},
                                 {"serial", compute.serial},
                                 {"slices", compute.slices},
                                 {"start", compute.start},
                                 {"uuid", compute.uuid}});
  }
  return {{"id", instance.id},
          {"serial", instance.serial},
          {"profile", model.profile(instance.place.profile).name},
          {"start", instance.place.start},
          {"compute_instances", compute_instances}};
}

Json ToJson(const Process& process) {
  Json json = {{"pid", process.pid},
               {"name", process.name},
               {"memory_mib", process.memory_mib},
               {"kind", kKinds[static_cast<std::size_t>(process.kind)].second}};
  if (process.gpu_instance) json["gpu_instance"] = *process.gpu_instance;
  if (process.compute_instance) json["compute_instance"] = *process.compute_instance;
  return json;
}

Json ToJson(const Gpu& gpu) {
  Json instances = Json::array();
  for (const GpuInstance& instance : gpu.instances) {
    instances.push_back(ToJson(instance, *gpu.model));
  }
  Json processes = Json::array();
  for (const Process& process : gpu.processes) processes.push_back(ToJson(process));
  Json json = {{"model", gpu.model->name},
               {"uuid", gpu.uuid},
               {"mig", gpu.mig},
               {"mig_pending", gpu.mig_pending},
               {"needs_reset", gpu.needs_reset},
               {"instances", instances},
               {"processes", processes}};
  for (const auto& [mode, name] : kComputeModes) {
    if (gpu.compute_mode == mode) json["compute_mode"] = name;
  }
  return json;
}

// Takes values out of JSON and remembers the first thing that was wrong; after
// that it hands out empty values, so that callers can go on to the end.
class Reader {
 public:
  void Blame(std::string problem) {
    if (!problem_) problem_ = std::move(problem);
  }
  const std::optional<std::string>& problem() const { return problem_; }

  // Every key of `object` is one of `known`.
  void ExpectKeys(const Json& object, const std::string& where,
                  std::initializer_list<const char*> known) {
    if (!object.is_object()) return Blame(fmt::format("{} is not an object", where));
    for (const auto& [key, value] : object.items()) {
      if (std::find(known.begin(), known.end(), key) == known.end()) {
        Blame(fmt::format("{} has an unknown key '{}'", where, key));
      }
    }
  }

  std::string String(const Json& object, const std::string& where, const char* key) {
    const Json* value = Find(object, where, key);
    if (value != nullptr && value->is_string()) return value->get<std::string>();
    Blame(fmt::format("{}.{} must be a string", where, key));
    return {};
  }

  bool Bool(const Json& object, const std::string& where, const char* key) {
    const Json* value = Find(object, where, key);
    if (value != nullptr && value->is_boolean()) return value->get<bool>();
    Blame(fmt::format("{}.{} must be true or false", where, key));
    return false;
  }

  // A whole number from 0 to `most`.
  std::uint64_t Number(const Json& object, const std::string& where, const char* key,
                       std::uint64_t most) {
    const Json* value = Find(object, where, key);
    if (value != nullptr && value->is_number_unsigned() && value->get<std::uint64_t>() <= most) {
      return value->get<std::uint64_t>();
    }
    Blame(fmt::format("{}.{} must be a whole number from 0 to {}", where, key, most));
    return 0;
  }

  const Json& Array(const Json& object, const std::string& where, const char* key) {
    static const Json kEmpty = Json::array();
    const Json* value = Find(object, where, key);
    if (value != nullptr && value->is_array()) return *value;
    Blame(fmt::format("{}.{} must be a list", where, key));
    return kEmpty;
  }

 private:
  const Json* Find(const Json& object, const std::string& where, const char* key) {
    if (!object.is_object()) return nullptr;
    const auto found = object.find(key);
    if (found != object.end()) return &*found;
    Blame(fmt::format("{} has no '{}'", where, key));
    return nullptr;
  }

  std::optional<std::string> problem_;
};

constexpr std::uint64_t kMaxSlices = 31;
constexpr std::uint64_t kMaxUnsigned = 0xFFFFFFFF;
constexpr std::uint64_t kMaxSerial = (std::uint64_t{1} << 40U) - 1;  // As wide as in a handle.
constexpr std::uint64_t kMaxMemoryMib = std::uint64_t{1} << 40U;

ComputeInstance ReadComputeInstance(Reader& reader, const Json& json, const std::string& where) {
  reader.ExpectKeys(json, where, {"id", "serial", "slices", "start", "uuid"});
  return {static_cast<unsigned>(reader.Number(json, where, "id", kMaxUnsigned)),
          reader.Number(json, where, "serial", kMaxSerial),
          static_cast<int>(reader.Number(json, where, "slices", kMaxSlices)),
          static_cast<int>(reader.Number(json, where, "start", kMaxSlices)),
          reader.String(json, where, "uuid")};
}

GpuInstance ReadGpuInstance(Reader& reader, const Json& json, const std::string& where,
                            const gpu::GpuModel& model) {
  reader.ExpectKeys(json, where, {"id", "serial", "profile", "start", "compute_instances"});
  GpuInstance instance{static_cast<unsigned>(reader.Number(json, where, "id", kMaxUnsigned)),
                       reader.Number(json, where, "serial", kMaxSerial),
                       {static_cast<int>(reader.Number(json, where, "start", kMaxSlices)), {}},
                       {}};
  const std::string name = reader.String(json, where, "profile");
  const auto profile = model.FindProfile(name);
  if (!profile) {
    reader.Blame(fmt::format("{}.profile: {} has no '{}'", where, model.name, name));
    return instance;
  }
  instance.place.profile = *profile;
  if (instance.id != GpuInstanceIdAt(model, instance.place)) {
    reader.Blame(fmt::format("{}.id must be {} for {}", where,
                             GpuInstanceIdAt(model, instance.place),
                             gpu::Describe(model, instance.place)));
  }
  std::size_t i = 0;
  for (const Json& item : reader.Array(json, where, "compute_instances")) {
    instance.compute_instances.push_back(
        ReadComputeInstance(reader, item, fmt::format("{}.compute_instances[{}]", where, i++)));
  }
  return instance;
}

Process ReadProcess(Reader& reader, const Json& json, const std::string& where) {
  reader.ExpectKeys(json, where,
                    {"pid", "name", "memory_mib", "kind", "gpu_instance", "compute_instance"});
  Process process{static_cast<unsigned>(reader.Number(json, where, "pid", kMaxUnsigned)),
                  reader.String(json, where, "name"),
                  reader.Number(json, where, "memory_mib", kMaxMemoryMib),
                  ProcessKind::kCompute,
                  {},
                  {}};
  const std::string kind = reader.String(json, where, "kind");
  bool known = false;
  for (const auto& [value, name] : kKinds) {
    if (kind != name) continue;
    process.kind = value;
    known = true;
  }
  if (!known) reader.Blame(fmt::format("{}.kind must be compute, graphics or mps", where));
  if (!json.is_object()) return process;
  if (json.contains("gpu_instance")) {
    process.gpu_instance =
        static_cast<unsigned>(reader.Number(json, where, "gpu_instance", kMaxUnsigned));
  }
  if (json.contains("compute_instance")) {
    process.compute_instance =
        static_cast<unsigned>(reader.Number(json, where, "compute_instance", kMaxUnsigned));
  }
  return process;
}

// Checks the compute instances of one GPU instance against each other.
void CheckComputeInstances(Reader& reader, const GpuInstance& instance,
                           const gpu::MigProfile& profile, const std::string& where) {
  int taken = 0;
  std::optional<unsigned> last_id;
  for (const ComputeInstance& compute : instance.compute_instances) {
    const auto id = ComputeProfileId(compute.slices);
    const auto known = id ? FindComputeProfile(profile, *id) : std::nullopt;
    if (!known || std::find(known->starts.begin(), known->starts.end(), compute.start) ==
                      known->starts.end()) {
      return reader.Blame(
          fmt::format("{}: compute instance {} has {} slices at {}, which {} "
                      "does not allow",
                      where, compute.id, compute.slices, compute.start, profile.name));
    }
    const int mask = ((1 << compute.slices) - 1) << compute.start;
    if ((taken & mask) != 0) {
      return reader.Blame(
          fmt::format("{}: compute instance {} overlaps another", where, compute.id));
    }
    taken |= mask;
    if (last_id && compute.id <= *last_id) {
      return reader.Blame(fmt::format("{}: compute instances must be in order of id", where));
    }
    last_id = compute.id;
  }
}

bool IsOnInstance(const Gpu& gpu, const Process& process) {
  if (!process.gpu_instance) return !process.compute_instance;
  for (const GpuInstance& instance : gpu.instances) {
    if (instance.id != *process.gpu_instance) continue;
    if (!process.compute_instance) return true;
    for (const ComputeInstance& compute : instance.compute_instances) {
      if (compute.id == *process.compute_instance) return true;
    }
  }
  return false;
}

void CheckGpu(Reader& reader, const Gpu& gpu, const std::string& where) {
  gpu::MigLayout layout(*gpu.model);
  if (!gpu.mig && !gpu.instances.empty()) {
    return reader.Blame(fmt::format("{} has instances but mig is false", where));
  }
  std::optional<unsigned> last_id;
  for (const GpuInstance& instance : gpu.instances) {
    if (const auto placed = layout.Place(instance.place); !placed) {
      return reader.Blame(fmt::format("{}: {}", where, placed.error().message));
    }
    if (last_id && instance.id <= *last_id) {
      return reader.Blame(fmt::format("{}: instances must be in order of id", where));
    }
    last_id = instance.id;
    CheckComputeInstances(reader, instance, gpu.model->profile(instance.place.profile), where);
  }
  for (const Process& process : gpu.processes) {
    if (!IsOnInstance(gpu, process)) {
      reader.Blame(
          fmt::format("{}: process {} is on an instance that does not exist", where, process.pid));
    }
  }
}

nvml::ComputeMode ReadComputeMode(Reader& reader, const Json& json, const std::string& where) {
  if (!json.is_object() || !json.contains("compute_mode")) return nvml::kComputeDefault;
  const std::string text = reader.String(json, where, "compute_mode");
  for (const auto& [mode, name] : kComputeModes) {
    if (text == name) return mode;
  }
  reader.Blame(fmt::format("{}.compute_mode must be exclusive-process or prohibited", where));
  return nvml::kComputeDefault;
}

Gpu ReadGpu(Reader& reader, const Json& json, const std::string& where) {
  reader.ExpectKeys(json, where,
                    {"model", "uuid", "mig", "mig_pending", "needs_reset", "compute_mode",
                     "instances", "processes"});
  Gpu gpu{&gpu::Catalogue().front(),
          reader.String(json, where, "uuid"),
          reader.Bool(json, where, "mig"),
          reader.Bool(json, where, "mig_pending"),
          reader.Bool(json, where, "needs_reset"),
          ReadComputeMode(reader, json, where),
          {},
          {}};
  const auto model = gpu::FindGpuModel(reader.String(json, where, "model"));
  if (!model) {
    reader.Blame(fmt::format("{}.model: {}", where, model.error().message));
    return gpu;
  }
  gpu.model = *model;
  std::size_t i = 0;
  for (const Json& item : reader.Array(json, where, "instances")) {
    gpu.instances.push_back(
        ReadGpuInstance(reader, item, fmt::format("{}.instances[{}]", where, i++), *gpu.model));
  }
  i = 0;
  for (const Json& item : reader.Array(json, where, "processes")) {
    gpu.processes.push_back(ReadProcess(reader, item, fmt::format("{}.processes[{}]", where, i++)));
  }
  if (!reader.problem()) CheckGpu(reader, gpu, where);
  return gpu;
}

// Serials and UUIDs name one thing each, and serials to come are unused.
void CheckNames(Reader& reader, const State& state) {
  std::set<Serial> serials;
  std::set<std::string> uuids;
  const auto claim_serial = [&](Serial serial) {
    if (serial == 0 || serial >= state.next_serial || !serials.insert(serial).second) {
      reader.Blame(fmt::format("serial {} is used twice, 0 or not below next_serial", serial));
    }
  };
  const auto claim_uuid = [&](const std::string& uuid, std::string_view prefix) {
    // NVML hands UUIDs out in buffers of 80 characters.
    if (!uuid.starts_with(prefix) || uuid.size() >= 80 || !uuids.insert(uuid).second) {
      reader.Blame(fmt::format("uuid '{}' is used twice or not of the form {}...", uuid, prefix));
    }
  };
  for (const Gpu& gpu : state.gpus) {
    claim_uuid(gpu.uuid, "GPU-");
    for (const GpuInstance& instance : gpu.instances) {
      claim_serial(instance.serial);
      for (const ComputeInstance& compute : instance.compute_instances) {
        claim_serial(compute.serial);
        claim_uuid(compute.uuid, "MIG-");
      }
    }
  }
}

State ReadState(Reader& reader, const Json& json) {
  const std::string where = "state";
  reader.ExpectKeys(json, where, {kFormatKey, "driver_version", "next_serial", "faults", "gpus"});
  if (reader.Number(json, where, kFormatKey, kMaxUnsigned) != kFormatVersion) {
    reader.Blame(fmt::format("{} must be {}", kFormatKey, kFormatVersion));
  }
  State state;
  state.driver_version = reader.String(json, where, "driver_version");
  state.next_serial = reader.Number(json, where, "next_serial", kMaxSerial);
  state.faults = reader.String(json, where, "faults");
  if (const auto rules = FaultRules::Parse(state.faults); !rules) {
    reader.Blame(rules.error().message);
  }
  const Json& gpus = reader.Array(json, where, "gpus");
  if (gpus.size() > 64) reader.Blame("a simulated node holds at most 64 GPUs");
  std::size_t i = 0;
  for (const Json& item : gpus) {
    state.gpus.push_back(ReadGpu(reader, item, fmt::format("gpus[{}]", i++)));
  }
  if (!reader.problem()) CheckNames(reader, state);
  return state;
}

}  // namespace

std::string FormatState(const State& state) {
  Json gpus = Json::array();
  for (const Gpu& gpu : state.gpus) gpus.push_back(ToJson(gpu));
  const Json json = {{kFormatKey, kFormatVersion},
                     {"driver_version", state.driver_version},
                     {"next_serial", state.next_serial},
                     {"faults", state.faults},
                     {"gpus", gpus}};
  // Process names may hold any bytes; what is not UTF-8 is replaced.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<State> ParseState(std::string_view text) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& error) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("not JSON: {}", error.what()));
  }
  Reader reader;
  State state = ReadState(reader, json);
  if (const auto& problem = reader.problem()) return Fail(ErrorCode::kInvalidArgument, *problem);
  return state;
}

}  // namespace divvy::device::simulator
