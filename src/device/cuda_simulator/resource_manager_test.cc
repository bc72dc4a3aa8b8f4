#include "device/cuda_simulator/resource_manager.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "device/cuda_simulator/test_program.h"

namespace divvy::device::cuda_simulator {
namespace {

using ResourceManagerTest = CudaSimTest;

// What became of the driver's own control, sent again with `command` and `us`.
std::uint32_t Send(std::uint32_t command, std::uint64_t& us) {
  KernelModule::Asked again = KernelModuleOfProgram().asked.at(0);
  again.control.command = command;
  again.control.parameters = AddressOf(&us);
  EXPECT_EQ(divvy_sim_rm_control(again.descriptor, again.request, &again.control), 0);
  return again.control.status;
}

std::uint64_t Slice() {
  std::uint64_t us = 0;
  EXPECT_EQ(Send(kGetTimeslice, us), kRmOk);
  return us;
}

TEST_F(ResourceManagerTest, FirstContextOfAProcessOnADeviceSetsTheSlice) {
  Run(
      [] {
        const auto& asked = KernelModuleOfProgram().asked;
        ASSERT_EQ(cuInit(0), cuda::kSuccess);
        EXPECT_TRUE(asked.empty());
        cuda::Context context = nullptr;
        ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, 1), cuda::kSuccess);
        ASSERT_EQ(asked.size(), 1U);
        EXPECT_EQ(asked[0].request, 0xC020462A);
        EXPECT_EQ(asked[0].control.command, kSetTimeslice);
        EXPECT_EQ(asked[0].control.size, 8U);
        EXPECT_EQ(asked[0].microseconds, 700U);
        ASSERT_EQ(cuCtxCreate_v2(&context, 0, 1), cuda::kSuccess);
        EXPECT_EQ(asked.size(), 1U);
        ASSERT_EQ(cuCtxCreate_v2(&context, 0, 0), cuda::kSuccess);
        ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, 0), cuda::kSuccess);
        ASSERT_EQ(asked.size(), 2U);
        EXPECT_EQ(asked[1].descriptor, asked[0].descriptor);
        EXPECT_EQ(asked[1].control.client, asked[0].control.client);
        EXPECT_NE(asked[1].control.object, asked[0].control.object);
      },
      {{"DIVVY_CUDA_SIM_SPEC", "gpus=2 slice_us=700"}});
}

TEST_F(ResourceManagerTest, WithoutAKernelModuleTheSliceIsTheMachines) {
  Run([] {
    KernelModuleOfProgram().present = false;
    const Session cuda;
    ASSERT_EQ(KernelModuleOfProgram().asked.size(), 1U);
    EXPECT_EQ(Slice(), 2000U);
    EXPECT_EQ(cuda.Launch(1), cuda::kSuccess);
  });
}

TEST_F(ResourceManagerTest, WhoStandsBetweenMayChangeTheSlice) {
  Run([] {
    KernelModuleOfProgram().instead_us = 123;
    const Session cuda;
    EXPECT_EQ(Slice(), 123U);
    std::uint64_t us = 1;
    EXPECT_EQ(Send(kSetTimeslice, us), kRmOk);
    EXPECT_EQ(Slice(), 1U);
  });
}

TEST_F(ResourceManagerTest, WrongControlsAreRefusedAndChangeNothing) {
  Run([] {
    const Session cuda;
    const KernelModule::Asked right = KernelModuleOfProgram().asked.at(0);
    std::uint64_t us = 55;
    const auto status = [&](auto change) {
      RmControl control = right.control;
      control.parameters = AddressOf(&us);
      change(control);
      EXPECT_EQ(divvy_sim_rm_control(right.descriptor, right.request, &control), 0);
      return control.status;
    };
    EXPECT_EQ(status([](RmControl& control) { ++control.client; }), 0x57U);
    EXPECT_EQ(status([](RmControl& control) { ++control.object; }), 0x57U);
    EXPECT_EQ(status([](RmControl& control) { --control.object; }), 0x57U);
    EXPECT_EQ(status([](RmControl& control) { control.command = 0xA06C0101; }), 0x56U);
    EXPECT_EQ(status([](RmControl& control) { control.size = 4; }), 0x1FU);
    EXPECT_EQ(status([](RmControl& control) { control.parameters = 0; }), 0x1FU);
    us = 0;
    EXPECT_EQ(status([](RmControl&) {}), 0x1FU);
    us = 55;
    RmControl control = right.control;
    control.parameters = AddressOf(&us);
    errno = 0;
    EXPECT_EQ(divvy_sim_rm_control(right.descriptor + 1, right.request, &control), -1);
    EXPECT_EQ(errno, ENOTTY);
    errno = 0;
    EXPECT_EQ(divvy_sim_rm_control(right.descriptor, right.request + 1, &control), -1);
    EXPECT_EQ(errno, ENOTTY);
    EXPECT_EQ(Slice(), 2000U);
  });
}

TEST_F(ResourceManagerTest, DeviceWithoutAContextHasNoSliceToSet) {
  Run(
      [] {
        const Session cuda;
        KernelModule::Asked other = KernelModuleOfProgram().asked.at(0);
        std::uint64_t us = 55;
        other.control.parameters = AddressOf(&us);
        ++other.control.object;
        EXPECT_EQ(divvy_sim_rm_control(other.descriptor, other.request, &other.control), 0);
        EXPECT_EQ(other.control.status, kRmObjectNotFound);
        cuda::Context context = nullptr;
        ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, 1), cuda::kSuccess);
        EXPECT_EQ(divvy_sim_rm_control(other.descriptor, other.request, &other.control), 0);
        EXPECT_EQ(other.control.status, kRmOk);
        EXPECT_EQ(Slice(), 2000U) << "that of the first";
      },
      {{"DIVVY_CUDA_SIM_SPEC", "gpus=2"}});
}

TEST_F(ResourceManagerTest, ChildAfterForkIsRefused) {
  Run([] {
    const Session cuda;
    KernelModule::Asked again = KernelModuleOfProgram().asked.at(0);
    std::uint64_t us = 55;
    again.control.parameters = AddressOf(&us);
    const pid_t child = fork();
    if (child == 0) {
      const int result = divvy_sim_rm_control(again.descriptor, again.request, &again.control);
      _exit(result == -1 && errno == ENOTTY ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(Slice(), 2000U);
  });
}

TEST_F(ResourceManagerTest, HostFunctionMaySetTheSlice) {
  Run([] {
    const Session cuda;
    const auto set = [](void*) {
      std::uint64_t us = 77;
      EXPECT_EQ(Send(kSetTimeslice, us), kRmOk);
    };
    ASSERT_EQ(cuLaunchHostFunc(cuda.stream, set, nullptr), cuda::kSuccess);
    ASSERT_EQ(cuStreamSynchronize(cuda.stream), cuda::kSuccess);
    EXPECT_EQ(Slice(), 77U);
  });
}

}  // namespace
}  // namespace divvy::device::cuda_simulator
