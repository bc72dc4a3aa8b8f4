#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "command.h"
#include "device/node.h"
#include "device/nvml_library.h"
#include "gpu/fragmentation.h"

namespace divvy::app {
namespace {

using device::GpuInstanceState;
using device::GpuProcess;
using device::GpuState;
using device::NodeState;
using nlohmann::json;

std::string Gib(std::uint64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1024.0 * 1024.0 * 1024.0));
}

std::string DescribeProcesses(const GpuProcess& process) {
  std::string text = std::to_string(process.pid);
  if (!process.name.empty()) text += " " + process.name;
  if (process.memory_bytes) text += " (" + Gib(*process.memory_bytes) + ")";
  return text;
}

std::string DescribeProcesses(const std::vector<GpuProcess>& processes, bool known) {
  std::string text;
  for (const GpuProcess& process : processes) {
    if (!text.empty()) text += ", ";
    text += DescribeProcesses(process);
  }
  if (!known) text += text.empty() ? "unknown" : ", maybe more";
  return text.empty() ? "idle" : text;
}

std::string MigMode(const GpuState& gpu) {
  if (!gpu.mig_capable) return "MIG not available";
  std::string text = gpu.mig_enabled ? "MIG enabled" : "MIG disabled";
  if (gpu.mig_enabled != gpu.mig_pending) {
    text += gpu.mig_pending ? ", to be enabled at the next reset"
                            : ", to be disabled at the next reset";
  }
  return text;
}

std::vector<gpu::MigInstance> Instances(const GpuState& gpu) {
  std::vector<gpu::MigInstance> instances;
  for (const GpuInstanceState& state : gpu.instances) instances.push_back(state.instance);
  return instances;
}

void PrintInstances(const GpuState& gpu) {
  if (gpu.instances.empty()) return;
  fmt::print("  {:<17} {:>3}  {:<42} {}\n", "INSTANCE", "GI", "UUID", "PROCESSES");
  for (const GpuInstanceState& state : gpu.instances) {
    std::string name = gpu::Describe(gpu.model, state.instance);
    std::string processes = DescribeProcesses(state.processes, state.processes_known);
    if (state.compute.empty()) {
      fmt::print("  {:<17} {:>3}  {:<42} {}\n", name, state.id, "-",
                 "no compute instance: nothing can run here");
      continue;
    }
    std::string id = std::to_string(state.id);
    for (const auto& compute : state.compute) {
      fmt::print("  {:<17} {:>3}  {:<42} {}\n", name, id, compute.uuid, processes);
      // NVML lists processes a GPU instance; further compute instances add a UUID.
      name = id = processes = "";
    }
  }
}

void PrintFree(const gpu::MigLayout& layout) {
  const gpu::FreeSpace space = gpu::MeasureFreeSpace(layout);
  std::string text;
  for (const gpu::ProfileRoom& room : space.rooms) {
    if (room.now == 0) continue;
    if (!text.empty()) text += ", ";
    text += fmt::format("{}x {} (at {})", room.now, layout.model().profile(room.profile).name,
                        fmt::join(room.starts, " "));
  }
  fmt::print("  Free: {}\n", text.empty() ? "nothing more fits" : text);
  if (space.fragmentation() > 0) {
    fmt::print(
        "  Fragmented by {:.0f} %: {} compute slices can still be used, {} if instances "
        "were moved; see 'divvy fit'\n",
        100 * space.fragmentation(), space.compute_now, space.compute_after_moves);
  }
}

// Instances change while they are read one by one, and drivers err.
void PrintCut(const GpuState& gpu, const Invocation& invocation) {
  const auto layout = gpu::MigLayout::Of(gpu.model, Instances(gpu));
  if (layout) {
    std::vector<gpu::StripCell> cells;
    for (const GpuInstanceState& state : gpu.instances) {
      cells.push_back({state.instance, state.busy() ? "busy" : ""});
    }
    const int scale = gpu::StripScale(gpu.model, cells);
    PrintStrip("  ", gpu::DrawStrip(gpu.model, cells, scale, invocation.ink));
  }
  PrintInstances(gpu);
  if (layout) {
    PrintFree(*layout);
  } else {
    fmt::print("  Note: NVML shows a layout that cannot be ({}); somebody may be changing it\n",
               layout.error().message);
  }
}

void PrintGpu(const GpuState& gpu, const Invocation& invocation) {
  fmt::print("\nGPU {}  {}  {}  {}\n", gpu.index, gpu.name, gpu.uuid, gpu.pci_bus_id);
  fmt::print("  {}, memory {} used of {}", MigMode(gpu), Gib(gpu.memory_used_bytes),
             Gib(gpu.memory_total_bytes));
  if (!gpu.mig_enabled || !gpu.processes.empty()) {
    fmt::print(", processes: {}", gpu.processes.empty() && gpu.processes_known
                                      ? "none"
                                      : DescribeProcesses(gpu.processes, gpu.processes_known));
  }
  fmt::print("\n");
  if (gpu.mig_enabled && gpu.instances_known && !gpu.model.profiles.empty()) {
    PrintCut(gpu, invocation);
  }
  for (const std::string& warning : gpu.warnings) fmt::print("  Note: {}\n", warning);
}

