#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "device/simulator/simulator_fixture.h"

namespace divvy::device::simulator {
namespace {

using ::testing::HasSubstr;

using SharingTest = SimulatorTest;

TEST_F(SharingTest, ChangesOfOneProcessAreSeenByAnother) {
  Start("H200-141GB+mig");
  nvml::GpuInstance instance = CreateAt(19, 2, 1);
  const int status = RunInChild([&] {
    nvml::GpuInstanceInfo info{};
    EXPECT_EQ(nvml_.gi_info(instance, &info), nvml::kSuccess);  // Handles are the same for all.
    EXPECT_EQ(nvml_.destroy_gi(instance), nvml::kSuccess);
    CreateAt(9, 4, 4);
  });
  ASSERT_EQ(status, 0);
  nvml::GpuInstanceInfo info{};
  EXPECT_EQ(nvml_.gi_info(instance, &info), nvml::kInvalidArgument);
  nvml::GpuInstance found = nullptr;
  EXPECT_EQ(nvml_.gi_by_id(Gpu0(), 2, &found), nvml::kSuccess);
}

// Creates and destroys wherever there is room. Never waits, so that processes
// meet in every step.
void Churn(const NvmlClient& nvml, unsigned seed) {
  ASSERT_EQ(nvml.init(), nvml::kSuccess);
  nvml::Device device = nullptr;
  ASSERT_EQ(nvml.handle_by_index(0, &device), nvml::kSuccess);
  constexpr unsigned kProfiles[] = {19, 14, 9, 5};
  for (unsigned i = 0; i < 60; ++i) {
    nvml::GpuInstance created = nullptr;
    const nvml::Return code = nvml.create_gi(device, kProfiles[(i * 7 + seed) % 4], &created);
    if (code == nvml::kInsufficientResources) continue;
    ASSERT_EQ(code, nvml::kSuccess);
    // Ours while we hold it: nobody else knows the handle.
    nvml::GpuInstanceInfo info{};
    ASSERT_EQ(nvml.gi_info(created, &info), nvml::kSuccess);
    if ((i + seed) % 3 == 0) continue;
    ASSERT_EQ(nvml.destroy_gi(created), nvml::kSuccess);
  }
}

TEST_F(SharingTest, ConcurrentCreatesNeverOverlap) {
  const ScopedEnvironment gpus("DIVVY_NVML_SIM_GPUS", "H200-141GB+mig");
  const ScopedEnvironment log("DIVVY_NVML_SIM_LOG", "1");
  constexpr unsigned kProcesses = 4;
  std::vector<pid_t> children;
  for (unsigned i = 0; i < kProcesses; ++i) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    Churn(nvml_, i);
    _exit(HasFailure() ? 1 : 0);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  // Reading checks that the layout is legal. What is left is what the log says
  // was created and not destroyed: no write was lost.
  const State state = Stored();
  long balance = 0;
  std::istringstream lines(ReadFile(state_path() + ".log"));
  for (std::string line; std::getline(lines, line);) {
    if (!line.ends_with("result=SUCCESS")) continue;
    balance += line.find("CreateGpuInstance") != std::string::npos ? 1 : -1;
  }
  EXPECT_GT(balance, 0);
  EXPECT_EQ(static_cast<std::size_t>(balance), state.gpus[0].instances.size());
}

TEST_F(SharingTest, OneProcessMakesTheNodeAndTheOthersFindIt) {
  const ScopedEnvironment gpus("DIVVY_NVML_SIM_GPUS", "H200-141GB+mig");
  ASSERT_EQ(RunInChild([&] {
              ASSERT_EQ(nvml_.init(), nvml::kSuccess);
              CreateAt(19, 2, 1);
            }),
            0);
  ASSERT_EQ(nvml_.init(), nvml::kSuccess);
  EXPECT_EQ(Stored().gpus[0].instances.size(), 1U);
}

TEST_F(SharingTest, EditsByHandAreSeenAndChecked) {
  Start("H200-141GB+mig");
  unsigned count = 0;
  ASSERT_EQ(nvml_.device_count(&count), nvml::kSuccess);
  std::ofstream(state_path()) << "no JSON";
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(nvml_.device_count(&count), nvml::kGpuIsLost);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("not JSON"));
}

TEST_F(SharingTest, AFileThatMayNotBeWrittenMakesCallsUnprivileged) {
  Start("H200-141GB+mig");
  if (geteuid() == 0) {
    ASSERT_EQ(chmod(folder_.File("").c_str(), 0777), 0);
  }
  ASSERT_EQ(chmod(state_path().c_str(), 0444), 0);
  const State before = Stored();
  const int status = RunInChild([&] {
    // Root may write any file; nobody may not.
    if (geteuid() == 0) {
      ASSERT_EQ(seteuid(65534), 0);
    }
    EXPECT_EQ(TryCreateAt(19, 2, 1), nvml::kNoPermission);
    unsigned count = 0;
    EXPECT_EQ(nvml_.device_count(&count), nvml::kSuccess);
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Stored(), before);
}

TEST_F(SharingTest, TheLogHasEveryChangeAndWhatItWasAbout) {
  const ScopedEnvironment log_variable("DIVVY_NVML_SIM_LOG", "1");
  Start("H200-141GB+mig:2");
  nvml::GpuInstance instance = CreateAt(9, 4, 4);
  CreateCompute(instance, 2);
  EXPECT_EQ(nvml_.destroy_gi(instance), nvml::kInUse);
  nvml::Device second = nullptr;
  ASSERT_EQ(nvml_.handle_by_index(1, &second), nvml::kSuccess);
  nvml::Return activation = nvml::kUnknown;
  ASSERT_EQ(nvml_.set_mig_mode(second, 0, &activation), nvml::kSuccess);
  EXPECT_EQ(nvml_.destroy_gi(nullptr), nvml::kInvalidArgument);

  const std::string pid = "pid=" + std::to_string(getpid()) + " ";
  EXPECT_EQ(log(), pid +
                       "nvmlDeviceCreateGpuInstanceWithPlacement gpu=0 gi=2 ci=- profile=9 start=4 "
                       "result=SUCCESS\n" +
                       pid +
                       "nvmlGpuInstanceCreateComputeInstance gpu=0 gi=2 ci=0 profile=2 start=0 "
                       "result=SUCCESS\n" +
                       pid +
                       "nvmlGpuInstanceDestroy gpu=0 gi=2 ci=- profile=9 start=4 result=IN_USE\n" +
                       pid +
                       "nvmlDeviceSetMigMode gpu=1 gi=- ci=- profile=- start=- mode=0 "
                       "activation=SUCCESS result=SUCCESS\n" +
                       pid +
                       "nvmlGpuInstanceDestroy gpu=- gi=- ci=- profile=- start=- "
                       "result=INVALID_ARGUMENT\n");
}

TEST_F(SharingTest, WithoutTheVariableThereIsNoLog) {
  Start("H200-141GB+mig");
  CreateAt(9, 4, 4);
  EXPECT_NE(access((state_path() + ".log").c_str(), F_OK), 0);
}

}  // namespace
}  // namespace divvy::device::simulator
