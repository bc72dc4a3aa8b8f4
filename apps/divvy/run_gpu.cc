#include "run_gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "base/number.h"
#include "base/text_safety.h"
#include "device/node.h"
#include "device/nvml_library.h"

namespace divvy::app {
namespace {

using device::GpuState;
using device::NodeState;
using device::nvml::ComputeMode;

std::vector<JobGpu> InstancesOf(const GpuState& gpu) {
  std::vector<JobGpu> instances;
  for (const device::GpuInstanceState& instance : gpu.instances) {
    for (const auto& compute : instance.compute) {
      instances.push_back({compute.uuid, fmt::format("GPU {}, {}", gpu.index, compute.uuid)});
    }
  }
  return instances;
}

JobGpu Whole(const GpuState& gpu) { return {gpu.uuid, fmt::format("GPU {}", gpu.index)}; }

// A GPU that is cut runs nothing as a whole: CUDA would take its first instance, which
// the user may not have meant.
Result<JobGpu> Uncut(const GpuState& gpu) {
  if (!gpu.mig_enabled) return Whole(gpu);
  const std::vector<JobGpu> instances = InstancesOf(gpu);
  std::string names;
  for (const JobGpu& instance : instances) names += (names.empty() ? "" : ", ") + instance.id;
  if (names.empty()) names = "none that this user can see";
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("GPU {} is cut by MIG: choose an instance with --gpu (there are: {})",
                          gpu.index, names));
}

std::string NamesOf(const NodeState& node) {
  std::string names;
  for (const GpuState& gpu : node.gpus) {
    names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", gpu.index, gpu.uuid);
  }
  return names.empty() ? "none" : names;
}

// By index, or by UUID or its beginning, as CUDA_VISIBLE_DEVICES has it.
Result<JobGpu> Find(const NodeState& node, const std::string& word) {
  if (const auto index = ParseInteger(word)) {
    for (const GpuState& gpu : node.gpus) {
      if (std::cmp_equal(gpu.index, *index)) return Uncut(gpu);
    }
  }
  std::vector<Result<JobGpu>> found;
  bool hidden_instances = false;
  for (const GpuState& gpu : node.gpus) {
    if (gpu.uuid.starts_with(word)) found.push_back(Uncut(gpu));
    for (const JobGpu& instance : InstancesOf(gpu)) {
      if (instance.id.starts_with(word)) found.push_back(instance);
    }
    hidden_instances = hidden_instances || (gpu.mig_enabled && !gpu.instances_known);
  }
  if (found.size() == 1 && word.size() > 4) return found.front();
  if (found.empty() && hidden_instances && word.starts_with("MIG-")) return JobGpu{word, word};
  return Fail(ErrorCode::kNotFound,
              fmt::format("{} names {} GPU of this node; there are: {}", Quoted(word),
                          found.empty() ? "no" : "more than one", NamesOf(node)));
}

bool AllAlike(const NodeState& node) {
  return std::ranges::all_of(
      node.gpus, [&](const GpuState& gpu) { return gpu.name == node.gpus.front().name; });
}

// What one word of CUDA_VISIBLE_DEVICES means. CUDA counts by speed unless told to count
// as NVML does.
GpuChoice ChooseVisible(const NodeState& node, const std::string& word) {
  const char* const order = std::getenv("CUDA_DEVICE_ORDER");
  const bool by_bus = order != nullptr && std::string_view(order) == "PCI_BUS_ID";
  if (ParseInteger(word) && !by_bus && !AllAlike(node)) {
    return {{},
            fmt::format("which GPU CUDA_VISIBLE_DEVICES={} is depends on CUDA's own order; choose "
                        "one with --gpu",
                        word)};
  }
  auto found = Find(node, word);
  if (!found) return {{}, fmt::format("CUDA_VISIBLE_DEVICES: {}", found.error().message)};
  return {*std::move(found), {}};
}

GpuChoice ChooseOnly(const NodeState& node) {
  if (node.gpus.size() != 1) {
    return {{},
            fmt::format("the job sees {} GPUs, and a daemon is of one; choose one with --gpu",
                        node.gpus.size())};
  }
  const GpuState& gpu = node.gpus.front();
  if (!gpu.mig_enabled) return {Whole(gpu), {}};
  const std::vector<JobGpu> instances = InstancesOf(gpu);
  if (instances.size() == 1) return {instances.front(), {}};
  return {{}, fmt::format("GPU {} is cut by MIG; choose an instance with --gpu", gpu.index)};
}

// By the words of `wanted` and `visible`, of which one at most is given.
Result<GpuChoice> ChooseOn(const NodeState& node, const std::string& wanted, const char* visible) {
  if (!wanted.empty()) {
    auto found = Find(node, wanted);
    if (!found) return Fail(found.error().code, "--gpu: " + found.error().message);
    return GpuChoice{*std::move(found), {}};
  }
  return visible != nullptr ? ChooseVisible(node, visible) : ChooseOnly(node);
}

// Without NVML words are taken as they are; whether they are right shows when CUDA
// starts.
JobGpu Unchecked(const std::string& word) {
  return {word, ParseInteger(word) ? "GPU " + word : word};
}

}  // namespace

Result<GpuChoice> ChooseGpu(const std::string& wanted, const char* visible,
                            const std::string& nvml) {
  const std::string several = visible == nullptr ? "" : visible;
  const bool set = wanted.empty() && visible != nullptr;
  if (set && (several.empty() || several.find(',') != std::string::npos)) {
    return GpuChoice{{},
                     fmt::format("CUDA_VISIBLE_DEVICES={} is not one GPU, and a daemon is of one; "
                                 "choose one with --gpu",
                                 several)};
  }
  const auto library = device::NvmlLibrary::Open(nvml);
  const auto node = library ? device::ReadNode(**library) : Fail(library.error());
  if (!node) {
    const std::string word = !wanted.empty() ? wanted : set ? several : "0";
    return GpuChoice{Unchecked(word), {}, wanted.empty() ? "" : node.error().message};
  }
  auto choice = ChooseOn(*node, wanted, set ? visible : nullptr);
  if (!choice || !choice->gpu) return choice;
  JobGpu& gpu = *choice->gpu;
  const ComputeMode mode = device::ReadComputeMode(**library, gpu.id);
  if (mode == ComputeMode::kComputeProhibited) {
    return Fail(ErrorCode::kFailedPrecondition,
                fmt::format("{} is in compute mode prohibited: no CUDA program can use it until an "
                            "administrator sets another (nvidia-smi -c DEFAULT)",
                            gpu.label));
  }
  gpu.exclusive =
      mode == ComputeMode::kComputeExclusiveProcess || mode == ComputeMode::kComputeExclusiveThread;
  return choice;
}

}  // namespace divvy::app
