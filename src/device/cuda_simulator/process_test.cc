#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "device/cuda_simulator/test_program.h"

namespace divvy::device::cuda_simulator {
namespace {

using ProcessTest = CudaSimTest;

TEST_F(ProcessTest, NothingWorksBeforeInitialisationAndWithoutAContext) {
  Run([] {
    int count = 0;
    cuda::Context context = nullptr;
    cuda::DevicePointer memory = 0;
    EXPECT_EQ(cuDeviceGetCount(&count), cuda::kNotInitialized);
    EXPECT_EQ(cuCtxGetCurrent(&context), cuda::kNotInitialized);
    ASSERT_EQ(cuInit(0), cuda::kSuccess);
    ASSERT_EQ(cuInit(0), cuda::kSuccess);
    EXPECT_EQ(cuCtxGetCurrent(&context), cuda::kSuccess);
    EXPECT_EQ(context, nullptr);
    EXPECT_EQ(cuMemAlloc_v2(&memory, 1), cuda::kInvalidContext);
    EXPECT_EQ(cuCtxSynchronize(), cuda::kInvalidContext);
    EXPECT_EQ(cuStreamSynchronize(nullptr), cuda::kInvalidContext);
    EXPECT_EQ(cuDevicePrimaryCtxRetain(&context, 1), cuda::kInvalidDevice);
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, 0), cuda::kSuccess);
    ASSERT_EQ(cuCtxPushCurrent_v2(context), cuda::kSuccess);
    EXPECT_EQ(cuMemAlloc_v2(&memory, 1), cuda::kSuccess);
    // A context is current to a thread, not to the process.
    std::thread([&] { EXPECT_EQ(cuCtxSynchronize(), cuda::kInvalidContext); }).join();
    ASSERT_EQ(cuCtxPopCurrent_v2(&context), cuda::kSuccess);
    EXPECT_EQ(cuCtxSynchronize(), cuda::kInvalidContext);
  });
}

TEST_F(ProcessTest, ReleasedPrimaryContextIsNoContext) {
  Run([] {
    const Session cuda;
    ASSERT_EQ(cuDevicePrimaryCtxRelease_v2(0), cuda::kSuccess);
    EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(0), cuda::kInvalidContext);
    EXPECT_EQ(cuda.Launch(1), cuda::kInvalidContext);
    EXPECT_EQ(cuCtxSetCurrent(cuda.context), cuda::kInvalidContext);
  });
}

