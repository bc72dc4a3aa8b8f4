#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "device/simulator/nvml_client.h"

namespace divvy::device::simulator {

// A test with a state file of its own and the library loaded but not yet
// initialised; whatever it leaves initialised is shut down.
class SimulatorTest : public ::testing::Test {
 protected:
  SimulatorTest();
  ~SimulatorTest() override;

  // Makes the node and initialises the library.
  void Start(const std::string& gpus);

  // Puts `state` into the file, as the control tool does.
  void Store(const State& state) const;
  State Stored() const;

  // Changes the file by `edit`.
  void Edit(const std::function<void(State&)>& edit) const;

  nvml::Device Gpu0() const;

  // Each creates and expects to succeed.
  nvml::GpuInstance CreateAt(unsigned profile_id, unsigned start, unsigned size) const;
  nvml::ComputeInstance CreateCompute(nvml::GpuInstance parent, unsigned profile_id) const;

  // What creating answers, the handle aside.
  nvml::Return TryCreateAt(unsigned profile_id, unsigned start, unsigned size) const;

  std::string state_path() const { return folder_.File("state.json"); }
  std::string log() const { return ReadFile(state_path() + ".log"); }

  TemporaryFolder folder_;
  ScopedEnvironment state_variable_;
  NvmlClient nvml_;
};

}  // namespace divvy::device::simulator
