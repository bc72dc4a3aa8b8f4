#include "profile_measure_place.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/number.h"
#include "base/text_safety.h"
#include "device/mps.h"
#include "device/node.h"
#include "device/usage.h"
#include "gpu/catalogue.h"
#include "worker_command.h"

namespace divvy::app {
namespace {

using measure::Partition;

// Whose sizes cores stand in for when nobody says.
constexpr const char* kUsualKind = "H200-141GB";

[[nodiscard]] tl::unexpected<Error> NotHere(std::string message) {
  return Fail(ErrorCode::kFailedPrecondition, std::move(message));
}

// That this process may use.
int CoresHere() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

std::optional<std::string> MpsProgram() {
  const char* const path = std::getenv("PATH");
  return device::FindMpsControl(path == nullptr ? "" : path);
}

// The GPU that --gpu means: an index, or the beginning of a UUID; without it the first one.
Result<const device::GpuState*> FindState(const device::NodeState& node, const std::string& word) {
  if (node.gpus.empty()) return NotHere("NVML sees no GPU on this machine");
  if (word.empty()) return &node.gpus.front();
  const auto index = ParseInteger(word);
  for (const device::GpuState& gpu : node.gpus) {
    const bool meant = index ? std::cmp_equal(gpu.index, *index) : gpu.uuid.starts_with(word);
    if (meant) return &gpu;
  }
  return Fail(
      ErrorCode::kNotFound,
      fmt::format(
          "--gpu: {} names no GPU of this machine, which has {}", Quoted(word),
          node.gpus.size() == 1 ? "GPU 0" : fmt::format("GPUs 0 to {}", node.gpus.size() - 1)));
}

}  // namespace

Result<void> MeasurePlace::TakeSizes(const PlaceChoice& choice, const gpu::GpuModel& kind) {
  if (choice.partitions.empty()) {
    partitions_ = measure::SizesOf(kind);
    return {};
  }
  for (const std::string& word : choice.partitions) {
    auto partition = measure::FindSize(kind, word);
    if (!partition) return Fail(partition.error());
    partitions_.push_back(std::move(*partition));
  }
  std::ranges::stable_sort(partitions_, {}, &Partition::share);
  const auto twice = std::ranges::adjacent_find(partitions_, {}, &Partition::size);
  if (twice == partitions_.end()) return {};
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("--partitions: {} is there twice", Describe(twice->size)));
}

Result<void> MeasurePlace::FindCpu(const PlaceChoice& choice) {
  const auto kind = gpu::FindGpuModel(choice.kind.empty() ? kUsualKind : choice.kind);
  if (!kind) return Fail(kind.error().code, "--gpu-kind: " + kind.error().message);
  if (auto taken = TakeSizes(choice, **kind); !taken) return taken;
  cores_ = CoresHere();
  partitions_ = measure::MergedByCores(std::move(partitions_), cores_);
  gpu_ = "CPU";
  where_ = fmt::format("{} {} for the sizes of {}", cores_, cores_ == 1 ? "core" : "cores",
                       (*kind)->name);
  return {};
}

Result<void> MeasurePlace::FindMig(const PlaceChoice& choice) {
  const auto node = device::ReadNode(*nvml_);
  if (!node) return Fail(node.error());
  const auto state = FindState(*node, choice.gpu);
  if (!state) return Fail(state.error());
  const device::GpuState& gpu = **state;
  uuid_ = gpu.uuid;
  gpu_ = gpu.model.name;
  where_ = fmt::format("{}, driver {}", gpu.name, node->driver_version);
  std::set<std::string> found;
  for (const device::GpuInstanceState& instance : gpu.instances) {
    const gpu::MigProfile& profile = gpu.model.profile(instance.instance.profile);
    const bool wanted = choice.partitions.empty() ||
                        std::ranges::any_of(choice.partitions, [&](const std::string& word) {
                          const auto size = workload::ParsePartitionSize(word);
                          return size && workload::MatchQuality(*size, profile) > 0;
                        });
    // One that others use would be measured with them.
    if (!wanted || instance.compute.empty() || instance.busy()) continue;
    if (!found.insert(profile.name).second) continue;
    auto size = workload::ParsePartitionSize(profile.name);
    if (!size) return Fail(size.error());
    partitions_.push_back({.size = std::move(*size),
                           .share = measure::ShareOf(gpu.model, profile.name),
                           .mig = instance.compute.front().uuid,
                           .gpu_instance = instance.id});
  }
  if (partitions_.empty()) {
    return NotHere(fmt::format(
        "GPU {} has no idle MIG instance {}; cut it first (divvy apply), or choose --on mps",
        gpu.index, choice.partitions.empty() ? "to measure on" : "among --partitions"));
  }
  std::ranges::stable_sort(partitions_, {}, &Partition::share);
  return {};
}

