#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "gate_probe.h"

// Memory: what the gate counts of it.

namespace divvy::tests {
namespace {

std::size_t FreeBytes(std::size_t quota) {
  std::size_t free_bytes = 0;
  std::size_t total = 0;
  MUST("cuMemGetInfo_v2", &free_bytes, &total);
  EXPECT_THAT_IT(total == quota);
  return free_bytes;
}

cuda::AllocationProperties OnTheGpu() {
  cuda::AllocationProperties properties{};
  properties.type = 1;
  properties.location = {.type = cuda::kLocationDevice, .id = 0};
  return properties;
}

constexpr std::size_t kGranule = std::size_t{2} << 20;

// In the order of a stream, from the device's pool or from one that is named.
void CheckInOrder(std::size_t quota, std::size_t most) {
  cuda::MemoryPool pool = nullptr;
  MUST("cuDeviceGetDefaultMemPool", &pool, 0);
  cuda::DevicePointer pointer = 0;
  cuda::DevicePointer second = 0;
  for (const char* ending : {"", "_ptsz"}) {
    for (const bool named : {false, true}) {
      if (named) {
        MUST_FORM("cuMemAllocFromPoolAsync", ending, &pointer, most, pool, cuda::Stream{});
      } else {
        MUST_FORM("cuMemAllocAsync", ending, &pointer, most, cuda::Stream{});
      }
      EXPECT_THAT_IT(FreeBytes(quota) == quota - most);
      EXPECT_THAT_IT(Call("cuMemAlloc_v2", &second, most) == cuda::kOutOfMemory);
      EXPECT_THAT_IT(Call("cuMemAllocFromPoolAsync", &second, most, pool, cuda::Stream{}) ==
                     cuda::kOutOfMemory);
      MUST_FORM("cuMemFreeAsync", ending, pointer, cuda::Stream{});
      MUST("cuCtxSynchronize");
      EXPECT_THAT_IT(FreeBytes(quota) == quota);
    }
  }
}

bool HasPrimary() {
  unsigned flags = 0;
  int active = 0;
  MUST("cuDevicePrimaryCtxGetState", 0, &flags, &active);
  return active != 0;
}

void TakePrimary() {
  MUST("cuDevicePrimaryCtxRetain", &context, 0);
  MUST("cuCtxSetCurrent", context);
}

// What a context held goes with it, and nothing else does.
void CheckWithContexts(std::size_t quota, std::size_t most) {
  const std::size_t some = quota / 8;
  const cuda::AllocationProperties properties = OnTheGpu();
  cuda::AllocationHandle handle = 0;
  MUST("cuMemCreate", &handle, kGranule, &properties, 0ULL);
  const std::size_t left = quota - kGranule;
  for (const char* form : {"", "_v2"}) {
    cuda::DevicePointer pointer = 0;
    cuda::Context own = nullptr;
    MUST("cuMemAlloc_v2", &pointer, most);
    MUST("cuCtxCreate_v2", &own, 0U, 0);
    MUST("cuMemAlloc_v2", &pointer, some);
    EXPECT_THAT_IT(FreeBytes(quota) == left - most - some);
    MUST_FORM("cuCtxDestroy", form, own);
    EXPECT_THAT_IT(FreeBytes(quota) == left - most);
    MUST_FORM("cuDevicePrimaryCtxReset", form, 0);
    TakePrimary();
    EXPECT_THAT_IT(FreeBytes(quota) == left);
    MUST("cuMemAlloc_v2", &pointer, most);
    while (HasPrimary()) MUST_FORM("cuDevicePrimaryCtxRelease", form, 0);
    // One that is not there takes nothing along.
    MUST("cuCtxCreate_v2", &own, 0U, 0);
    MUST("cuMemAlloc_v2", &pointer, some);
    MUST_FORM("cuDevicePrimaryCtxReset", form, 0);
    EXPECT_THAT_IT(FreeBytes(quota) == left - some);
    MUST_FORM("cuCtxDestroy", form, own);
    TakePrimary();
    EXPECT_THAT_IT(FreeBytes(quota) == left);
  }
  MUST("cuMemRelease", handle);
  EXPECT_THAT_IT(FreeBytes(quota) == quota);
}

}  // namespace

// Every kind of allocation counts, fails cleanly beyond the quota, and comes back when it is freed.
void CheckMemory(std::size_t quota) {
  const std::size_t most = quota - quota / 4;
  cuda::DevicePointer pointer = 0;
  cuda::DevicePointer second = 0;
  EXPECT_THAT_IT(FreeBytes(quota) == quota);

  MUST("cuMemAlloc_v2", &pointer, most);
  EXPECT_THAT_IT(FreeBytes(quota) == quota - most);
  EXPECT_THAT_IT(Call("cuMemAlloc_v2", &second, most) == cuda::kOutOfMemory);
  EXPECT_THAT_IT(Call("cuMemAlloc_v2", &second, ~std::size_t{0}) == cuda::kOutOfMemory);
  EXPECT_THAT_IT(Call("cuMemAllocManaged", &second, most, 1U) == cuda::kOutOfMemory);
  EXPECT_THAT_IT(Call("cuMemAllocAsync", &second, most, cuda::Stream{}) == cuda::kOutOfMemory);
  LaunchAndWait();  // Nothing was harmed.
  MUST("cuMemFree_v2", pointer);
  EXPECT_THAT_IT(FreeBytes(quota) == quota);

  MUST("cuMemAllocManaged", &pointer, most, 1U);
  EXPECT_THAT_IT(FreeBytes(quota) == quota - most);
  MUST("cuMemFree_v2", pointer);
  CheckInOrder(quota, most);

  std::size_t pitch = 0;
  MUST("cuMemAllocPitch_v2", &pointer, &pitch, std::size_t{1000}, std::size_t{64}, 4U);
  EXPECT_THAT_IT(FreeBytes(quota) == quota - pitch * 64);
  MUST("cuMemFree_v2", pointer);

  const cuda::AllocationProperties properties = OnTheGpu();
  cuda::AllocationHandle handle = 0;
  MUST("cuMemCreate", &handle, kGranule, &properties, 0ULL);
  EXPECT_THAT_IT(FreeBytes(quota) == quota - kGranule);
  MUST("cuMemRelease", handle);
  EXPECT_THAT_IT(FreeBytes(quota) == quota);
  for (int i = 0; i < 1000; ++i) {
    MUST("cuMemAlloc_v2", &pointer, most);
    MUST("cuMemFree_v2", pointer);
  }
  CheckWithContexts(quota, most);
}

// Children that are forked while another thread is in the middle of an allocation, and allocate
// themselves: that is refused, and nobody waits for a thread that is not there.
void ForkWhileAllocating() {
  constexpr int kForks = 50;
  constexpr unsigned kHangs = 5;  // Seconds: then the child is taken to wait for ever.
  // So many that there is no room to remember another: looking for it takes long, and the other
  // thread is at that nearly all the time.
  constexpr std::size_t kMany = std::size_t{1} << 16;
  const cuda::AllocationProperties properties = OnTheGpu();
  std::vector<cuda::AllocationHandle> handles(kMany);
  for (cuda::AllocationHandle& handle : handles)
    MUST("cuMemCreate", &handle, kGranule, &properties, 0ULL);
  std::atomic<bool> over{false};
  std::thread other([&] {
    MUST("cuCtxSetCurrent", context);
    while (!over.load()) {
      cuda::AllocationHandle handle = 0;
      MUST("cuMemCreate", &handle, kGranule, &properties, 0ULL);
      MUST("cuMemRelease", handle);
    }
  });
  // Looked up here: the loader's own locks are no affair of ours.
  const auto allocate =
      reinterpret_cast<cuda::Result (*)(cuda::DevicePointer*, std::size_t)>(Find("cuMemAlloc_v2"));
  const auto create = reinterpret_cast<cuda::Result (*)(
      cuda::AllocationHandle*, std::size_t, const cuda::AllocationProperties*, unsigned long long)>(
      Find("cuMemCreate"));
  for (int i = 0; i < kForks; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(kHangs);
      cuda::DevicePointer pointer = 0;
      cuda::AllocationHandle handle = 0;
      const bool refused = allocate(&pointer, kGranule) == cuda::kNotInitialized &&
                           create(&handle, kGranule, &properties, 0) == cuda::kNotInitialized;
      _exit(refused ? 0 : 1);
    }
    int status = 0;
    EXPECT_THAT_IT(waitpid(child, &status, 0) == child);
    EXPECT_THAT_IT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  over.store(true);
  other.join();
}

}  // namespace divvy::tests
