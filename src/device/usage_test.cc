#include "device/usage.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace divvy::device {
namespace {

using nvml::Return;

// What the GPU of these tests says; its functions have no other way to know.
struct Gpu {
  bool has_gpm = true;
  int samples = 0;
  int freed = 0;
  unsigned long long energy_mj = 0;
  unsigned power_mw = 0;
  unsigned busy_percent = 0;
  double sm_percent = 0;
} g;

NvmlFunctions Functions() {
  NvmlFunctions f{};
  f.nvmlDeviceGetUtilizationRates = [](nvml::Device, nvml::Utilization* utilization) {
    utilization->gpu = g.busy_percent;
    return nvml::kSuccess;
  };
  f.nvmlDeviceGetPowerUsage = [](nvml::Device, unsigned* milliwatts) {
    *milliwatts = g.power_mw;
    return nvml::kSuccess;
  };
  f.nvmlDeviceGetTotalEnergyConsumption = [](nvml::Device, unsigned long long* millijoules) {
    *millijoules = g.energy_mj;
    return nvml::kSuccess;
  };
  f.nvmlGpmQueryDeviceSupport = [](nvml::Device, nvml::GpmSupport* support) {
    support->isSupportedDevice = g.has_gpm ? 1 : 0;
    return support->version == 1 ? nvml::kSuccess : nvml::kArgumentVersionMismatch;
  };
  f.nvmlGpmSampleAlloc = [](nvml::GpmSample* sample) {
    *sample = reinterpret_cast<nvml::GpmSample>(static_cast<std::uintptr_t>(++g.samples));
    return nvml::kSuccess;
  };
  f.nvmlGpmSampleFree = [](nvml::GpmSample) {
    ++g.freed;
    return nvml::kSuccess;
  };
  f.nvmlGpmSampleGet = [](nvml::Device, nvml::GpmSample) { return nvml::kSuccess; };
  f.nvmlGpmMigSampleGet = [](nvml::Device, unsigned, nvml::GpmSample) {
    return nvml::kNotSupported;
  };
  f.nvmlGpmMetricsGet = [](nvml::GpmMetricsGet* get) {
    if (get->sample1 == get->sample2 || get->numMetrics != 2) return nvml::kInvalidArgument;
    get->metrics[0].nvmlReturn = nvml::kSuccess;
    get->metrics[0].value = g.sm_percent;
    get->metrics[1].nvmlReturn = nvml::kNoData;
    return nvml::kSuccess;
  };
  return f;
}

TEST(UsageWatchTest, TellsWhatTheGpuTellsAndNothingElse) {
  g = {.energy_mj = 1000, .power_mw = 70'000, .busy_percent = 80, .sm_percent = 12};
  const NvmlFunctions f = Functions();
  {
    UsageWatch watch(f, {});
    watch.Begin();
    watch.Look();
    g.busy_percent = 40;
    g.energy_mj += 150'000;
    const GpuUsage usage = watch.End(std::chrono::milliseconds(500));
    EXPECT_EQ(usage.sm_active, 0.12);
    EXPECT_EQ(usage.busy, 0.6);
    EXPECT_EQ(usage.power_w, 300);  // 150 J in half a second, whatever the last second's mean is.
    watch.Begin();
    g.energy_mj += 1000;
    EXPECT_EQ(watch.End(std::chrono::milliseconds(50)).power_w, 70);
  }
  EXPECT_EQ(g.samples, 2);
  EXPECT_EQ(g.freed, 2);
}

TEST(UsageWatchTest, AnInstanceHasNoUtilisationOfTheWholeGpu) {
  g = {.busy_percent = 80, .sm_percent = 12};
  const NvmlFunctions f = Functions();
  UsageWatch watch(f, {.gpu_instance = 3});
  watch.Begin();
  const GpuUsage usage = watch.End(std::chrono::seconds(1));
  EXPECT_EQ(usage.busy, std::nullopt);
  EXPECT_EQ(usage.sm_active, std::nullopt);  // The driver refused the sample.
}

TEST(UsageWatchTest, OldDriversTellNothing) {
  const NvmlFunctions none{};
  UsageWatch watch(none, {});
  watch.Begin();
  const GpuUsage usage = watch.End(std::chrono::seconds(1));
  EXPECT_EQ(usage.busy, std::nullopt);
  EXPECT_EQ(usage.power_w, std::nullopt);
  const int one = 1;
  EXPECT_EQ(watch.MemoryOf({&one, 1}), std::nullopt);
}

TEST(UsageWatchTest, MemoryIsTheProcessesOwnWhereAllAreListed) {
  NvmlFunctions f{};
  f.compute_processes = [](nvml::Device, unsigned* count, nvml::ProcessInfo* infos) {
    infos[0] = {.pid = 7, .usedGpuMemory = 100, .gpuInstanceId = 0, .computeInstanceId = 0};
    infos[1] = {.pid = 8, .usedGpuMemory = 1000, .gpuInstanceId = 0, .computeInstanceId = 0};
    *count = 2;
    return nvml::kSuccess;
  };
  f.mps_processes = [](nvml::Device, unsigned* count, nvml::ProcessInfo* infos) {
    infos[0] = {.pid = 7, .usedGpuMemory = 100, .gpuInstanceId = 0, .computeInstanceId = 0};
    infos[1] = {.pid = 9, .usedGpuMemory = 10, .gpuInstanceId = 0, .computeInstanceId = 0};
    *count = 2;
    return nvml::kSuccess;
  };
  const UsageWatch watch(f, {});
  const std::vector<int> ours = {7, 9};
  EXPECT_EQ(watch.MemoryOf(ours), 110U);
  const std::vector<int> more = {7, 9, 10};
  EXPECT_EQ(watch.MemoryOf(more), std::nullopt);
}

}  // namespace
}  // namespace divvy::device