Result<void> MeasurePlace::JoinMps(const PlaceChoice& choice) {
  auto sharing = app::JoinMps(uuid_.empty() ? choice.gpu : uuid_, choice.nvml);
  if (!sharing) return Fail(sharing.error());
  notes_.push_back(sharing->line);
  for (const auto& [name, value] : sharing->environment) {
    if (value) mps_.environment.emplace_back(name, *value);
  }
  if (!uuid_.empty() && !sharing->environment.contains("CUDA_VISIBLE_DEVICES")) {
    mps_.environment.emplace_back("CUDA_VISIBLE_DEVICES", uuid_);
  }
  mps_.mps = std::move(sharing->mps);
  return {};
}

Result<void> MeasurePlace::FindGpu(const PlaceChoice& choice) {
  std::optional<gpu::GpuModel> kind;
  if (!choice.kind.empty()) {
    const auto named = gpu::FindGpuModel(choice.kind);
    if (!named) return Fail(named.error().code, "--gpu-kind: " + named.error().message);
    kind = **named;
  }
  if (nvml_ != nullptr) {
    const auto node = device::ReadNode(*nvml_);
    if (!node) return Fail(node.error());
    const auto state = FindState(*node, choice.gpu);
    if (!state) return Fail(state.error());
    if ((*state)->mig_enabled) {
      return NotHere(fmt::format("GPU {} is cut by MIG: choose --on mig", (*state)->index));
    }
    uuid_ = (*state)->uuid;
    if (!kind) kind = (*state)->model;
    where_ = fmt::format("{}, driver {}", (*state)->name, node->driver_version);
  } else if (!kind) {
    return NotHere("there is no NVML to ask what GPU this is: say it with --gpu-kind, say h200");
  } else {
    where_ = kind->name;
  }
  gpu_ = kind->name;
  if (auto taken = TakeSizes(choice, *kind); !taken) return taken;
  if (on_ == MeasureOn::kMps) return JoinMps(choice);
  if (!choice.partitions.empty() && partitions_.front().share < 1) {
    return Fail(ErrorCode::kInvalidArgument,
                "--partitions: --on gpu measures the whole GPU; parts need --on mps or mig");
  }
  partitions_ = {partitions_.back()};
  const std::string& device = uuid_.empty() ? choice.gpu : uuid_;
  if (!device.empty()) mps_.environment.emplace_back("CUDA_VISIBLE_DEVICES", device);
  return {};
}

Result<MeasurePlace> MeasurePlace::Find(const PlaceChoice& choice) {
  MeasurePlace place;
  std::string on = choice.on;
  if (on != "cpu") {
    auto nvml = device::NvmlLibrary::Open(choice.nvml);
    if (nvml) place.nvml_ = std::move(*nvml);
    if (on == "mig" && !nvml) return Fail(nvml.error());
  }
  if (on == "auto") {
    const auto node =
        place.nvml_ != nullptr ? device::ReadNode(*place.nvml_) : Result<device::NodeState>{};
    if (place.nvml_ == nullptr || !node || node->gpus.empty()) {
      on = "cpu";
      place.notes_.push_back("no GPU that NVML sees: measuring on cores of this machine");
    } else {
      const auto state = FindState(*node, choice.gpu);
      if (!state) return Fail(state.error());
      on = (*state)->mig_enabled ? "mig" : MpsProgram() ? "mps" : "gpu";
      if (on == "gpu") {
        place.notes_.push_back(
            "nvidia-cuda-mps-control is not on PATH: measuring the whole GPU only");
      }
    }
  }
  place.on_ = on == "cpu"   ? MeasureOn::kCpu
              : on == "mps" ? MeasureOn::kMps
              : on == "mig" ? MeasureOn::kMig
                            : MeasureOn::kGpu;
  const auto found = place.on_ == MeasureOn::kCpu   ? place.FindCpu(choice)
                     : place.on_ == MeasureOn::kMig ? place.FindMig(choice)
                                                    : place.FindGpu(choice);
  if (!found) return Fail(found.error());
  if (choice.crowded && place.on_ != MeasureOn::kMps) {
    return Fail(ErrorCode::kInvalidArgument,
                "--crowded is for shares of the SMs, --on mps: other partitions have their own "
                "memory and caches, or there is one of them");
  }
  place.crowded_ = choice.crowded;
  return place;
}

