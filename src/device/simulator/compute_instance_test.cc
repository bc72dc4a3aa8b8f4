#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/simulator/simulator_fixture.h"

namespace divvy::device::simulator {
namespace {

using ::testing::MatchesRegex;

constexpr unsigned k3g = 9;
constexpr unsigned k7g = 0;
constexpr unsigned k1c = 0;
constexpr unsigned k2c = 1;
constexpr unsigned k3c = 2;
constexpr unsigned k4c = 3;
constexpr unsigned k7c = 4;

class ComputeInstanceTest : public SimulatorTest {
 protected:
  std::string Uuid(nvml::Device device) const {
    char text[nvml::kUuidBufferSize] = "";
    EXPECT_EQ(nvml_.uuid(device, text, sizeof text), nvml::kSuccess);
    return text;
  }

  nvml::ComputeInstanceInfo Info(nvml::ComputeInstance instance) const {
    nvml::ComputeInstanceInfo info{};
    EXPECT_EQ(nvml_.ci_info(instance, &info), nvml::kSuccess);
    return info;
  }

  nvml::Return TryCreateAt(nvml::GpuInstance parent, unsigned profile, unsigned start,
                           unsigned size) const {
    const nvml::Placement placement{start, size};
    nvml::ComputeInstance created = nullptr;
    return nvml_.create_ci_at(parent, profile, &placement, &created);
  }
};

TEST_F(ComputeInstanceTest, ProfilesFitTheGpuInstance) {
  Start("H200-141GB+mig");
  nvml::GpuInstance parent = CreateAt(k3g, 4, 4);
  nvml::ComputeInstanceProfileInfo info{};
  ASSERT_EQ(nvml_.ci_profile(parent, k1c, 0, &info), nvml::kSuccess);
  EXPECT_EQ(info.id, k1c);
  EXPECT_EQ(info.sliceCount, 1U);
  EXPECT_EQ(info.instanceCount, 3U);
  EXPECT_EQ(info.multiprocessorCount, 20U);
  ASSERT_EQ(nvml_.ci_profile(parent, k3c, 0, &info), nvml::kSuccess);
  EXPECT_EQ(info.sliceCount, 3U);
  EXPECT_EQ(info.instanceCount, 1U);
  EXPECT_EQ(info.multiprocessorCount, 60U);
  EXPECT_EQ(info.sharedDecoderCount, 3U);
  EXPECT_EQ(nvml_.ci_profile(parent, k4c, 0, &info), nvml::kNotSupported);
  EXPECT_EQ(nvml_.ci_profile(parent, nvml::kComputeInstanceProfileCount, 0, &info),
            nvml::kInvalidArgument);
  EXPECT_EQ(nvml_.ci_profile(parent, k1c, 1, &info), nvml::kInvalidArgument);
  EXPECT_EQ(nvml_.ci_profile(parent, k1c, 0, nullptr), nvml::kInvalidArgument);
}

TEST_F(ComputeInstanceTest, AFourSliceInstanceOffersNoThree) {
  Start("H200-141GB+mig");
  nvml::GpuInstance parent = CreateAt(5, 0, 4);
  nvml::ComputeInstanceProfileInfo info{};
  EXPECT_EQ(nvml_.ci_profile(parent, k3c, 0, &info), nvml::kNotSupported);
  EXPECT_EQ(nvml_.ci_profile(parent, k4c, 0, &info), nvml::kSuccess);
}

TEST_F(ComputeInstanceTest, VersionedProfilesCarryNamesAndCheckTheVersion) {
  Start("H200-141GB+mig");
  nvml::GpuInstance parent = CreateAt(k3g, 4, 4);
  nvml::ComputeInstanceProfileInfoV2 info{};
  info.version = nvml::StructVersion<nvml::ComputeInstanceProfileInfoV2>(2);
  ASSERT_EQ(nvml_.ci_profile_v(parent, k2c, 0, &info), nvml::kSuccess);
  EXPECT_STREQ(info.name, "MIG 2c.3g.71gb");
  ASSERT_EQ(nvml_.ci_profile_v(parent, k3c, 0, &info), nvml::kSuccess);
  EXPECT_STREQ(info.name, "MIG 3g.71gb");
  info.version = 1;
  EXPECT_EQ(nvml_.ci_profile_v(parent, k2c, 0, &info), nvml::kArgumentVersionMismatch);
}

TEST_F(ComputeInstanceTest, SlicesAreTakenOnce) {
  Start("H200-141GB+mig");
  nvml::GpuInstance parent = CreateAt(k3g, 4, 4);
  nvml::ComputeInstance pair = CreateCompute(parent, k2c);
  EXPECT_EQ(Info(pair).placement.start, 0U);
  unsigned count = 99;
  ASSERT_EQ(nvml_.ci_capacity(parent, k1c, &count), nvml::kSuccess);
  EXPECT_EQ(count, 1U);
  EXPECT_EQ(TryCreateAt(parent, k1c, 1, 1), nvml::kInsufficientResources);
  EXPECT_EQ(TryCreateAt(parent, k3c, 0, 3), nvml::kInsufficientResources);
  nvml::ComputeInstance single = CreateCompute(parent, k1c);
  EXPECT_EQ(Info(single).placement.start, 2U);
  EXPECT_EQ(Info(single).id, 1U);
  nvml::ComputeInstance none = nullptr;
  EXPECT_EQ(nvml_.create_ci(parent, k1c, &none), nvml::kInsufficientResources);
}

TEST_F(ComputeInstanceTest, IllegalPlacesAreTheCallersMistake) {
  Start("H200-141GB+mig");
  nvml::GpuInstance parent = CreateAt(k7g, 0, 8);
  EXPECT_EQ(TryCreateAt(parent, k2c, 1, 2), nvml::kInvalidArgument);
  EXPECT_EQ(TryCreateAt(parent, k2c, 0, 3), nvml::kInvalidArgument);
  EXPECT_EQ(TryCreateAt(parent, k1c, 7, 1), nvml::kInvalidArgument);
  EXPECT_EQ(TryCreateAt(parent, k4c, 0, 4), nvml::kSuccess);
  EXPECT_EQ(TryCreateAt(parent, k3c, 4, 3), nvml::kSuccess);
}

TEST_F(ComputeInstanceTest, PlacementsAreInComputeSlices) {
  Start("H200-141GB+mig");
  nvml::GpuInstance parent = CreateAt(k7g, 0, 8);
  nvml::Placement placements[7] = {};
  unsigned count = 0;
  ASSERT_EQ(nvml_.ci_placements(parent, k2c, nullptr, &count), nvml::kSuccess);
  ASSERT_EQ(count, 3U);
  ASSERT_EQ(nvml_.ci_placements(parent, k2c, placements, &count), nvml::kSuccess);
  EXPECT_EQ(placements[2].start, 4U);
  EXPECT_EQ(placements[2].size, 2U);
  ASSERT_EQ(nvml_.ci_placements(parent, k7c, placements, &count), nvml::kSuccess);
  EXPECT_EQ(count, 1U);
}

TEST_F(ComputeInstanceTest, DestroyIsRefusedWhileAProcessRunsOnIt) {
  Start("H200-141GB+mig");
  nvml::GpuInstance parent = CreateAt(k3g, 4, 4);
  nvml::ComputeInstance busy = CreateCompute(parent, k1c);
  nvml::ComputeInstance idle = CreateCompute(parent, k1c);
  Edit([](State& state) {
    state.gpus[0].processes.push_back({42, "p", 0, ProcessKind::kCompute, 2, 0});
  });
  EXPECT_EQ(nvml_.destroy_ci(busy), nvml::kInUse);
  EXPECT_EQ(nvml_.destroy_ci(idle), nvml::kSuccess);
  EXPECT_EQ(Stored().gpus[0].instances[0].compute_instances.size(), 1U);
}

TEST_F(ComputeInstanceTest, InfoLeadsToTheMigDevice) {
  Start("H200-141GB+mig");
  nvml::GpuInstance parent = CreateAt(k3g, 4, 4);
  nvml::ComputeInstance compute = CreateCompute(parent, k3c);
  const nvml::ComputeInstanceInfo info = Info(compute);
  EXPECT_EQ(info.gpuInstance, parent);
  EXPECT_EQ(info.profileId, k3c);
  EXPECT_THAT(Uuid(info.device), MatchesRegex("MIG-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"));
  EXPECT_THAT(Uuid(Gpu0()), MatchesRegex("GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"));

  unsigned value = 99;
  ASSERT_EQ(nvml_.is_mig_device(info.device, &value), nvml::kSuccess);
  EXPECT_EQ(value, 1U);
  ASSERT_EQ(nvml_.is_mig_device(Gpu0(), &value), nvml::kSuccess);
  EXPECT_EQ(value, 0U);
  ASSERT_EQ(nvml_.gi_id(info.device, &value), nvml::kSuccess);
  EXPECT_EQ(value, 2U);
  ASSERT_EQ(nvml_.ci_id(info.device, &value), nvml::kSuccess);
  EXPECT_EQ(value, 0U);
  EXPECT_EQ(nvml_.gi_id(Gpu0(), &value), nvml::kInvalidArgument);
  nvml::Device device = nullptr;
  ASSERT_EQ(nvml_.parent_device(info.device, &device), nvml::kSuccess);
  EXPECT_EQ(device, Gpu0());
  ASSERT_EQ(nvml_.handle_by_uuid(Uuid(info.device).c_str(), &device), nvml::kSuccess);
  EXPECT_EQ(device, info.device);
}

TEST_F(ComputeInstanceTest, EachGetsAUuidOfItsOwn) {
  Start("H200-141GB+mig:2");
  nvml::GpuInstance parent = CreateAt(k3g, 4, 4);
  nvml::ComputeInstance first = CreateCompute(parent, k3c);
  nvml::Device stale = Info(first).device;
  const std::string before = Uuid(stale);
  ASSERT_EQ(nvml_.destroy_ci(first), nvml::kSuccess);
  nvml::ComputeInstance second = CreateCompute(parent, k3c);
  EXPECT_NE(Uuid(Info(second).device), before);
  nvml::Device found = nullptr;
  EXPECT_EQ(nvml_.handle_by_uuid(before.c_str(), &found), nvml::kNotFound);
  char text[nvml::kUuidBufferSize];
  EXPECT_EQ(nvml_.uuid(stale, text, sizeof text), nvml::kInvalidArgument);
}

TEST_F(ComputeInstanceTest, OnlyGpuInstancesWithAComputeInstanceAreMigDevices) {
  Start("H200-141GB+mig");
  nvml::GpuInstance left = CreateAt(k3g, 0, 4);
  nvml::GpuInstance parent = CreateAt(k3g, 4, 4);
  nvml::Device device = nullptr;
  EXPECT_EQ(nvml_.mig_device_by_index(Gpu0(), 0, &device), nvml::kNotFound);
  nvml::ComputeInstance compute = CreateCompute(parent, k3c);
  ASSERT_EQ(nvml_.mig_device_by_index(Gpu0(), 0, &device), nvml::kSuccess);
  EXPECT_EQ(device, Info(compute).device);
  EXPECT_EQ(nvml_.mig_device_by_index(Gpu0(), 1, &device), nvml::kNotFound);
  EXPECT_EQ(nvml_.mig_device_by_index(Gpu0(), 7, &device), nvml::kInvalidArgument);
  unsigned count = 0;
  ASSERT_EQ(nvml_.max_mig_devices(Gpu0(), &count), nvml::kSuccess);
  EXPECT_EQ(count, 7U);

  // A second one comes first, since its GPU instance has the lower id.
  nvml::ComputeInstance second = CreateCompute(left, k3c);
  ASSERT_EQ(nvml_.mig_device_by_index(Gpu0(), 0, &device), nvml::kSuccess);
  EXPECT_EQ(device, Info(second).device);
  ASSERT_EQ(nvml_.mig_device_by_index(Gpu0(), 1, &device), nvml::kSuccess);
  EXPECT_EQ(device, Info(compute).device);
  ASSERT_EQ(nvml_.index(device, &count), nvml::kSuccess);
  EXPECT_EQ(count, 1U);
}

TEST_F(ComputeInstanceTest, AreListedByProfileAndFoundById) {
  Start("H200-141GB+mig");
  nvml::GpuInstance parent = CreateAt(k3g, 4, 4);
  nvml::ComputeInstance pair = CreateCompute(parent, k2c);
  nvml::ComputeInstance single = CreateCompute(parent, k1c);
  nvml::ComputeInstance listed[3] = {};
  unsigned count = 0;
  ASSERT_EQ(nvml_.compute_instances(parent, k1c, listed, &count), nvml::kSuccess);
  ASSERT_EQ(count, 1U);
  EXPECT_EQ(listed[0], single);
  nvml::ComputeInstance found = nullptr;
  ASSERT_EQ(nvml_.ci_by_id(parent, 0, &found), nvml::kSuccess);
  EXPECT_EQ(found, pair);
  EXPECT_EQ(nvml_.ci_by_id(parent, 5, &found), nvml::kNotFound);
  EXPECT_EQ(nvml_.compute_instances(parent, k1c, nullptr, &count), nvml::kInvalidArgument);
}

}  // namespace
}  // namespace divvy::device::simulator
