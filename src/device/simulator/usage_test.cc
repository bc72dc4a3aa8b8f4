#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>

#include "device/cuda_simulator/identity.h"
#include "device/cuda_simulator/machine.h"
#include "device/simulator/simulator_fixture.h"

// What NVML tells of a GPU on which the simulated CUDA driver has programs run.

namespace divvy::device::simulator {
namespace {

using cuda_simulator::kMillisecond;
using cuda_simulator::Machine;
using cuda_simulator::Now;

class UsageTest : public SimulatorTest {
 protected:
  UsageTest() : cuda_variable_("DIVVY_CUDA_SIM", MachinePath()) {}

  std::string MachinePath() const { return folder_.File("machine"); }

  // A node whose GPU is that of a CUDA machine, and a program on it.
  void StartWithCuda(const std::string& gpus) {
    auto machine = Machine::Open(MachinePath(), {});
    ASSERT_TRUE(machine) << machine.error().message;
    program_ = *std::move(machine);
    ASSERT_TRUE(program_->Join(false, 100));
    Start(gpus);
    Edit([](State& state) { state.gpus[0].uuid = cuda_simulator::UuidText(0); });
  }

  // Half of the SMs were at work for a second: it comes late to say so, as a process may.
  void Work() {
    const auto now = Now();
    const auto began = now - 1'000 * kMillisecond;
    const auto grant = program_->Begin(0, {8, 1'000 * kMillisecond, began, 0}, now);
    ASSERT_TRUE(grant);
    program_->End(0, grant->granted, now);
  }

  nvml::GpmSample Sample() const {
    nvml::GpmSample sample = nullptr;
    EXPECT_EQ(nvml_.gpm_alloc(&sample), nvml::kSuccess);
    EXPECT_EQ(nvml_.gpm_sample(Gpu0(), sample), nvml::kSuccess);
    return sample;
  }

  ScopedEnvironment cuda_variable_;
  std::unique_ptr<Machine> program_;
};

TEST_F(UsageTest, TellsWhatTheCudaDriverDid) {
  StartWithCuda("H200-141GB");
  unsigned long long before = 0;
  ASSERT_EQ(nvml_.energy(Gpu0(), &before), nvml::kSuccess);
  nvml::GpmSample first = Sample();
  Work();
  nvml::Utilization utilization{};
  EXPECT_EQ(nvml_.utilization(Gpu0(), &utilization), nvml::kSuccess);
  unsigned long long after = 0;
  ASSERT_EQ(nvml_.energy(Gpu0(), &after), nvml::kSuccess);
  EXPECT_GE(after - before, 262'000U) << "half of 525 W for a second, beside what it draws idle";
  EXPECT_LT(after - before, 300'000U);
  nvml::GpmSample last = Sample();
  nvml::GpmMetricsGet get{.version = nvml::kGpmVersion,
                          .numMetrics = 2,
                          .sample1 = first,
                          .sample2 = last,
                          .metrics = {}};
  get.metrics[0].metricId = nvml::kGpmSmUtil;
  get.metrics[1].metricId = 77;
  ASSERT_EQ(nvml_.gpm_metrics(&get), nvml::kSuccess);
  EXPECT_EQ(get.metrics[0].nvmlReturn, nvml::kSuccess);
  EXPECT_GT(get.metrics[0].value, 0);
  EXPECT_EQ(get.metrics[1].nvmlReturn, nvml::kNotSupported);
  for (nvml::GpmSample sample : {first, last}) EXPECT_EQ(nvml_.gpm_free(sample), nvml::kSuccess);
}

TEST_F(UsageTest, MemoryAndProcessesAreThoseOfPrograms) {
  StartWithCuda("A100-80GB");
  program_->AddContext(0);
  ASSERT_TRUE(program_->TakeMemory(0, 3ULL << 20U));
  nvml::Memory memory{};
  ASSERT_EQ(nvml_.memory(Gpu0(), &memory), nvml::kSuccess);
  EXPECT_EQ(memory.used, 3ULL << 20U);
  unsigned count = 4;
  nvml::ProcessInfo infos[4];
  ASSERT_EQ(nvml_.compute_processes(Gpu0(), &count, infos), nvml::kSuccess);
  ASSERT_EQ(count, 1U);
  EXPECT_EQ(infos[0].pid, static_cast<unsigned>(getpid()));
  EXPECT_EQ(infos[0].usedGpuMemory, 3ULL << 20U);
  char name[64];
  ASSERT_EQ(nvml_.process_name(infos[0].pid, name, sizeof name), nvml::kSuccess);
  EXPECT_EQ(std::string(name), "simulator_test");
}

TEST_F(UsageTest, WhereNobodyKnowsNothingIsMadeUp) {
  Start("H200-141GB");
  nvml::Utilization utilization{};
  unsigned milliwatts = 0;
  EXPECT_EQ(nvml_.utilization(Gpu0(), &utilization), nvml::kNotSupported) << "not a CUDA GPU";
  Edit([](State& state) { state.gpus[0].uuid = cuda_simulator::UuidText(0); });
  EXPECT_EQ(nvml_.power(Gpu0(), &milliwatts), nvml::kSuccess) << "before the first program";
  EXPECT_EQ(milliwatts, 75'000U);
  Edit([](State& state) { state.gpus[0].mig = state.gpus[0].mig_pending = true; });
  EXPECT_EQ(nvml_.utilization(Gpu0(), &utilization), nvml::kNotSupported) << "in MIG mode";
  nvml::GpmSample sample = nullptr;
  ASSERT_EQ(nvml_.gpm_alloc(&sample), nvml::kSuccess);
  EXPECT_EQ(nvml_.gpm_mig_sample(Gpu0(), 1, sample), nvml::kNotSupported);
  EXPECT_EQ(nvml_.gpm_free(sample), nvml::kSuccess);
}

TEST_F(UsageTest, GpmIsStrict) {
  StartWithCuda("A100-80GB");
  nvml::GpmSupport support{.version = nvml::kGpmVersion, .isSupportedDevice = 7};
  ASSERT_EQ(nvml_.gpm_support(Gpu0(), &support), nvml::kSuccess);
  EXPECT_EQ(support.isSupportedDevice, 0U) << "before Hopper there is none";
  support.version = 2;
  EXPECT_EQ(nvml_.gpm_support(Gpu0(), &support), nvml::kArgumentVersionMismatch);
  nvml::GpmSample sample = nullptr;
  ASSERT_EQ(nvml_.gpm_alloc(&sample), nvml::kSuccess);
  EXPECT_EQ(nvml_.gpm_sample(Gpu0(), sample), nvml::kNotSupported);
  nvml::GpmMetricsGet get{.version = nvml::kGpmVersion,
                          .numMetrics = 1,
                          .sample1 = sample,
                          .sample2 = sample,
                          .metrics = {}};
  EXPECT_EQ(nvml_.gpm_metrics(&get), nvml::kInvalidArgument) << "nothing was sampled";
  get.version = 0;
  EXPECT_EQ(nvml_.gpm_metrics(&get), nvml::kArgumentVersionMismatch);
  EXPECT_EQ(nvml_.gpm_free(sample), nvml::kSuccess);
  EXPECT_EQ(nvml_.gpm_free(sample), nvml::kInvalidArgument) << "given back before";
}

}  // namespace
}  // namespace divvy::device::simulator
