// NVML: what a GPU does meanwhile, by what the simulated CUDA driver does on it.

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include "device/simulator/cuda_machine.h"
#include "device/simulator/handles.h"
#include "device/simulator/nvml_entry_points.h"
#include "device/simulator/session.h"

namespace divvy::device::nvml {

struct OpaqueGpmSample {
  std::optional<simulator::Counters> counters;
};

}  // namespace divvy::device::nvml

namespace divvy::device::simulator {
namespace {

// Samples that were given out and not given back. Under the lock of the process, which every call
// holds. Leaked, as the session is.
std::set<nvml::GpmSample>& Samples() {
  static auto* const samples = new std::set<nvml::GpmSample>;
  return *samples;
}

// Counters are of whole GPUs.
template <typename Body>
nvml::Return WithCounters(const char* function, nvml::Device device, const void* out, Body body) {
  return Query(function, [&](Call& call) {
    const auto target = FindDevice(call.state(), device);
    if (!target || out == nullptr) return nvml::kInvalidArgument;
    if (target->compute_instance != nullptr) return nvml::kNotSupported;
    const auto gpu = CudaGpu::Find(call.cuda_machine(), *target->gpu);
    return gpu ? body(*target->gpu, gpu->Read()) : nvml::kNotSupported;
  });
}

bool HasGpm(const Gpu& gpu) { return !gpu.model->architecture.starts_with("Ampere"); }

unsigned Percent(double share) { return static_cast<unsigned>(std::lround(share * 100)); }

double PercentBetween(double part, cuda_simulator::Nanos span) {
  return std::clamp(part / static_cast<double>(span) * 100, 0.0, 100.0);
}

void Answer(nvml::GpmMetric& metric, const Counters& first, const Counters& last) {
  const cuda_simulator::Nanos span = last.at - first.at;
  const auto busy = static_cast<double>(last.activity.busy - first.activity.busy);
  const auto sm_busy = static_cast<double>(last.activity.sm_busy - first.activity.sm_busy);
  metric.nvmlReturn = nvml::kSuccess;
  if (metric.metricId == nvml::kGpmGraphicsUtil) {
    metric.value = PercentBetween(busy, span);
  } else if (metric.metricId == nvml::kGpmSmUtil) {
    metric.value = PercentBetween(sm_busy / last.sms, span);
  } else {
    metric.nvmlReturn = nvml::kNotSupported;
  }
}

}  // namespace

extern "C" {

nvml::Return nvmlDeviceGetUtilizationRates(nvml::Device device,
                                           nvml::Utilization* utilization) noexcept {
  return WithCounters(__func__, device, utilization, [&](const Gpu& gpu, const Counters& now) {
    if (gpu.mig) return nvml::kNotSupported;
    // Its kernels touch no memory.
    *utilization = {.gpu = Percent(now.activity.busy_share), .memory = 0};
    return nvml::kSuccess;
  });
}

nvml::Return nvmlDeviceGetPowerUsage(nvml::Device device, unsigned* milliwatts) noexcept {
  return WithCounters(__func__, device, milliwatts, [&](const Gpu&, const Counters& now) {
    *milliwatts = static_cast<unsigned>(std::lround(now.power_w() * 1e3));
    return nvml::kSuccess;
  });
}

nvml::Return nvmlDeviceGetTotalEnergyConsumption(nvml::Device device,
                                                 unsigned long long* millijoules) noexcept {
  return WithCounters(__func__, device, millijoules, [&](const Gpu&, const Counters& now) {
    *millijoules = static_cast<unsigned long long>(std::llround(now.energy_j() * 1e3));
    return nvml::kSuccess;
  });
}

nvml::Return nvmlGpmQueryDeviceSupport(nvml::Device device, nvml::GpmSupport* support) noexcept {
  return Query(__func__, [&](Call& call) {
    const auto target = FindDevice(call.state(), device);
    if (!target || support == nullptr) return nvml::kInvalidArgument;
    if (support->version != nvml::kGpmVersion) return nvml::kArgumentVersionMismatch;
    support->isSupportedDevice = HasGpm(*target->gpu) ? 1 : 0;
    return nvml::kSuccess;
  });
}

nvml::Return nvmlGpmSampleAlloc(nvml::GpmSample* sample) noexcept {
  return Query(__func__, [&](Call&) {
    if (sample == nullptr) return nvml::kInvalidArgument;
    *sample = *Samples().insert(std::make_unique<nvml::OpaqueGpmSample>().release()).first;
    return nvml::kSuccess;
  });
}

nvml::Return nvmlGpmSampleFree(nvml::GpmSample sample) noexcept {
  return Query(__func__, [&](Call&) {
    if (Samples().erase(sample) == 0) return nvml::kInvalidArgument;
    const std::unique_ptr<nvml::OpaqueGpmSample> gone(sample);
    return nvml::kSuccess;
  });
}

nvml::Return nvmlGpmSampleGet(nvml::Device device, nvml::GpmSample sample) noexcept {
  return WithCounters(__func__, device, sample, [&](const Gpu& gpu, const Counters& now) {
    if (!Samples().contains(sample)) return nvml::kInvalidArgument;
    if (!HasGpm(gpu)) return nvml::kNotSupported;
    sample->counters = now;
    return nvml::kSuccess;
  });
}

// The simulated CUDA driver knows no instances.
nvml::Return nvmlGpmMigSampleGet(nvml::Device device, unsigned /*gpu_instance*/,
                                 nvml::GpmSample sample) noexcept {
  return Query(__func__, [&](Call& call) {
    if (!FindDevice(call.state(), device) || !Samples().contains(sample)) {
      return nvml::kInvalidArgument;
    }
    return nvml::kNotSupported;
  });
}

nvml::Return nvmlGpmMetricsGet(nvml::GpmMetricsGet* metrics) noexcept {
  return Query(__func__, [&](Call&) {
    if (metrics == nullptr) return nvml::kInvalidArgument;
    if (metrics->version != nvml::kGpmVersion) return nvml::kArgumentVersionMismatch;
    if (!Samples().contains(metrics->sample1) || !Samples().contains(metrics->sample2)) {
      return nvml::kInvalidArgument;
    }
    const auto& first = metrics->sample1->counters;
    const auto& last = metrics->sample2->counters;
    if (!first || !last || last->at <= first->at) return nvml::kInvalidArgument;
    for (unsigned i = 0; i < metrics->numMetrics; ++i) Answer(metrics->metrics[i], *first, *last);
    return nvml::kSuccess;
  });
}

}  // extern "C"

}  // namespace divvy::device::simulator
