#include <string>

#include "device/cuda_simulator/test_program.h"

namespace divvy::device::cuda_simulator {
namespace {

using ModuleTest = CudaSimTest;

TEST_F(ModuleTest, KernelPassesForAFunctionInALaunchAndHasANameOfItsOwn) {
  Run([] {
    const Session cuda;
    cuda::Library library = nullptr;
    cuda::Kernel kernel = nullptr;
    cuda::Function function = nullptr;
    const char* name = nullptr;
    ASSERT_EQ(cuLibraryLoadData(&library, "kernel a us=5 per_sm=3\n", nullptr, nullptr, 0, nullptr,
                                nullptr, 0),
              cuda::kSuccess);
    EXPECT_EQ(cuLibraryGetKernel(&kernel, library, "b"), cuda::kNotFound);
    ASSERT_EQ(cuLibraryGetKernel(&kernel, library, "a"), cuda::kSuccess);
    const auto disguised = reinterpret_cast<cuda::Function>(kernel);
    EXPECT_EQ(cuLaunchKernel(disguised, 1, 1, 1, 1, 1, 1, 0, cuda.stream, nullptr, nullptr),
              cuda::kSuccess);
    int blocks = 0;
    EXPECT_EQ(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, disguised, 128, 0),
              cuda::kSuccess);
    EXPECT_EQ(blocks, 3);
    EXPECT_EQ(cuFuncGetName(&name, disguised), cuda::kInvalidHandle);
    ASSERT_EQ(cuKernelGetName(&name, kernel), cuda::kSuccess);
    EXPECT_EQ(std::string(name), "a");
    ASSERT_EQ(cuKernelGetFunction(&function, kernel), cuda::kSuccess);
    ASSERT_EQ(cuFuncGetName(&name, function), cuda::kSuccess);
    EXPECT_EQ(std::string(name), "a");
    EXPECT_EQ(cuKernelGetName(&name, reinterpret_cast<cuda::Kernel>(function)),
              cuda::kInvalidHandle);
    ASSERT_EQ(cuLibraryUnload(library), cuda::kSuccess);
    EXPECT_EQ(cuLaunchKernel(disguised, 1, 1, 1, 1, 1, 1, 0, cuda.stream, nullptr, nullptr),
              cuda::kInvalidHandle);
  });
}

TEST_F(ModuleTest, LaunchesThatNoGpuRunsAreRefused) {
  Run([] {
    const Session cuda;
    EXPECT_EQ(cuda.Launch(1, 0), cuda::kInvalidValue);
    EXPECT_EQ(cuLaunchKernel(cuda.kernel, 1, 1, 1, 1025, 1, 1, 0, cuda.stream, nullptr, nullptr),
              cuda::kInvalidValue);
    EXPECT_EQ(cuLaunchKernel(cuda.kernel, 1, 1, 1, 1, 1, 1, 0, cuda.stream, nullptr, nullptr),
              cuda::kInvalidValue);  // Its time is missing.
    EXPECT_EQ(cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, cuda.stream, nullptr, nullptr),
              cuda::kInvalidHandle);
    float us = 1;
    void* parameters[] = {&us};
    EXPECT_EQ(
        cuLaunchCooperativeKernel(cuda.kernel, 32, 1, 1, 1024, 1, 1, 0, cuda.stream, parameters),
        cuda::kSuccess);
    EXPECT_EQ(
        cuLaunchCooperativeKernel(cuda.kernel, 33, 1, 1, 1024, 1, 1, 0, cuda.stream, parameters),
        kCooperativeLaunchTooLarge);
    ASSERT_EQ(cuModuleUnload(cuda.module), cuda::kSuccess);
    EXPECT_EQ(cuda.Launch(1), cuda::kInvalidHandle);
  });
}

TEST_F(ModuleTest, LaunchWithAConfigurationIsALaunch) {
  Run([] {
    const Session cuda;
    float us = 1500;
    void* parameters[] = {&us};
    cuda::LaunchConfig config{};
    config.grid_x = config.grid_y = config.grid_z = 1;
    config.block_x = config.block_y = config.block_z = 1;
    config.stream = cuda.stream;
    auto* word = cuda.NewWord();
    ASSERT_EQ(cuda.WaitFor(word, 1, cuda.stream), cuda::kSuccess);
    const auto begin = cuda.Recorded(cuda.stream);
    ASSERT_EQ(cuLaunchKernelEx(&config, cuda.kernel, parameters, nullptr), cuda::kSuccess);
    const auto end = cuda.Recorded(cuda.stream);
    cuda.Settle();
    *word = 1;
    ASSERT_EQ(cuEventSynchronize(end), cuda::kSuccess);
    EXPECT_FLOAT_EQ(cuda.Elapsed(begin, end), 1.5F);
  });
}

TEST_F(ModuleTest, WrongCodeIsNoImage) {
  Run([] {
    const Session cuda;
    cuda::Module module = nullptr;
    EXPECT_EQ(cuModuleLoadData(&module, "colonel a us=5\n"), cuda::kInvalidImage);
  });
}

}  // namespace
}  // namespace divvy::device::cuda_simulator
