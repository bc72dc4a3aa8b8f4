#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "device/simulator/simulator_fixture.h"

namespace divvy::device::simulator {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class InitialisationTest : public SimulatorTest {
 protected:
  // What nvmlInit answers, and the line it writes to standard error.
  nvml::Return Init() {
    ::testing::internal::CaptureStderr();
    const nvml::Return code = nvml_.init();
    complaint_ = ::testing::internal::GetCapturedStderr();
    return code;
  }

  std::string complaint_;
};

TEST_F(InitialisationTest, WithoutAStateFileTheDriverIsNotLoaded) {
  EXPECT_EQ(Init(), nvml::kDriverNotLoaded);
  EXPECT_THAT(complaint_, HasSubstr("DIVVY_NVML_SIM_GPUS"));
  EXPECT_THAT(complaint_, HasSubstr(state_path()));

  unsetenv("DIVVY_NVML_SIM_STATE");
  EXPECT_EQ(Init(), nvml::kDriverNotLoaded);
  EXPECT_THAT(complaint_, HasSubstr("DIVVY_NVML_SIM_STATE"));
  EXPECT_EQ(std::count(complaint_.begin(), complaint_.end(), '\n'), 1);
}

TEST_F(InitialisationTest, MakesTheNodeThatTheEnvironmentNames) {
  const ScopedEnvironment gpus("DIVVY_NVML_SIM_GPUS", "A100-40GB:2,A30-24GB+mig");
  ASSERT_EQ(Init(), nvml::kSuccess);
  const State state = Stored();
  ASSERT_EQ(state.gpus.size(), 3U);
  EXPECT_EQ(state.gpus[1].model->name, "A100-40GB");
  EXPECT_FALSE(state.gpus[1].mig);
  EXPECT_EQ(state.gpus[2].model->name, "A30-24GB");
  EXPECT_TRUE(state.gpus[2].mig);
}

TEST_F(InitialisationTest, AnExistingFileWinsOverTheEnvironment) {
  Start("H200-141GB");
  ASSERT_EQ(nvml_.shutdown(), nvml::kSuccess);
  const ScopedEnvironment gpus("DIVVY_NVML_SIM_GPUS", "A100-40GB:2");
  ASSERT_EQ(Init(), nvml::kSuccess);
  EXPECT_EQ(Stored().gpus.size(), 1U);
}

TEST_F(InitialisationTest, AnUnknownGpuIsNamed) {
  const ScopedEnvironment gpus("DIVVY_NVML_SIM_GPUS", "H2000");
  EXPECT_EQ(Init(), nvml::kUnknown);
  EXPECT_THAT(complaint_, HasSubstr("'H2000'"));
}

TEST_F(InitialisationTest, ADamagedFileIsRefusedAndLeftAlone) {
  std::ofstream(state_path()) << "{\"divvy_nvml_sim\": 1,";
  const ScopedEnvironment gpus("DIVVY_NVML_SIM_GPUS", "H200-141GB");
  EXPECT_EQ(Init(), nvml::kUnknown);
  EXPECT_THAT(complaint_, HasSubstr(state_path()));
  EXPECT_EQ(std::count(complaint_.begin(), complaint_.end(), '\n'), 1);
  EXPECT_EQ(ReadFile(state_path()), "{\"divvy_nvml_sim\": 1,");
}

TEST_F(InitialisationTest, ABadFaultRuleIsNamed) {
  Start("H200-141GB");
  ASSERT_EQ(nvml_.shutdown(), nvml::kSuccess);
  const ScopedEnvironment faults("DIVVY_NVML_SIM_FAULTS", "nvmlInit@1=kill;nvmlFrob@1=kill");
  EXPECT_EQ(Init(), nvml::kUnknown);
  EXPECT_THAT(complaint_, HasSubstr("nvmlFrob@1=kill"));
}

TEST_F(InitialisationTest, CallsNeedIt) {
  unsigned count = 0;
  EXPECT_EQ(nvml_.device_count(&count), nvml::kUninitialized);
  EXPECT_EQ(nvml_.shutdown(), nvml::kUninitialized);
  nvml::Device device = nullptr;
  nvml::Return activation = nvml::kSuccess;
  EXPECT_EQ(nvml_.set_mig_mode(device, 1, &activation), nvml::kUninitialized);
}

TEST_F(InitialisationTest, ShutdownsAreCounted) {
  Start("H200-141GB");
  ASSERT_EQ(nvml_.init_v1(), nvml::kSuccess);
  ASSERT_EQ(nvml_.init_with_flags(0), nvml::kSuccess);
  ASSERT_EQ(nvml_.shutdown(), nvml::kSuccess);
  ASSERT_EQ(nvml_.shutdown(), nvml::kSuccess);
  unsigned count = 0;
  EXPECT_EQ(nvml_.device_count(&count), nvml::kSuccess);
  ASSERT_EQ(nvml_.shutdown(), nvml::kSuccess);
  EXPECT_EQ(nvml_.device_count(&count), nvml::kUninitialized);
  EXPECT_EQ(nvml_.shutdown(), nvml::kUninitialized);
}

TEST_F(InitialisationTest, SaysThatItIsASimulator) {
  Start("H200-141GB");
  char text[nvml::kVersionBufferSize];
  ASSERT_EQ(nvml_.driver_version(text, sizeof text), nvml::kSuccess);
  EXPECT_THAT(text, HasSubstr("sim"));
  EXPECT_EQ(nvml_.driver_version(text, 4), nvml::kInsufficientSize);
  EXPECT_EQ(nvml_.driver_version(nullptr, 80), nvml::kInvalidArgument);
  ASSERT_EQ(nvml_.nvml_version(text, sizeof text), nvml::kSuccess);
  EXPECT_THAT(text, StartsWith("13."));
  int cuda = 0;
  ASSERT_EQ(nvml_.cuda_version(&cuda), nvml::kSuccess);
  EXPECT_EQ(cuda, 13000);
  EXPECT_STREQ(nvml_.error_string(nvml::kInUse), "IN_USE");
  EXPECT_STREQ(nvml_.error_string(static_cast<nvml::Return>(555)), "UNKNOWN");
}

TEST_F(InitialisationTest, AFileThatVanishesLosesTheGpus) {
  Start("H200-141GB");
  ASSERT_EQ(std::remove(state_path().c_str()), 0);
  unsigned count = 0;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(nvml_.device_count(&count), nvml::kGpuIsLost);
  EXPECT_EQ(nvml_.shutdown(), nvml::kSuccess);
  EXPECT_EQ(nvml_.shutdown(), nvml::kUninitialized);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr(state_path()));
}

}  // namespace
}  // namespace divvy::device::simulator