Result<MeasurePlace> MeasurePlace::OfUrl(const PlaceChoice& choice) {
  MeasurePlace place;
  if (choice.crowded) {
    return Fail(ErrorCode::kInvalidArgument,
                "--crowded: a running server is measured as it is; load it as you like meanwhile");
  }
  place.on_ = MeasureOn::kUrl;
  if (choice.partitions.size() != 1) {
    return Fail(ErrorCode::kInvalidArgument,
                "--partitions: of a running server, say which one part of a GPU it has, such as 7g "
                "or 60sm");
  }
  auto size = workload::ParsePartitionSize(choice.partitions.front());
  if (!size) return Fail(size.error().code, "--partitions: " + size.error().message);
  place.partitions_.push_back({.size = std::move(*size)});
  if (!choice.kind.empty()) {
    const auto kind = gpu::FindGpuModel(choice.kind);
    if (!kind) return Fail(kind.error().code, "--gpu-kind: " + kind.error().message);
    place.gpu_ = (*kind)->name;
  }
  place.where_ = place.gpu_.empty() ? "GPU not told" : place.gpu_;
  return place;
}

int MeasurePlace::CopiesOf(const Partition& partition) const {
  return crowded_ ? std::max(1, 100 / measure::ThreadPercentage(partition.share, 1)) : 1;
}

int MeasurePlace::CoresOf(const Partition& partition) const {
  return on_ == MeasureOn::kCpu ? measure::CoresFor(partition.share, cores_) : 0;
}

std::vector<std::string> MeasurePlace::WorkerWords(const Partition& partition,
                                                   int processes) const {
  if (on_ != MeasureOn::kCpu) return {"--device", "cuda:0"};
  const int threads = std::max(1, CoresOf(partition) / processes);
  return {"--device", "cpu", "--threads", std::to_string(threads)};
}

Result<PartitionUse> MeasurePlace::Use(const Partition& partition, int processes,
                                       const std::string& mark) const {
  PartitionUse use;
  use.environment = mps_.environment;
  use.environment.emplace_back(measure::kMarkVariable, mark);
  if (on_ == MeasureOn::kMps) {
    const int percent = measure::ThreadPercentage(partition.share, processes);
    use.environment.emplace_back("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", std::to_string(percent));
  }
  if (on_ != MeasureOn::kMig) return use;
  use.environment.emplace_back("CUDA_VISIBLE_DEVICES", partition.mig);
  if (processes == 1) return use;
  // Processes of an instance run side by side by a daemon of its own.
  const auto program = MpsProgram();
  if (!program) {
    return NotHere(fmt::format(
        "{} processes on {} need MPS, but nvidia-cuda-mps-control is not on PATH; --processes 1 "
        "needs none",
        processes, Describe(partition.size)));
  }
  auto daemon = MpsUse::Begin({.id = partition.mig, .label = partition.mig}, *program, "");
  if (!daemon) return Fail(daemon.error());
  use.environment.emplace_back("CUDA_MPS_PIPE_DIRECTORY", daemon->home().pipe);
  use.environment.emplace_back("CUDA_MPS_LOG_DIRECTORY", daemon->home().log);
  use.mps = std::move(*daemon);
  return use;
}

std::unique_ptr<measure::Meter> MeasurePlace::MeterFor(const Partition& partition,
                                                       const std::string& mark) const {
  if (on_ == MeasureOn::kCpu) return std::make_unique<measure::HostMeter>(mark);
  if (nvml_ == nullptr) return nullptr;
  auto watch = device::UsageWatch::Of(*nvml_, uuid_, partition.mig, partition.gpu_instance);
  if (!watch) return nullptr;
  // An instance's counters are of its own SMs, a GPU's of all.
  const double share = partition.gpu_instance ? 1 : partition.share;
  return std::make_unique<measure::GpuMeter>(std::move(*watch), share, CopiesOf(partition), mark);
}

}  // namespace divvy::app
