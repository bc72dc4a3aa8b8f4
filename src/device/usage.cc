#include "device/usage.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace divvy::device {
namespace {

using nvml::Return;

// The counter of energy moves ten or more times a second. Over less it says little.
constexpr Duration kLeastForEnergy = std::chrono::milliseconds(200);

std::optional<double> Share(double percent) {
  if (!(percent >= 0)) return std::nullopt;  // Also what is no number.
  return std::min(1.0, percent / 100);
}

}  // namespace

Result<UsageWatch> UsageWatch::Of(const NvmlLibrary& nvml, const std::string& uuid,
                                  const std::string& mig, std::optional<unsigned> gpu_instance) {
  const NvmlFunctions& f = nvml.functions();
  Target target{.gpu_instance = gpu_instance};
  for (const auto& [name, handle] :
       {std::pair{&uuid, &target.gpu}, {mig.empty() ? &uuid : &mig, &target.partition}}) {
    if (const Return code = f.nvmlDeviceGetHandleByUUID(name->c_str(), handle);
        code != nvml::kSuccess) {
      return Fail(NvmlError(code, "looking for " + *name, "nvmlDeviceGetHandleByUUID"));
    }
  }
  return UsageWatch(f, target);
}

UsageWatch::UsageWatch(const NvmlFunctions& functions, Target target)
    : f_(functions), target_(target) {
  const bool has_calls = f_.nvmlGpmQueryDeviceSupport != nullptr &&
                         f_.nvmlGpmSampleAlloc != nullptr && f_.nvmlGpmSampleFree != nullptr &&
                         f_.nvmlGpmSampleGet != nullptr && f_.nvmlGpmMigSampleGet != nullptr &&
                         f_.nvmlGpmMetricsGet != nullptr;
  if (!has_calls) return;
  nvml::GpmSupport support{.version = nvml::kGpmVersion, .isSupportedDevice = 0};
  if (f_.nvmlGpmQueryDeviceSupport(target_.gpu, &support) != nvml::kSuccess ||
      support.isSupportedDevice == 0) {
    return;
  }
  for (nvml::GpmSample* const sample : {&first_, &last_}) {
    if (f_.nvmlGpmSampleAlloc(sample) != nvml::kSuccess) *sample = nullptr;
  }
}

UsageWatch::UsageWatch(UsageWatch&& other) noexcept
    : f_(other.f_),
      target_(other.target_),
      first_(std::exchange(other.first_, nullptr)),
      last_(std::exchange(other.last_, nullptr)),
      has_first_(other.has_first_),
      energy_(other.energy_),
      busy_(other.busy_),
      power_(other.power_) {}

UsageWatch::~UsageWatch() {
  for (nvml::GpmSample const sample : {first_, last_}) {
    if (sample != nullptr) f_.nvmlGpmSampleFree(sample);
  }
}

bool UsageWatch::SampleGpm(nvml::GpmSample sample) const {
  if (sample == nullptr) return false;
  const Return code = target_.gpu_instance
                          ? f_.nvmlGpmMigSampleGet(target_.gpu, *target_.gpu_instance, sample)
                          : f_.nvmlGpmSampleGet(target_.gpu, sample);
  return code == nvml::kSuccess;
}

std::optional<unsigned long long> UsageWatch::Energy() const {
  unsigned long long millijoules = 0;
  if (f_.nvmlDeviceGetTotalEnergyConsumption == nullptr ||
      f_.nvmlDeviceGetTotalEnergyConsumption(target_.gpu, &millijoules) != nvml::kSuccess) {
    return std::nullopt;
  }
  return millijoules;
}

void UsageWatch::Begin() {
  busy_ = {};
  power_ = {};
  energy_ = Energy();
  has_first_ = SampleGpm(first_);
}

void UsageWatch::Look() {
  nvml::Utilization utilization{};
  // With MIG there is none of the whole GPU, and an instance's is not told here.
  if (f_.nvmlDeviceGetUtilizationRates != nullptr && !target_.gpu_instance &&
      f_.nvmlDeviceGetUtilizationRates(target_.gpu, &utilization) == nvml::kSuccess) {
    busy_.sum += utilization.gpu;
    ++busy_.count;
  }
  unsigned milliwatts = 0;
  if (f_.nvmlDeviceGetPowerUsage != nullptr &&
      f_.nvmlDeviceGetPowerUsage(target_.gpu, &milliwatts) == nvml::kSuccess) {
    power_.sum += milliwatts / 1e3;
    ++power_.count;
  }
}

void UsageWatch::ReadGpm(GpuUsage& usage) const {
  if (!has_first_ || !SampleGpm(last_)) return;
  nvml::GpmMetricsGet get{.version = nvml::kGpmVersion,
                          .numMetrics = 2,
                          .sample1 = first_,
                          .sample2 = last_,
                          .metrics = {}};
  get.metrics[0].metricId = nvml::kGpmSmUtil;
  get.metrics[1].metricId = nvml::kGpmGraphicsUtil;
  if (f_.nvmlGpmMetricsGet(&get) != nvml::kSuccess) return;
  if (get.metrics[0].nvmlReturn == nvml::kSuccess) usage.sm_active = Share(get.metrics[0].value);
  if (get.metrics[1].nvmlReturn == nvml::kSuccess) usage.busy = Share(get.metrics[1].value);
}

GpuUsage UsageWatch::End(Duration elapsed) {
  Look();
  GpuUsage usage;
  if (busy_.count > 0) usage.busy = Share(busy_.sum / busy_.count);
  ReadGpm(usage);
  const auto energy = Energy();
  if (energy && energy_ && *energy > *energy_ && elapsed >= kLeastForEnergy) {
    usage.power_w = static_cast<double>(*energy - *energy_) / 1e3 / Seconds(elapsed);
  } else if (power_.count > 0) {
    usage.power_w = power_.sum / power_.count;
  }
  return usage;
}

std::optional<std::uint64_t> UsageWatch::MemoryUsed() const {
  nvml::Memory memory{};
  if (f_.nvmlDeviceGetMemoryInfo(target_.partition, &memory) != nvml::kSuccess) return std::nullopt;
  return memory.used;
}

std::optional<std::uint64_t> UsageWatch::MemoryOf(std::span<const int> processes) const {
  constexpr auto kNotAvailable = ~0ULL;
  std::vector<int> seen;
  std::uint64_t sum = 0;
  // Clients of MPS are in a list of their own with some drivers, in both with others.
  for (const auto list : {f_.compute_processes, f_.mps_processes}) {
    if (list == nullptr) continue;
    std::vector<nvml::ProcessInfo> infos(256);
    auto count = static_cast<unsigned>(infos.size());
    if (list(target_.partition, &count, infos.data()) != nvml::kSuccess) continue;
    infos.resize(std::min<std::size_t>(count, infos.size()));
    for (const nvml::ProcessInfo& info : infos) {
      const int pid = static_cast<int>(info.pid);
      if (info.usedGpuMemory == kNotAvailable || std::ranges::find(seen, pid) != seen.end() ||
          std::ranges::find(processes, pid) == processes.end()) {
        continue;
      }
      seen.push_back(pid);
      sum += info.usedGpuMemory;
    }
  }
  if (seen.empty() || seen.size() != processes.size()) return std::nullopt;
  return sum;
}

}  // namespace divvy::device