TEST_F(ProcessTest, ChildAfterForkHasNoDriver) {
  Run([] {
    const Session cuda;
    ASSERT_EQ(cuda.Launch(20'000), cuda::kSuccess);  // Work is under way.
    const pid_t child = fork();
    if (child == 0) {
      cuda::Context context = nullptr;
      const bool refused = cuInit(0) == cuda::kNotInitialized &&
                           cuCtxGetCurrent(&context) == cuda::kNotInitialized &&
                           cuda.Launch(1) == cuda::kNotInitialized &&
                           cuCtxSetCurrent(cuda.context) == cuda::kNotInitialized;
      void* address = nullptr;
      const bool found =
          cuGetProcAddress_v2("cuInit", &address, 13000, 0, nullptr) == cuda::kSuccess;
      _exit(refused && found ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(cuStreamSynchronize(cuda.stream), cuda::kSuccess);  // The parent goes on.
  });
}

TEST_F(ProcessTest, ChildOfAProcessThatDidNotInitialiseMay) {
  Run([] {
    int version = 0;
    ASSERT_EQ(cuDriverGetVersion(&version), cuda::kSuccess);
    const pid_t child = fork();
    if (child == 0) _exit(cuInit(0) == cuda::kSuccess ? 0 : 1);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  });
}

TEST_F(ProcessTest, LookupsGiveTheNewestFormOfAVersion) {
  Run([] {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    ASSERT_NE(library, nullptr);
    const auto found = [](const char* name, int version, std::uint64_t flags) {
      void* address = nullptr;
      LookupStatus status{};
      const auto result = cuGetProcAddress_v2(name, &address, version, flags, &status);
      EXPECT_EQ(result == cuda::kSuccess, status == kLookupFound);
      EXPECT_EQ(result == cuda::kSuccess, address != nullptr);
      return std::pair(address, status);
    };
    const auto symbol = [&](const char* name) {
      return std::pair(dlsym(library, name), kLookupFound);
    };
    const std::pair<void*, LookupStatus> too_old(nullptr, kLookupOldVersion);
    const std::pair<void*, LookupStatus> unknown(nullptr, kLookupUnknownName);
    EXPECT_EQ(found("cuMemAlloc", 13000, 0), symbol("cuMemAlloc_v2"));
    EXPECT_EQ(found("cuMemAlloc", 3020, 0), symbol("cuMemAlloc_v2"));
    EXPECT_EQ(found("cuMemAlloc", 3010, 0), too_old);
    EXPECT_EQ(found("cuStreamWaitValue32", 11060, 0), symbol("cuStreamWaitValue32"));
    EXPECT_EQ(found("cuStreamWaitValue32", 11070, 0), symbol("cuStreamWaitValue32_v2"));
    EXPECT_EQ(found("cuStreamWaitValue32", 99999, 2), symbol("cuStreamWaitValue32_v2_ptsz"));
    EXPECT_EQ(found("cuStreamGetCaptureInfo", 12020, 2), symbol("cuStreamGetCaptureInfo_v2_ptsz"));
    EXPECT_EQ(found("cuLaunchKernel", 4000, 0), symbol("cuLaunchKernel"));
    EXPECT_EQ(found("cuLaunchKernel", 7000, 1), symbol("cuLaunchKernel"));
    EXPECT_EQ(found("cuLaunchKernel", 7000, 2), symbol("cuLaunchKernel_ptsz"));
    EXPECT_EQ(found("cuEventQuery", 7000, 2), symbol("cuEventQuery"));  // It has no such form.
    EXPECT_EQ(found("cuStreamBeginCapture", 10000, 2), symbol("cuStreamBeginCapture_ptsz"));
    EXPECT_EQ(found("cuStreamBeginCapture", 10010, 2), symbol("cuStreamBeginCapture_v2_ptsz"));
    EXPECT_EQ(found("cuGraphInstantiate", 10020, 0), symbol("cuGraphInstantiate"));
    EXPECT_EQ(found("cuGraphInstantiate", 11040, 0), symbol("cuGraphInstantiate_v2"));
    EXPECT_EQ(found("cuGraphInstantiate", 12000, 0), symbol("cuGraphInstantiateWithFlags"));
    EXPECT_EQ(found("cuMemAlloc_v2", 13000, 0), unknown);
    EXPECT_EQ(found("", 13000, 0), unknown);
    void* address = nullptr;
    EXPECT_EQ(cuGetProcAddress_v2("cuInit", &address, 13000, 3, nullptr), cuda::kInvalidValue);
    EXPECT_EQ(cuGetProcAddress_v2(nullptr, &address, 13000, 0, nullptr), cuda::kInvalidValue);
    EXPECT_EQ(cuGetProcAddress("cuInit", &address, 13000, 0), cuda::kSuccess);
  });
}

TEST_F(ProcessTest, OlderDriverLacksWhatCameLater) {
  Run(
      [] {
        int version = 0;
        void* address = nullptr;
        LookupStatus status{};
        ASSERT_EQ(cuDriverGetVersion(&version), cuda::kSuccess);
        EXPECT_EQ(version, 11080);
        EXPECT_EQ(cuGetProcAddress_v2("cuLibraryLoadData", &address, 13000, 0, &status),
                  cuda::kNotFound);
        EXPECT_EQ(cuGetProcAddress_v2("cuLaunchKernelEx", &address, 13000, 0, &status),
                  cuda::kSuccess);
      },
      {{"DIVVY_CUDA_SIM_SPEC", "driver=11080"}});
}

TEST_F(ProcessTest, FaultsHitTheCallTheyName) {
  Run(
      [] {
        const Session cuda;
        EXPECT_EQ(cuda.Launch(1), cuda::kSuccess);
        EXPECT_EQ(cuda.Launch(1), cuda::kLaunchFailed);
        EXPECT_EQ(cuda.Launch(1, 1, cuda::PerThreadStream()), cuda::kSuccess);
        cuda::DevicePointer memory = 0;
        EXPECT_EQ(cuMemAlloc_v2(&memory, 1), cuda::kOutOfMemory);
        EXPECT_EQ(cuMemAlloc_v2(&memory, 1), cuda::kOutOfMemory);
        const auto before = std::chrono::steady_clock::now();
        EXPECT_EQ(cuStreamSynchronize(cuda.stream), cuda::kSuccess);
        EXPECT_GE(std::chrono::steady_clock::now() - before, std::chrono::milliseconds(5));
        void* address = nullptr;
        LookupStatus status{};
        EXPECT_EQ(cuGetProcAddress_v2("cuStreamWaitValue32", &address, 13000, 0, &status),
                  cuda::kSuccess);
        EXPECT_EQ(address, dlsym(RTLD_DEFAULT, "cuStreamWaitValue32"));  // What older drivers have.
        EXPECT_EQ(cuda.WaitFor(cuda.NewWord(), 0, cuda.stream), cuda::kNotSupported);
      },
      {{"DIVVY_CUDA_SIM_FAULTS",
        "cuLaunchKernel@2=719,cuMemAlloc_v2@*=2,delay:cuStreamSynchronize@*=5ms,"
        "no:cuStreamWaitValue32_v2"}});
}

TEST_F(ProcessTest, StickyFaultEndsTheContext) {
  Run(
      [] {
        const Session cuda;
        EXPECT_EQ(cuda.Launch(60e6F), cuda::kSuccess);
        EXPECT_EQ(cuda.Launch(1), cuda::kIllegalAddress);
        EXPECT_EQ(cuda.Launch(1), cuda::kIllegalAddress);
        EXPECT_EQ(cuStreamSynchronize(cuda.stream), cuda::kIllegalAddress);
      },
      {{"DIVVY_CUDA_SIM_FAULTS", "sticky:cuLaunchKernel@2=700"}});
}

TEST_F(ProcessTest, KillFaultEndsTheProcessThere) {
  Program program(With({{"DIVVY_CUDA_SIM_FAULTS", "kill:cuLaunchKernel@3"}}), [](Link& link) {
    const Session cuda;
    for (int i = 0; i < 5; ++i) {
      if (cuda.Launch(1) == cuda::kSuccess) link.Tell();
    }
  });
  EXPECT_TRUE(program.link().Await());
  EXPECT_TRUE(program.link().Await());
  EXPECT_FALSE(program.link().Await());
  const int status = program.Join();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

TEST_F(ProcessTest, WrongSettingsAreToldAndLeaveNoDevice) {
  const Environment wrong[] = {{{"DIVVY_CUDA_SIM_SPEC", "sms=none"}},
                               {{"DIVVY_CUDA_SIM_FAULTS", "cuNoSuch@1=2"}},
                               {{"DIVVY_CUDA_SIM", "/nowhere/at/all"}},
                               {{"CUDA_VISIBLE_DEVICES", ""}}};
  for (const Environment& each : wrong) {
    Run([] { EXPECT_EQ(cuInit(0), cuda::kNoDevice); }, each);
  }
}

TEST_F(ProcessTest, StatisticsTellWhatWasDone) {
  const std::string path = File("stats");
  Run(
      [] {
        const Session cuda;
        auto* word = cuda.NewWord();
        ASSERT_EQ(cuda.WaitFor(word, 1, cuda.stream), cuda::kSuccess);
        ASSERT_EQ(cuda.Launch(10), cuda::kSuccess);
        cuda.Settle();
        *word = 1;
        ASSERT_EQ(cuStreamSynchronize(cuda.stream), cuda::kSuccess);
      },
      {{"DIVVY_CUDA_SIM_STATS", path}});
  std::ifstream file(path);
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  for (const char* part : {"\"kernels\": 1,", "\"waits\": 1,", "\"waits_blocked\": 1,"}) {
    EXPECT_NE(line.find(part), std::string::npos) << line;
  }
  EXPECT_FALSE(std::getline(file, line));
}

}  // namespace
}  // namespace divvy::device::cuda_simulator
