// The memory quota: allocations beyond it fail as they would on a smaller GPU.

#include "gate/library/hold.h"
#include "gate/library/hooks.h"

#include <pthread.h>

namespace divvy::gate {
namespace {

// Sizes of what the program holds, by pointer or handle. A quota is worth nothing if frees cannot
// be counted, so an allocation that finds the table full is counted for good.
struct Held {
  std::uint64_t key;  // 0 free, 1 once used
  std::uint64_t bytes;
  cuda::Context context;  // with which it goes; null for what belongs to none
};
constexpr std::uint32_t kHeld = 1U << 16;
Held held[kHeld];
pthread_mutex_t held_lock = PTHREAD_MUTEX_INITIALIZER;
std::atomic<std::uint64_t> held_bytes;  // written under the lock

std::uint32_t PlaceOf(std::uint64_t key) {
  return static_cast<std::uint32_t>((key >> 9 ^ key >> 21 ^ key) * 0x9e3779b1U) % kHeld;
}

void Remember(std::uint64_t key, std::uint64_t bytes, cuda::Context context) {
  for (std::uint32_t i = 0; i < kHeld; ++i) {
    Held& entry = held[(PlaceOf(key) + i) % kHeld];
    if (entry.key > 1) continue;
    entry = {.key = key, .bytes = bytes, .context = context};
    return;
  }
}

std::uint64_t Forget(std::uint64_t key) {
  for (std::uint32_t i = 0; i < kHeld; ++i) {
    Held& entry = held[(PlaceOf(key) + i) % kHeld];
    if (entry.key == 0) return 0;
    if (entry.key != key) continue;
    entry.key = 1;
    return entry.bytes;
  }
  return 0;
}

GpuState* CountedGpu() {
  const Driver* driver = RealDriver();
  return driver == nullptr ? nullptr : CurrentGpu(*driver);
}

std::uint64_t Quota() { return process.settings.job.memory_quota; }

void ShowMemory() {
  if (GpuState* gpu = CountedGpu(); gpu != nullptr && gpu->slot != nullptr)
    gpu->slot->memory_bytes.store(held_bytes.load(), std::memory_order_relaxed);
}

// Counts `bytes` in, unless they are more than the quota leaves.
bool Reserve(std::uint64_t bytes) {
  CountedGpu();  // the first allocation of a program comes before its first launch: the settings
                 // are read here
  pthread_mutex_lock(&held_lock);
  const bool fits = Quota() == 0 || (bytes <= Quota() && held_bytes <= Quota() - bytes);
  if (fits) held_bytes += bytes;
  pthread_mutex_unlock(&held_lock);
  if (!fits && process.coverage.out_of_memory.fetch_add(1, std::memory_order_relaxed) == 0)
    Say("out of memory: %llu bytes more would be beyond this job's --memory of %llu bytes; told "
        "once",
        static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(Quota()));
  return fits;
}

// What was allocated goes with `context`.
void Settle(bool allocated, std::uint64_t key, std::uint64_t reserved, std::uint64_t bytes,
            cuda::Context context) {
  pthread_mutex_lock(&held_lock);
  held_bytes -= reserved;
  if (allocated) {
    held_bytes += bytes;
    Remember(key, bytes, context);
  }
  pthread_mutex_unlock(&held_lock);
  ShowMemory();
}

void Release(std::uint64_t key) {
  pthread_mutex_lock(&held_lock);
  held_bytes -= Forget(key);
  pthread_mutex_unlock(&held_lock);
  ShowMemory();
}

cuda::Context CurrentContext() {
  const Driver* driver = RealDriver();
  cuda::Context context = nullptr;
  if (driver != nullptr && driver->cuCtxGetCurrent != nullptr) driver->cuCtxGetCurrent(&context);
  return context;
}

template <typename Call>
cuda::Result Allocate(const cuda::DevicePointer* pointer, std::size_t bytes, Call call) {
  if (!Reserve(bytes)) return cuda::kOutOfMemory;
  const cuda::Result result = call();
  const bool allocated = result == cuda::kSuccess;
  Settle(allocated, allocated ? *pointer : 0, bytes, bytes, CurrentContext());
  return result;
}

}  // namespace

void ForgetMemory(cuda::Context context) {
  if (context == nullptr) return;
  pthread_mutex_lock(&held_lock);
  for (Held& entry : held) {
    if (entry.key <= 1 || entry.context != context) continue;
    held_bytes -= entry.bytes;
    entry.key = 1;  // Others may have probed past it.
  }
  pthread_mutex_unlock(&held_lock);
  // Of the GPUs that are joined: no time to join one, when a context goes.
  for (GpuState& gpu : process.gpus) {
    if (gpu.phase.load(std::memory_order_acquire) == kJoined)
      gpu.slot->memory_bytes.store(held_bytes.load(), std::memory_order_relaxed);
  }
}

void DropMemory() {
  // The thread that held the lock is not in this process.
  pthread_mutex_init(&held_lock, nullptr);
  // Not written where there is nothing to forget: every page written is a page copied.
  if (held_bytes == 0) return;
  for (Held& entry : held) entry = {};
  held_bytes = 0;
}

extern "C" {

DIVVY_HOOK cuda::Result cuMemAlloc_v2(cuda::DevicePointer* pointer, std::size_t bytes) {
  DIVVY_REAL(cuMemAlloc_v2);
  return Allocate(pointer, bytes, [&] { return real(pointer, bytes); });
}

DIVVY_HOOK cuda::Result cuMemAllocManaged(cuda::DevicePointer* pointer, std::size_t bytes,
                                          unsigned flags) {
  DIVVY_REAL(cuMemAllocManaged);
  return Allocate(pointer, bytes, [&] { return real(pointer, bytes, flags); });
}

DIVVY_HOOK cuda::Result cuMemAllocPitch_v2(cuda::DevicePointer* pointer, std::size_t* pitch,
                                           std::size_t width, std::size_t height,
                                           unsigned element) {
  DIVVY_REAL(cuMemAllocPitch_v2);
  if (!Reserve(width * height)) return cuda::kOutOfMemory;
  const cuda::Result result = real(pointer, pitch, width, height, element);
  const bool allocated = result == cuda::kSuccess;
  Settle(allocated, allocated ? *pointer : 0, width * height, allocated ? *pitch * height : 0,
         CurrentContext());
  return result;
}

#define DIVVY_ALLOCATE_ASYNC(name)                                                 \
  DIVVY_HOOK cuda::Result name(cuda::DevicePointer* pointer, std::size_t bytes,    \
                               cuda::Stream stream) {                              \
    DIVVY_REAL(name);                                                              \
    return Allocate(pointer, bytes, [&] { return real(pointer, bytes, stream); }); \
  }
DIVVY_ALLOCATE_ASYNC(cuMemAllocAsync)
DIVVY_ALLOCATE_ASYNC(cuMemAllocAsync_ptsz)

#define DIVVY_ALLOCATE_FROM_POOL(name)                                                   \
  DIVVY_HOOK cuda::Result name(cuda::DevicePointer* pointer, std::size_t bytes,          \
                               cuda::MemoryPool pool, cuda::Stream stream) {             \
    DIVVY_REAL(name);                                                                    \
    return Allocate(pointer, bytes, [&] { return real(pointer, bytes, pool, stream); }); \
  }
DIVVY_ALLOCATE_FROM_POOL(cuMemAllocFromPoolAsync)
DIVVY_ALLOCATE_FROM_POOL(cuMemAllocFromPoolAsync_ptsz)

DIVVY_HOOK cuda::Result cuMemCreate(cuda::AllocationHandle* handle, std::size_t bytes,
                                    const cuda::AllocationProperties* properties,
                                    unsigned long long flags) {
  DIVVY_REAL(cuMemCreate);
  // Memory of the host is not the GPU's, and what its location names is no device.
  if (properties == nullptr || properties->location.type != cuda::kLocationDevice)
    return real(handle, bytes, properties, flags);
  if (!Reserve(bytes)) return cuda::kOutOfMemory;
  const cuda::Result result = real(handle, bytes, properties, flags);
  const bool allocated = result == cuda::kSuccess;
  Settle(allocated, allocated ? *handle : 0, bytes, bytes, /*context=*/nullptr);
  return result;
}

DIVVY_HOOK cuda::Result cuMemRelease(cuda::AllocationHandle handle) {
  DIVVY_REAL(cuMemRelease);
  const cuda::Result result = real(handle);
  if (result == cuda::kSuccess) Release(handle);
  return result;
}

DIVVY_HOOK cuda::Result cuMemFree_v2(cuda::DevicePointer pointer) {
  DIVVY_REAL(cuMemFree_v2);
  // It waits for all that is under way.
  for (GpuState& gpu : process.gpus) {
    if (IsHeld(gpu)) LetGo(gpu);
  }
  const cuda::Result result = real(pointer);
  if (result == cuda::kSuccess) Release(pointer);
  return result;
}

#define DIVVY_FREE_ASYNC(name)                                                     \
  DIVVY_HOOK cuda::Result name(cuda::DevicePointer pointer, cuda::Stream stream) { \
    DIVVY_REAL(name);                                                              \
    const cuda::Result result = real(pointer, stream);                             \
    if (result == cuda::kSuccess) Release(pointer);                                \
    return result;                                                                 \
  }
DIVVY_FREE_ASYNC(cuMemFreeAsync)
DIVVY_FREE_ASYNC(cuMemFreeAsync_ptsz)

DIVVY_HOOK cuda::Result cuMemGetInfo_v2(std::size_t* free_bytes, std::size_t* total_bytes) {
  DIVVY_REAL(cuMemGetInfo_v2);
  const cuda::Result result = real(free_bytes, total_bytes);
  CountedGpu();
  if (result != cuda::kSuccess || Quota() == 0) return result;
  const std::uint64_t used = held_bytes.load();
  const std::uint64_t left = used < Quota() ? Quota() - used : 0;
  if (*total_bytes > Quota()) *total_bytes = Quota();
  if (*free_bytes > left) *free_bytes = left;
  return result;
}

}  // extern "C"

}  // namespace divvy::gate
