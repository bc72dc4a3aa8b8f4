#include <gtest/gtest.h>

#include "device/simulator/operations.h"
#include "device/simulator/simulator_fixture.h"

namespace divvy::device::simulator {
namespace {

class MigModeTest : public SimulatorTest {
 protected:
  struct Mode {
    unsigned current;
    unsigned pending;

    friend bool operator==(const Mode&, const Mode&) = default;
  };

  Mode ModeNow() const {
    Mode mode{99, 99};
    EXPECT_EQ(nvml_.mig_mode(Gpu0(), &mode.current, &mode.pending), nvml::kSuccess);
    return mode;
  }

  // The activation status; the call itself must succeed.
  nvml::Return Set(unsigned mode) const {
    nvml::Return activation = nvml::kUnknown;
    EXPECT_EQ(nvml_.set_mig_mode(Gpu0(), mode, &activation), nvml::kSuccess);
    return activation;
  }

  void AddProcess() const {
    Edit([](State& state) {
      state.gpus[0].processes.push_back({42, "p", 0, ProcessKind::kCompute, {}, {}});
    });
  }
};

TEST_F(MigModeTest, AnIdleGpuChangesAtOnce) {
  Start("H200-141GB");
  EXPECT_EQ(ModeNow(), (Mode{0, 0}));
  EXPECT_EQ(Set(1), nvml::kSuccess);
  EXPECT_EQ(ModeNow(), (Mode{1, 1}));
  EXPECT_EQ(Set(0), nvml::kSuccess);
  EXPECT_EQ(ModeNow(), (Mode{0, 0}));
}

TEST_F(MigModeTest, ABusyGpuKeepsTheModePending) {
  Start("H200-141GB");
  AddProcess();
  EXPECT_EQ(Set(1), nvml::kInUse);
  EXPECT_EQ(ModeNow(), (Mode{0, 1}));
  // Asking for the mode it has takes the pending one back.
  EXPECT_EQ(Set(0), nvml::kSuccess);
  EXPECT_EQ(ModeNow(), (Mode{0, 0}));
  Edit([](State& state) { state.gpus[0].processes.clear(); });
  EXPECT_EQ(Set(1), nvml::kSuccess);
  EXPECT_EQ(ModeNow(), (Mode{1, 1}));
}

TEST_F(MigModeTest, InstancesHoldMigModeOn) {
  Start("H200-141GB+mig");
  nvml::GpuInstance instance = CreateAt(19, 0, 1);
  EXPECT_EQ(Set(0), nvml::kInUse);
  EXPECT_EQ(ModeNow(), (Mode{1, 0}));
  EXPECT_EQ(Stored().gpus[0].instances.size(), 1U);
  ASSERT_EQ(nvml_.destroy_gi(instance), nvml::kSuccess);
  EXPECT_EQ(Set(0), nvml::kSuccess);
  EXPECT_EQ(ModeNow(), (Mode{0, 0}));
}

TEST_F(MigModeTest, InAPassThroughVmARebootIsNeeded) {
  Start("H200-141GB");
  Edit([](State& state) { state.gpus[0].needs_reset = true; });
  EXPECT_EQ(Set(1), nvml::kResetRequired);
  EXPECT_EQ(ModeNow(), (Mode{0, 1}));
  EXPECT_EQ(TryCreateAt(19, 0, 1), nvml::kNotSupported);
  Edit([](State& state) { Reboot(state); });
  EXPECT_EQ(ModeNow(), (Mode{1, 1}));
  EXPECT_EQ(TryCreateAt(19, 0, 1), nvml::kSuccess);
}

TEST_F(MigModeTest, InstancesAndProcessesDoNotSurviveAReboot) {
  Start("H200-141GB+mig");
  nvml::GpuInstance instance = CreateAt(19, 0, 1);
  AddProcess();
  Edit([](State& state) { Reboot(state); });
  nvml::GpuInstanceInfo info{};
  EXPECT_EQ(nvml_.gi_info(instance, &info), nvml::kInvalidArgument);
  EXPECT_TRUE(Stored().gpus[0].processes.empty());
  EXPECT_EQ(ModeNow(), (Mode{1, 1}));
}

TEST_F(MigModeTest, WrongArgumentsChangeNothing) {
  Start("H200-141GB");
  nvml::Return activation = nvml::kSuccess;
  unsigned mode = 0;
  EXPECT_EQ(nvml_.set_mig_mode(Gpu0(), 2, &activation), nvml::kInvalidArgument);
  EXPECT_EQ(nvml_.set_mig_mode(Gpu0(), 1, nullptr), nvml::kInvalidArgument);
  EXPECT_EQ(nvml_.set_mig_mode(nullptr, 1, &activation), nvml::kInvalidArgument);
  EXPECT_EQ(nvml_.mig_mode(Gpu0(), &mode, nullptr), nvml::kInvalidArgument);
  EXPECT_EQ(nvml_.mig_mode(Gpu0(), nullptr, &mode), nvml::kInvalidArgument);
  EXPECT_EQ(ModeNow(), (Mode{0, 0}));
}

}  // namespace
}  // namespace divvy::device::simulator
