#include "device/simulator/simulator_fixture.h"

#include "device/simulator/gpu_spec.h"
#include "device/simulator/state_store.h"

namespace divvy::device::simulator {

SimulatorTest::SimulatorTest() : state_variable_("DIVVY_NVML_SIM_STATE", state_path()) {}

SimulatorTest::~SimulatorTest() {
  while (nvml_.shutdown() == nvml::kSuccess) {
  }
}

void SimulatorTest::Start(const std::string& gpus) {
  auto state = ParseGpuSpec(gpus);
  ASSERT_TRUE(state) << state.error().message;
  Store(*state);
  ASSERT_EQ(nvml_.init(), nvml::kSuccess);
}

void SimulatorTest::Store(const State& state) const {
  const StateLock lock(state_path());
  StateStore store(state_path());
  ASSERT_TRUE(store.Write(state));
}

State SimulatorTest::Stored() const {
  StateStore store(state_path());
  const auto state = store.Read();
  EXPECT_TRUE(state) << state.error().message;
  // The test has failed; with GPUs to look at it gets to its end.
  return state ? **state : *ParseGpuSpec("H200-141GB:2");
}

void SimulatorTest::Edit(const std::function<void(State&)>& edit) const {
  State state = Stored();
  edit(state);
  Store(state);
}

nvml::Device SimulatorTest::Gpu0() const {
  nvml::Device device = nullptr;
  EXPECT_EQ(nvml_.handle_by_index(0, &device), nvml::kSuccess);
  return device;
}

nvml::Return SimulatorTest::TryCreateAt(unsigned profile_id, unsigned start, unsigned size) const {
  const nvml::Placement placement{start, size};
  nvml::GpuInstance created = nullptr;
  return nvml_.create_gi_at(Gpu0(), profile_id, &placement, &created);
}

nvml::GpuInstance SimulatorTest::CreateAt(unsigned profile_id, unsigned start,
                                          unsigned size) const {
  const nvml::Placement placement{start, size};
  nvml::GpuInstance created = nullptr;
  EXPECT_EQ(nvml_.create_gi_at(Gpu0(), profile_id, &placement, &created), nvml::kSuccess);
  return created;
}

nvml::ComputeInstance SimulatorTest::CreateCompute(nvml::GpuInstance parent,
                                                   unsigned profile_id) const {
  nvml::ComputeInstance created = nullptr;
  EXPECT_EQ(nvml_.create_ci(parent, profile_id, &created), nvml::kSuccess);
  return created;
}

}  // namespace divvy::device::simulator
