#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/simulator/gpu_spec.h"
#include "device/simulator/simulator_fixture.h"

namespace divvy::device::simulator {
namespace {

// Profile ids of H200-141GB.
constexpr unsigned k1g = 19;
constexpr unsigned k1gMedia = 20;
constexpr unsigned k2g = 14;
constexpr unsigned k3g = 9;
constexpr unsigned k4g = 5;
constexpr unsigned k7g = 0;

using GpuInstanceTest = SimulatorTest;

TEST_F(GpuInstanceTest, IllegalPlacesAreTheCallersMistake) {
  Start("H200-141GB+mig");
  EXPECT_EQ(TryCreateAt(k3g, 2, 4), nvml::kInvalidArgument);           // Not a start.
  EXPECT_EQ(TryCreateAt(k3g, 4, 3), nvml::kInvalidArgument);           // Not the size.
  EXPECT_EQ(TryCreateAt(k1g, 7, 1), nvml::kInvalidArgument);           // Out of reach of 1g.
  EXPECT_EQ(TryCreateAt(k1g, 0xFFFFFFFF, 1), nvml::kInvalidArgument);  // Wraps when signed.
  EXPECT_EQ(TryCreateAt(77, 0, 1), nvml::kInvalidArgument);            // No such profile.
  EXPECT_TRUE(Stored().gpus[0].instances.empty());
}

TEST_F(GpuInstanceTest, WhatIsTakenIsInsufficient) {
  Start("H200-141GB+mig");
  CreateAt(k3g, 4, 4);
  EXPECT_EQ(TryCreateAt(k3g, 4, 4), nvml::kInsufficientResources);  // The same place.
  EXPECT_EQ(TryCreateAt(k1g, 6, 1), nvml::kInsufficientResources);  // A slice of it.
  EXPECT_EQ(TryCreateAt(k7g, 0, 8), nvml::kInsufficientResources);  // All of it and more.
  EXPECT_EQ(TryCreateAt(k4g, 0, 4), nvml::kSuccess);
}

TEST_F(GpuInstanceTest, CountsAndEnginesAreLimited) {
  Start("H200-141GB+mig");
  CreateAt(k1gMedia, 0, 1);
  EXPECT_EQ(TryCreateAt(k1gMedia, 1, 1), nvml::kInsufficientResources);
}

TEST_F(GpuInstanceTest, DriverPicksTheLowestFreeStart) {
  Start("H200-141GB+mig");
  CreateAt(k1g, 0, 1);
  nvml::GpuInstance created = nullptr;
  ASSERT_EQ(nvml_.create_gi(Gpu0(), k2g, &created), nvml::kSuccess);
  nvml::GpuInstanceInfo info{};
  ASSERT_EQ(nvml_.gi_info(created, &info), nvml::kSuccess);
  EXPECT_EQ(info.placement.start, 2U);
  EXPECT_EQ(info.placement.size, 2U);
  EXPECT_EQ(info.profileId, k2g);
  EXPECT_EQ(info.device, Gpu0());
  EXPECT_EQ(nvml_.create_gi(Gpu0(), k7g, &created), nvml::kInsufficientResources);
}

TEST_F(GpuInstanceTest, IdsFollowThePlaceAsOnSevenSliceGpus) {
  Start("H200-141GB+mig");
  const auto id_at = [&](unsigned profile, unsigned start, unsigned size) {
    nvml::GpuInstance created = CreateAt(profile, start, size);
    nvml::GpuInstanceInfo info{};
    EXPECT_EQ(nvml_.gi_info(created, &info), nvml::kSuccess);
    EXPECT_EQ(nvml_.destroy_gi(created), nvml::kSuccess);
    return info.id;
  };
  EXPECT_EQ(id_at(k7g, 0, 8), 0U);
  EXPECT_EQ(id_at(k4g, 0, 4), 1U);
  EXPECT_EQ(id_at(k3g, 4, 4), 2U);
  EXPECT_EQ(id_at(k2g, 4, 2), 5U);
  EXPECT_EQ(id_at(k1g, 6, 1), 13U);
}

TEST_F(GpuInstanceTest, DestroyIsRefusedWhileItIsUsed) {
  Start("H200-141GB+mig");
  nvml::GpuInstance instance = CreateAt(k3g, 4, 4);
  nvml::ComputeInstance compute = CreateCompute(instance, 2);
  EXPECT_EQ(nvml_.destroy_gi(instance), nvml::kInUse);
  ASSERT_EQ(nvml_.destroy_ci(compute), nvml::kSuccess);
  Edit([](State& state) {
    state.gpus[0].processes.push_back({42, "p", 0, ProcessKind::kCompute, 2, {}});
  });
  EXPECT_EQ(nvml_.destroy_gi(instance), nvml::kInUse);
  EXPECT_EQ(Stored().gpus[0].instances.size(), 1U);
  Edit([](State& state) { state.gpus[0].processes.clear(); });
  EXPECT_EQ(nvml_.destroy_gi(instance), nvml::kSuccess);
  EXPECT_TRUE(Stored().gpus[0].instances.empty());
}

TEST_F(GpuInstanceTest, ProcessesElsewhereDoNotHoldIt) {
  Start("H200-141GB+mig");
  nvml::GpuInstance idle = CreateAt(k3g, 4, 4);
  CreateAt(k3g, 0, 4);
  Edit([](State& state) {
    state.gpus[0].processes.push_back({42, "p", 0, ProcessKind::kCompute, 1, {}});
    state.gpus[0].processes.push_back({43, "monitor", 0, ProcessKind::kCompute, {}, {}});
  });
  EXPECT_EQ(nvml_.destroy_gi(idle), nvml::kSuccess);
}

TEST_F(GpuInstanceTest, StaleHandlesAreInvalidEvenWhenThePlaceIsTakenAgain) {
  Start("H200-141GB+mig");
  nvml::GpuInstance stale = CreateAt(k1g, 2, 1);
  nvml::ComputeInstance stale_compute = CreateCompute(stale, 0);
  ASSERT_EQ(nvml_.destroy_ci(stale_compute), nvml::kSuccess);
  ASSERT_EQ(nvml_.destroy_gi(stale), nvml::kSuccess);
  nvml::GpuInstance successor = CreateAt(k1g, 2, 1);
  CreateCompute(successor, 0);

  nvml::GpuInstanceInfo info{};
  nvml::ComputeInstanceInfo compute_info{};
  nvml::ComputeInstance created = nullptr;
  EXPECT_NE(stale, successor);
  EXPECT_EQ(nvml_.gi_info(stale, &info), nvml::kInvalidArgument);
  EXPECT_EQ(nvml_.destroy_gi(stale), nvml::kInvalidArgument);
  EXPECT_EQ(nvml_.create_ci(stale, 0, &created), nvml::kInvalidArgument);
  EXPECT_EQ(nvml_.ci_info(stale_compute, &compute_info), nvml::kInvalidArgument);
  EXPECT_EQ(nvml_.destroy_ci(stale_compute), nvml::kInvalidArgument);
  EXPECT_EQ(Stored().gpus[0].instances.size(), 1U);
}

TEST_F(GpuInstanceTest, HandlesOfAnotherKindAreInvalid) {
  Start("H200-141GB+mig");
  nvml::GpuInstance instance = CreateAt(k1g, 2, 1);
  nvml::ComputeInstance compute = CreateCompute(instance, 0);
  int on_the_stack = 0;
  EXPECT_EQ(nvml_.destroy_gi(reinterpret_cast<nvml::GpuInstance>(compute)), nvml::kInvalidArgument);
  EXPECT_EQ(nvml_.destroy_ci(reinterpret_cast<nvml::ComputeInstance>(instance)),
            nvml::kInvalidArgument);
  EXPECT_EQ(nvml_.destroy_gi(reinterpret_cast<nvml::GpuInstance>(&on_the_stack)),
            nvml::kInvalidArgument);
  EXPECT_EQ(nvml_.destroy_gi(nullptr), nvml::kInvalidArgument);
}

TEST_F(GpuInstanceTest, WithoutMigModeThereAreNoInstances) {
  Start("H200-141GB");
  nvml::GpuInstance instances[8];
  nvml::GpuInstance created = nullptr;
  nvml::Device mig = nullptr;
  unsigned count = 99;
  EXPECT_EQ(TryCreateAt(k1g, 0, 1), nvml::kNotSupported);
  EXPECT_EQ(nvml_.create_gi(Gpu0(), k1g, &created), nvml::kNotSupported);
  EXPECT_EQ(nvml_.gpu_instances(Gpu0(), k1g, instances, &count), nvml::kNotSupported);
  EXPECT_EQ(nvml_.gi_by_id(Gpu0(), 7, &created), nvml::kNotSupported);
  EXPECT_EQ(nvml_.gi_capacity(Gpu0(), k1g, &count), nvml::kNotSupported);
  EXPECT_EQ(nvml_.mig_device_by_index(Gpu0(), 0, &mig), nvml::kNotSupported);
  ASSERT_EQ(nvml_.max_mig_devices(Gpu0(), &count), nvml::kSuccess);
  EXPECT_EQ(count, 0U);

  // What is possible can be asked before MIG mode is on.
  nvml::GpuInstanceProfileInfo info{};
  EXPECT_EQ(nvml_.gi_profile(Gpu0(), 0, &info), nvml::kSuccess);
  EXPECT_EQ(nvml_.gi_placements(Gpu0(), k1g, nullptr, &count), nvml::kSuccess);
  EXPECT_EQ(count, 7U);
}

TEST_F(GpuInstanceTest, ProfilesAreListedByEnumeration) {
  Start("H200-141GB+mig");
  nvml::GpuInstanceProfileInfo info{};
  ASSERT_EQ(nvml_.gi_profile(Gpu0(), 2, &info), nvml::kSuccess);
  EXPECT_EQ(info.id, k3g);
  EXPECT_EQ(info.sliceCount, 3U);
  EXPECT_EQ(info.instanceCount, 2U);
  EXPECT_EQ(info.multiprocessorCount, 60U);
  EXPECT_EQ(info.memorySizeMB, 71424U);
  EXPECT_EQ(info.decoderCount, 3U);
  EXPECT_EQ(nvml_.gi_profile(Gpu0(), 5, &info), nvml::kNotSupported);  // No 8-slice profile.
  EXPECT_EQ(nvml_.gi_profile(Gpu0(), nvml::kGpuInstanceProfileCount, &info),
            nvml::kInvalidArgument);
  EXPECT_EQ(nvml_.gi_profile(Gpu0(), 0, nullptr), nvml::kInvalidArgument);
}

TEST_F(GpuInstanceTest, VersionedProfilesCarryNamesAndCheckTheVersion) {
  Start("H200-141GB+mig");
  nvml::GpuInstanceProfileInfoV2 info{};
  info.version = nvml::StructVersion<nvml::GpuInstanceProfileInfoV2>(2);
  ASSERT_EQ(nvml_.gi_profile_v(Gpu0(), 7, &info), nvml::kSuccess);
  EXPECT_STREQ(info.name, "MIG 1g.18gb+me");
  EXPECT_EQ(info.id, k1gMedia);
  for (const unsigned version : {0U, 2U, nvml::StructVersion<nvml::GpuInstanceProfileInfoV2>(1)}) {
    info.version = version;
    EXPECT_EQ(nvml_.gi_profile_v(Gpu0(), 7, &info), nvml::kArgumentVersionMismatch);
  }
}

TEST_F(GpuInstanceTest, PlacementsAreThoseOfTheCatalogue) {
  Start("H200-141GB+mig");
  nvml::Placement placements[8] = {};
  unsigned count = 0;
  ASSERT_EQ(nvml_.gi_placements(Gpu0(), k2g, placements, &count), nvml::kSuccess);
  ASSERT_EQ(count, 3U);
  EXPECT_EQ(placements[2].start, 4U);
  EXPECT_EQ(placements[2].size, 2U);
  EXPECT_EQ(nvml_.gi_placements(Gpu0(), k2g, placements, nullptr), nvml::kInvalidArgument);
  EXPECT_EQ(nvml_.gi_placements(Gpu0(), 77, placements, &count), nvml::kInvalidArgument);
}

TEST_F(GpuInstanceTest, CapacityShrinksWithWhatIsTaken) {
  Start("H200-141GB+mig");
  unsigned count = 0;
  ASSERT_EQ(nvml_.gi_capacity(Gpu0(), k1g, &count), nvml::kSuccess);
  EXPECT_EQ(count, 7U);
  CreateAt(k3g, 4, 4);
  ASSERT_EQ(nvml_.gi_capacity(Gpu0(), k1g, &count), nvml::kSuccess);
  EXPECT_EQ(count, 4U);
  ASSERT_EQ(nvml_.gi_capacity(Gpu0(), k7g, &count), nvml::kSuccess);
  EXPECT_EQ(count, 0U);
}

TEST_F(GpuInstanceTest, InstancesAreListedByProfileAndFoundById) {
  Start("H200-141GB+mig");
  nvml::GpuInstance first = CreateAt(k1g, 1, 1);
  nvml::GpuInstance second = CreateAt(k1g, 3, 1);
  CreateAt(k3g, 4, 4);
  nvml::GpuInstance listed[7] = {};
  unsigned count = 0;
  ASSERT_EQ(nvml_.gpu_instances(Gpu0(), k1g, listed, &count), nvml::kSuccess);
  ASSERT_EQ(count, 2U);
  EXPECT_EQ(listed[0], first);
  EXPECT_EQ(listed[1], second);
  EXPECT_EQ(nvml_.gpu_instances(Gpu0(), k1g, nullptr, &count), nvml::kInvalidArgument);
  nvml::GpuInstance found = nullptr;
  ASSERT_EQ(nvml_.gi_by_id(Gpu0(), 10, &found), nvml::kSuccess);
  EXPECT_EQ(found, second);
  EXPECT_EQ(nvml_.gi_by_id(Gpu0(), 11, &found), nvml::kNotFound);
}

TEST_F(GpuInstanceTest, AdministratorsCallsAreRefusedToOthers) {
  const ScopedEnvironment unprivileged("DIVVY_NVML_SIM_UNPRIVILEGED", "1");
  auto state = ParseGpuSpec("H200-141GB+mig");
  ASSERT_TRUE(state);
  Store(*state);
  ASSERT_EQ(nvml_.init(), nvml::kSuccess);
  nvml::GpuInstance instances[8];
  nvml::GpuInstance created = nullptr;
  nvml::Return activation = nvml::kSuccess;
  unsigned count = 0;
  EXPECT_EQ(TryCreateAt(k1g, 0, 1), nvml::kNoPermission);
  EXPECT_EQ(nvml_.create_gi(Gpu0(), k1g, &created), nvml::kNoPermission);
  EXPECT_EQ(nvml_.gpu_instances(Gpu0(), k1g, instances, &count), nvml::kNoPermission);
  EXPECT_EQ(nvml_.gi_by_id(Gpu0(), 7, &created), nvml::kNoPermission);
  EXPECT_EQ(nvml_.gi_capacity(Gpu0(), k1g, &count), nvml::kNoPermission);
  EXPECT_EQ(nvml_.gi_placements(Gpu0(), k1g, nullptr, &count), nvml::kNoPermission);
  EXPECT_EQ(nvml_.set_mig_mode(Gpu0(), 0, &activation), nvml::kNoPermission);
  EXPECT_EQ(nvml_.compute_processes(Gpu0(), &count, nullptr), nvml::kNoPermission);
  nvml::GpuInstanceProfileInfo info{};
  EXPECT_EQ(nvml_.gi_profile(Gpu0(), 0, &info), nvml::kSuccess);
  EXPECT_EQ(Stored(), *state);
}

TEST_F(GpuInstanceTest, NullArgumentsAreInvalid) {
  Start("H200-141GB+mig");
  nvml::GpuInstance created = nullptr;
  const nvml::Placement placement{0, 1};
  EXPECT_EQ(nvml_.create_gi(Gpu0(), k1g, nullptr), nvml::kInvalidArgument);
  EXPECT_EQ(nvml_.create_gi(nullptr, k1g, &created), nvml::kInvalidArgument);
  EXPECT_EQ(nvml_.create_gi_at(Gpu0(), k1g, nullptr, &created), nvml::kInvalidArgument);
  EXPECT_EQ(nvml_.create_gi_at(Gpu0(), k1g, &placement, nullptr), nvml::kInvalidArgument);
  EXPECT_EQ(nvml_.gi_info(CreateAt(k1g, 0, 1), nullptr), nvml::kInvalidArgument);
  EXPECT_EQ(nvml_.gi_by_id(Gpu0(), 7, nullptr), nvml::kInvalidArgument);
  EXPECT_EQ(nvml_.gi_capacity(Gpu0(), k1g, nullptr), nvml::kInvalidArgument);
}

}  // namespace
}  // namespace divvy::device::simulator
