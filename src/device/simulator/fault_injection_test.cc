#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>

#include "device/simulator/gpu_spec.h"
#include "device/simulator/simulator_fixture.h"

namespace divvy::device::simulator {
namespace {

using ::testing::HasSubstr;

// Every test that counts calls does so in a child, whose count begins at one.
class FaultInjectionTest : public SimulatorTest {
 protected:
  FaultInjectionTest() {
    const auto state = ParseGpuSpec("H200-141GB+mig");
    EXPECT_TRUE(state);
    Store(*state);
  }

  // Initialises and runs `body` in a child under `rules`; gives the wait status.
  int RunUnder(const std::string& rules, const std::function<void()>& body) {
    const ScopedEnvironment faults("DIVVY_NVML_SIM_FAULTS", rules);
    return RunInChild([&] {
      ASSERT_EQ(nvml_.init(), nvml::kSuccess);
      body();
    });
  }

  static bool Killed(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }
};

TEST_F(FaultInjectionTest, TheNthCallFailsWithoutAnEffect) {
  const State before = Stored();
  EXPECT_EQ(RunUnder("nvmlDeviceCreateGpuInstanceWithPlacement@2=UNKNOWN",
                     [&] {
                       nvml::GpuInstance created = CreateAt(19, 0, 1);
                       EXPECT_EQ(TryCreateAt(19, 1, 1), nvml::kUnknown);
                       EXPECT_EQ(Stored().gpus[0].instances.size(), 1U);
                       EXPECT_EQ(nvml_.destroy_gi(created), nvml::kSuccess);
                       CreateAt(19, 1, 1);
                     }),
            0);
  EXPECT_EQ(Stored().gpus[0].instances.size(), before.gpus[0].instances.size() + 1);
}

TEST_F(FaultInjectionTest, EveryCallFailsUnderAStar) {
  EXPECT_EQ(RunUnder("nvmlGpuInstanceDestroy@*=19",
                     [&] {
                       nvml::GpuInstance created = CreateAt(19, 0, 1);
                       EXPECT_EQ(nvml_.destroy_gi(created), nvml::kInUse);
                       EXPECT_EQ(nvml_.destroy_gi(created), nvml::kInUse);
                     }),
            0);
}

TEST_F(FaultInjectionTest, AStarCountsEveryFunction) {
  // The calls are nvmlInit_v2, nvmlDeviceGetHandleByIndex_v2, and so on.
  EXPECT_EQ(RunUnder("*@3=TIMEOUT",
                     [&] {
                       unsigned count = 0;
                       EXPECT_EQ(nvml_.device_count(&count), nvml::kSuccess);
                       EXPECT_EQ(nvml_.device_count(&count), nvml::kTimeout);
                       EXPECT_EQ(nvml_.device_count(&count), nvml::kSuccess);
                     }),
            0);
}

TEST_F(FaultInjectionTest, AForkedChildCountsFromOne) {
  EXPECT_EQ(RunUnder("nvmlDeviceGetCount_v2@2=TIMEOUT",
                     [&] {
                       unsigned count = 0;
                       EXPECT_EQ(nvml_.device_count(&count), nvml::kSuccess);
                       EXPECT_EQ(RunInChild([&] {
                                   EXPECT_EQ(nvml_.device_count(&count), nvml::kSuccess);
                                   EXPECT_EQ(nvml_.device_count(&count), nvml::kTimeout);
                                 }),
                                 0);
                     }),
            0);
}

TEST_F(FaultInjectionTest, InitCanFail) {
  const ScopedEnvironment faults("DIVVY_NVML_SIM_FAULTS", "nvmlInit_v2@1=LIB_RM_VERSION_MISMATCH");
  EXPECT_EQ(RunInChild([&] {
              EXPECT_EQ(nvml_.init(), nvml::kLibRmVersionMismatch);
              unsigned count = 0;
              EXPECT_EQ(nvml_.device_count(&count), nvml::kUninitialized);
              EXPECT_EQ(nvml_.init(), nvml::kSuccess);
            }),
            0);
}

TEST_F(FaultInjectionTest, KillComesBeforeTheEffect) {
  const State before = Stored();
  const ScopedEnvironment log_variable("DIVVY_NVML_SIM_LOG", "1");
  EXPECT_TRUE(Killed(
      RunUnder("nvmlDeviceCreateGpuInstanceWithPlacement@1=kill", [&] { TryCreateAt(19, 0, 1); })));
  EXPECT_EQ(Stored(), before);
  EXPECT_THAT(log(), HasSubstr("gpu=0 gi=- ci=- profile=19 start=0 result=KILL"));
}

TEST_F(FaultInjectionTest, KillAfterComesAfterTheEffect) {
  EXPECT_TRUE(Killed(RunUnder("nvmlDeviceCreateGpuInstanceWithPlacement@1=kill-after",
                              [&] { TryCreateAt(19, 0, 1); })));
  EXPECT_EQ(Stored().gpus[0].instances.size(), 1U);
  // The killed process holds no lock.
  ASSERT_EQ(nvml_.init(), nvml::kSuccess);
  EXPECT_EQ(TryCreateAt(19, 0, 1), nvml::kInsufficientResources);
}

TEST_F(FaultInjectionTest, QueriesCanKillToo) {
  EXPECT_TRUE(Killed(RunUnder("nvmlDeviceGetCount_v2@2=kill", [&] {
    unsigned count = 0;
    EXPECT_EQ(nvml_.device_count(&count), nvml::kSuccess);
    nvml_.device_count(&count);
    ADD_FAILURE() << "still alive";
  })));
}

TEST_F(FaultInjectionTest, ActivationIsForcedAndTheModeStaysPending) {
  EXPECT_EQ(RunUnder("nvmlDeviceSetMigMode@1=activation:RESET_REQUIRED",
                     [&] {
                       nvml::Return activation = nvml::kSuccess;
                       EXPECT_EQ(nvml_.set_mig_mode(Gpu0(), 0, &activation), nvml::kSuccess);
                       EXPECT_EQ(activation, nvml::kResetRequired);
                     }),
            0);
  EXPECT_TRUE(Stored().gpus[0].mig);
  EXPECT_FALSE(Stored().gpus[0].mig_pending);
}

TEST_F(FaultInjectionTest, RulesInTheStateFileAreObeyedAtOnce) {
  EXPECT_EQ(RunUnder("",
                     [&] {
                       EXPECT_EQ(TryCreateAt(19, 0, 1), nvml::kSuccess);
                       Edit([](State& state) {
                         state.faults = "nvmlDeviceCreateGpuInstanceWithPlacement@1=IN_USE";
                       });
                       EXPECT_EQ(TryCreateAt(19, 1, 1), nvml::kInUse);
                       EXPECT_EQ(TryCreateAt(19, 1, 1), nvml::kSuccess);
                       Edit([](State& state) { state.faults.clear(); });
                       EXPECT_EQ(TryCreateAt(19, 2, 1), nvml::kSuccess);
                     }),
            0);
}

TEST_F(FaultInjectionTest, InjectedErrorsAreMarkedInTheLog) {
  const ScopedEnvironment log_variable("DIVVY_NVML_SIM_LOG", "1");
  EXPECT_EQ(RunUnder("nvmlGpuInstanceDestroy@1=IN_USE",
                     [&] { EXPECT_EQ(nvml_.destroy_gi(CreateAt(19, 0, 1)), nvml::kInUse); }),
            0);
  EXPECT_THAT(log(), HasSubstr("nvmlGpuInstanceDestroy gpu=0 gi=7 ci=- profile=19 start=0 "
                               "result=IN_USE injected\n"));
}

// A sweep over all calls: kill at the N-th for N = 1, 2, ... ends when a run
// gets through, at which point the count file says how many calls there were.
TEST_F(FaultInjectionTest, TheCountFileTellsASweepHowFarToGo) {
  const ScopedEnvironment count_file("DIVVY_NVML_SIM_COUNT_FILE", folder_.File("count"));
  const auto work = [&] {
    nvml::GpuInstance created = CreateAt(19, 0, 1);  // Two calls.
    EXPECT_EQ(nvml_.destroy_gi(created), nvml::kSuccess);
    EXPECT_EQ(nvml_.shutdown(), nvml::kSuccess);
  };
  ASSERT_EQ(RunUnder("", work), 0);
  EXPECT_EQ(ReadFile(folder_.File("count")), "5\n");
  const State before = Stored();
  for (int call = 1; call <= 5; ++call) {
    Store(before);
    EXPECT_TRUE(Killed(RunUnder("*@" + std::to_string(call) + "=kill", work))) << call;
    EXPECT_EQ(ReadFile(folder_.File("count")), std::to_string(call) + "\n");
  }
  Store(before);
  EXPECT_EQ(RunUnder("*@6=kill", work), 0);
}

}  // namespace
}  // namespace divvy::device::simulator
