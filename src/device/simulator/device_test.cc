#include <gtest/gtest.h>

#include <vector>

#include "device/simulator/simulator_fixture.h"

namespace divvy::device::simulator {
namespace {

constexpr unsigned long long kMib = 1ULL << 20U;

class DeviceTest : public SimulatorTest {
 protected:
  // A 3g.71gb at 4 over all of it, and its MIG device.
  nvml::Device CreateMigDevice() const {
    nvml::ComputeInstanceInfo info{};
    EXPECT_EQ(nvml_.ci_info(CreateCompute(CreateAt(9, 4, 4), 2), &info), nvml::kSuccess);
    return info.device;
  }

  void AddProcesses(const std::vector<Process>& processes) const {
    Edit([&](State& state) { state.gpus[0].processes = processes; });
  }
};

TEST_F(DeviceTest, AreFoundByIndexUuidAndBus) {
  Start("H200-141GB:2,A30-24GB");
  unsigned count = 0;
  ASSERT_EQ(nvml_.device_count(&count), nvml::kSuccess);
  EXPECT_EQ(count, 3U);
  nvml::Device second = nullptr;
  ASSERT_EQ(nvml_.handle_by_index(1, &second), nvml::kSuccess);
  nvml::Device found = nullptr;
  EXPECT_EQ(nvml_.handle_by_index(3, &found), nvml::kInvalidArgument);

  char uuid[nvml::kUuidBufferSize];
  ASSERT_EQ(nvml_.uuid(second, uuid, sizeof uuid), nvml::kSuccess);
  ASSERT_EQ(nvml_.handle_by_uuid(uuid, &found), nvml::kSuccess);
  EXPECT_EQ(found, second);
  EXPECT_EQ(nvml_.uuid(second, uuid, 40), nvml::kInsufficientSize);
  EXPECT_EQ(nvml_.handle_by_uuid("GPU-0", &found), nvml::kNotFound);
  EXPECT_EQ(nvml_.handle_by_uuid(nullptr, &found), nvml::kInvalidArgument);

  nvml::PciInfo pci{};
  ASSERT_EQ(nvml_.pci_info(second, &pci), nvml::kSuccess);
  EXPECT_EQ(pci.pciDeviceId, 0x233510DEU);
  ASSERT_EQ(nvml_.handle_by_pci_bus_id(pci.busId, &found), nvml::kSuccess);
  EXPECT_EQ(found, second);
  ASSERT_EQ(nvml_.handle_by_pci_bus_id(pci.busIdLegacy, &found), nvml::kSuccess);
  EXPECT_EQ(found, second);
  EXPECT_EQ(nvml_.handle_by_pci_bus_id("0000:77:00.0", &found), nvml::kNotFound);
  EXPECT_EQ(nvml_.handle_by_pci_bus_id("nonsense", &found), nvml::kInvalidArgument);

  unsigned number = 99;
  ASSERT_EQ(nvml_.index(second, &number), nvml::kSuccess);
  EXPECT_EQ(number, 1U);
  ASSERT_EQ(nvml_.minor_number(second, &number), nvml::kSuccess);
  EXPECT_EQ(number, 1U);
}

TEST_F(DeviceTest, ComputeModeIsOfWholeGpus) {
  Start("H200-141GB");
  nvml::ComputeMode mode = nvml::kComputeProhibited;
  ASSERT_EQ(nvml_.compute_mode(Gpu0(), &mode), nvml::kSuccess);
  EXPECT_EQ(mode, nvml::kComputeDefault);
  Edit([](State& state) { state.gpus[0].compute_mode = nvml::kComputeExclusiveProcess; });
  ASSERT_EQ(nvml_.compute_mode(Gpu0(), &mode), nvml::kSuccess);
  EXPECT_EQ(mode, nvml::kComputeExclusiveProcess);
  EXPECT_EQ(nvml_.compute_mode(Gpu0(), nullptr), nvml::kInvalidArgument);
  EXPECT_EQ(nvml_.compute_mode(nullptr, &mode), nvml::kInvalidArgument);
  Edit([](State& state) { state.gpus[0].mig = state.gpus[0].mig_pending = true; });
  EXPECT_EQ(nvml_.compute_mode(Gpu0(), &mode), nvml::kNotSupported);
}

TEST_F(DeviceTest, NamesSayThatTheyAreSimulated) {
  Start("H200-141GB+mig");
  char name[nvml::kNameBufferSize];
  ASSERT_EQ(nvml_.name(Gpu0(), name, sizeof name), nvml::kSuccess);
  EXPECT_STREQ(name, "NVIDIA H200-141GB (simulated)");
  ASSERT_EQ(nvml_.name(CreateMigDevice(), name, sizeof name), nvml::kSuccess);
  EXPECT_STREQ(name, "NVIDIA H200-141GB (simulated) MIG 3g.71gb");
  EXPECT_EQ(nvml_.name(Gpu0(), name, 10), nvml::kInsufficientSize);
}

TEST_F(DeviceTest, MemoryIsThatOfTheInstanceLessItsProcesses) {
  Start("H200-141GB+mig");
  nvml::Device mig = CreateMigDevice();
  AddProcesses({{42, "p", 1024, ProcessKind::kCompute, 2, 0},
                {43, "q", 100, ProcessKind::kCompute, {}, {}}});
  nvml::Memory memory{};
  ASSERT_EQ(nvml_.memory(mig, &memory), nvml::kSuccess);
  EXPECT_EQ(memory.total, 71424 * kMib);
  EXPECT_EQ(memory.used, 1024 * kMib);
  EXPECT_EQ(memory.free, memory.total - memory.used);
  ASSERT_EQ(nvml_.memory(Gpu0(), &memory), nvml::kSuccess);
  EXPECT_EQ(memory.total, 143360 * kMib);
  EXPECT_EQ(memory.used, 1124 * kMib);

  MemoryV2 newer{};
  newer.version = nvml::StructVersion<MemoryV2>(2);
  ASSERT_EQ(nvml_.memory_v2(mig, &newer), nvml::kSuccess);
  EXPECT_EQ(newer.used, 1024 * kMib);
  newer.version = 2;
  EXPECT_EQ(nvml_.memory_v2(mig, &newer), nvml::kArgumentVersionMismatch);
}

TEST_F(DeviceTest, AttributesAreThoseOfMigDevices) {
  Start("H200-141GB+mig");
  nvml::DeviceAttributes attributes{};
  EXPECT_EQ(nvml_.attributes(Gpu0(), &attributes), nvml::kNotSupported);
  ASSERT_EQ(nvml_.attributes(CreateMigDevice(), &attributes), nvml::kSuccess);
  EXPECT_EQ(attributes.multiprocessorCount, 60U);
  EXPECT_EQ(attributes.gpuInstanceSliceCount, 3U);
  EXPECT_EQ(attributes.computeInstanceSliceCount, 3U);
  EXPECT_EQ(attributes.memorySizeMB, 71424U);
}

TEST_F(DeviceTest, MigDevicesCannotBeUsedAsGpus) {
  Start("H200-141GB+mig");
  nvml::Device mig = CreateMigDevice();
  nvml::PciInfo pci{};
  nvml::GpuInstance created = nullptr;
  nvml::Return activation = nvml::kSuccess;
  unsigned value = 0;
  EXPECT_EQ(nvml_.pci_info(mig, &pci), nvml::kNotSupported);
  EXPECT_EQ(nvml_.mig_mode(mig, &value, &value), nvml::kInvalidArgument);
  EXPECT_EQ(nvml_.set_mig_mode(mig, 0, &activation), nvml::kInvalidArgument);
  EXPECT_EQ(nvml_.create_gi(mig, 19, &created), nvml::kInvalidArgument);
  ASSERT_EQ(nvml_.index(mig, &value), nvml::kSuccess);
  EXPECT_EQ(value, 0U);
}

TEST_F(DeviceTest, ProcessesAreListedByKindAndInstance) {
  Start("H200-141GB+mig");
  nvml::Device mig = CreateMigDevice();
  AddProcesses({{42, "train", 1024, ProcessKind::kCompute, 2, 0},
                {43, "monitor", 0, ProcessKind::kCompute, {}, {}},
                {44, "server", 7, ProcessKind::kMps, 2, 0},
                {45, "Xorg", 3, ProcessKind::kGraphics, {}, {}}});
  nvml::ProcessInfo infos[4] = {};
  unsigned count = 4;
  ASSERT_EQ(nvml_.compute_processes(Gpu0(), &count, infos), nvml::kSuccess);
  ASSERT_EQ(count, 2U);
  EXPECT_EQ(infos[0].pid, 42U);
  EXPECT_EQ(infos[0].usedGpuMemory, 1024 * kMib);
  EXPECT_EQ(infos[0].gpuInstanceId, 2U);
  EXPECT_EQ(infos[0].computeInstanceId, 0U);
  EXPECT_EQ(infos[1].gpuInstanceId, nvml::kNoInstance);
  count = 4;
  ASSERT_EQ(nvml_.compute_processes_v2(mig, &count, infos), nvml::kSuccess);
  EXPECT_EQ(count, 1U);
  count = 4;
  ASSERT_EQ(nvml_.mps_processes(mig, &count, infos), nvml::kSuccess);
  ASSERT_EQ(count, 1U);
  EXPECT_EQ(infos[0].pid, 44U);
  count = 4;
  ASSERT_EQ(nvml_.graphics_processes(Gpu0(), &count, infos), nvml::kSuccess);
  EXPECT_EQ(count, 1U);

  char name[4];
  ASSERT_EQ(nvml_.process_name(42, name, sizeof name), nvml::kSuccess);
  EXPECT_STREQ(name, "tra");
  EXPECT_EQ(nvml_.process_name(999, name, sizeof name), nvml::kNotFound);
}

TEST_F(DeviceTest, TooLittleRoomForProcessesGivesTheirNumber) {
  Start("H200-141GB");
  AddProcesses(
      {{42, "p", 1, ProcessKind::kCompute, {}, {}}, {43, "q", 1, ProcessKind::kCompute, {}, {}}});
  unsigned count = 0;
  EXPECT_EQ(nvml_.compute_processes(Gpu0(), &count, nullptr), nvml::kInsufficientSize);
  EXPECT_EQ(count, 2U);
  ProcessInfoV1 infos[2] = {};
  count = 1;
  EXPECT_EQ(nvml_.compute_processes_v1(Gpu0(), &count, infos), nvml::kInsufficientSize);
  EXPECT_EQ(infos[0].pid, 0U);
  count = 2;
  ASSERT_EQ(nvml_.compute_processes_v1(Gpu0(), &count, infos), nvml::kSuccess);
  EXPECT_EQ(infos[1].pid, 43U);
  AddProcesses({});
  count = 0;
  EXPECT_EQ(nvml_.compute_processes(Gpu0(), &count, nullptr), nvml::kSuccess);
  count = 1;
  EXPECT_EQ(nvml_.compute_processes(Gpu0(), &count, nullptr), nvml::kInvalidArgument);
  EXPECT_EQ(nvml_.compute_processes(Gpu0(), nullptr, nullptr), nvml::kInvalidArgument);
}

}  // namespace
}  // namespace divvy::device::simulator