// Once for each kind of GPU, since the GPUs of a node are mostly alike.
void PrintProfiles(const NodeState& node) {
  std::map<std::string, std::vector<const GpuState*>> kinds;
  for (const GpuState& gpu : node.gpus) {
    if (!gpu.model.profiles.empty()) kinds[gpu.model.name].push_back(&gpu);
  }
  for (const auto& [kind, gpus] : kinds) {
    std::vector<unsigned> indices;
    for (const GpuState* gpu : gpus) indices.push_back(gpu->index);
    const gpu::GpuModel& model = gpus.front()->model;
    fmt::print("\nMIG profiles of {} (GPU {}; {})\n", kind, fmt::join(indices, ", "),
               gpu::Describe(model.provenance));
    fmt::print("  {:<15} {:>3} {:>5} {:>10} {:>5}  {}\n", "PROFILE", "ID", "SMs", "MEMORY", "MOST",
               "MAY BEGIN AT (size in memory slices)");
    for (const gpu::MigProfile& p : model.profiles) {
      fmt::print("  {:<15} {:>3} {:>5} {:>10} {:>5}  {} ({})\n", p.name, p.nvml_id,
                 p.sms ? std::to_string(*p.sms) : "?",
                 p.memory_mib ? fmt::format("{:.2f} GiB", *p.memory_mib / 1024.0) : "?",
                 p.max_instances, fmt::join(p.starts, " "), p.memory_slices);
    }
  }
}

json ToJson(const std::vector<GpuProcess>& processes) {
  json array = json::array();
  for (const GpuProcess& p : processes) {
    json process = {{"pid", p.pid}, {"name", p.name}};
    process["memory_bytes"] = p.memory_bytes ? json(*p.memory_bytes) : json(nullptr);
    array.push_back(std::move(process));
  }
  return array;
}

json InstancesJson(const GpuState& gpu) {
  json array = json::array();
  for (const GpuInstanceState& state : gpu.instances) {
    const gpu::MigProfile& profile = gpu.model.profile(state.instance.profile);
    json compute = json::array();
    for (const auto& c : state.compute) {
      compute.push_back({{"id", c.id},
                         {"uuid", c.uuid},
                         {"profile_id", c.spec.profile_id},
                         {"start", c.spec.start},
                         {"size", c.spec.size}});
    }
    array.push_back({{"id", state.id},
                     {"profile", profile.name},
                     {"start", state.instance.start},
                     {"size", profile.memory_slices},
                     {"compute_instances", std::move(compute)},
                     {"busy", state.busy()},
                     {"processes_known", state.processes_known},
                     {"processes", ToJson(state.processes)}});
  }
  return array;
}

json ProfilesJson(const GpuState& gpu) {
  json array = json::array();
  if (gpu.model.profiles.empty()) return array;
  const auto layout = gpu::MigLayout::Of(gpu.model, Instances(gpu));
  const auto rooms = layout && gpu.instances_known ? gpu::MeasureFreeSpace(*layout).rooms
                                                   : std::vector<gpu::ProfileRoom>{};
  for (std::size_t i = 0; i < gpu.model.profiles.size(); ++i) {
    const gpu::MigProfile& p = gpu.model.profiles[i];
    json profile = {{"name", p.name},
                    {"id", p.nvml_id},
                    {"compute_slices", p.compute_slices},
                    {"memory_slices", p.memory_slices},
                    {"max_instances", p.max_instances},
                    {"starts", p.starts}};
    profile["sms"] = p.sms ? json(*p.sms) : json(nullptr);
    profile["memory_mib"] = p.memory_mib ? json(*p.memory_mib) : json(nullptr);
    if (!rooms.empty()) {
      profile["free_starts"] = rooms[i].starts;
      profile["free"] = rooms[i].now;
      profile["free_after_moves"] = rooms[i].after_moves;
    }
    array.push_back(std::move(profile));
  }
  return array;
}

json ToJson(const NodeState& node) {
  json gpus = json::array();
  for (const GpuState& gpu : node.gpus) {
    gpus.push_back({{"index", gpu.index},
                    {"uuid", gpu.uuid},
                    {"name", gpu.name},
                    {"kind", gpu.model.name},
                    {"pci_bus_id", gpu.pci_bus_id},
                    {"memory_total_bytes", gpu.memory_total_bytes},
                    {"memory_used_bytes", gpu.memory_used_bytes},
                    {"mig_capable", gpu.mig_capable},
                    {"mig_enabled", gpu.mig_enabled},
                    {"mig_pending", gpu.mig_pending},
                    {"instances", InstancesJson(gpu)},
                    {"instances_known", gpu.instances_known},
                    {"processes", ToJson(gpu.processes)},
                    {"processes_known", gpu.processes_known},
                    {"profiles", ProfilesJson(gpu)},
                    {"warnings", gpu.warnings}});
  }
  return {{"driver_version", node.driver_version}, {"gpus", std::move(gpus)}};
}

void Run(OutputFormat format, Invocation& invocation) {
  auto nvml = device::NvmlLibrary::Open(invocation.nvml);
  if (!nvml) return Complain(invocation, nvml.error());
  const auto node = device::ReadNode(**nvml);
  if (!node) return Complain(invocation, node.error());
  if (format == OutputFormat::kJson) {
    fmt::print("{}\n", ToJson(*node).dump(2, ' ', false, json::error_handler_t::replace));
    return;
  }
  fmt::print("NVIDIA driver {}, {} GPU{}\n", node->driver_version, node->gpus.size(),
             node->gpus.size() == 1 ? "" : "s");
  for (const GpuState& gpu : node->gpus) PrintGpu(gpu, invocation);
  PrintProfiles(*node);
}

}  // namespace

void AddGpusCommand(CLI::App& app, Invocation& invocation) {
  CLI::App* const command = app.add_subcommand(
      "gpus", "Show this node's GPUs: MIG mode and layout, instances, processes, free profiles");
  const auto format = std::make_shared<OutputFormat>(OutputFormat::kTable);
  AddOutputOption(*command, *format);
  command->callback([format, &invocation] { Run(*format, invocation); });
}

}  // namespace divvy::app
