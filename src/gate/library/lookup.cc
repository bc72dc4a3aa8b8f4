// How programs come to call the gate instead of the driver: by the loader's look-up, and by the
// driver's own.

#include "gate/library/hooks.h"

#include <dlfcn.h>
#include <pthread.h>
#include <cstring>

namespace divvy::gate {

// Declared for their addresses alone: the functions are defined, with their own types, where they
// belong.
// clang-format off
#define DIVVY_HOOKS(X)                                                                          \
  X(cuLaunchKernel) X(cuLaunchKernel_ptsz) X(cuLaunchKernelEx) X(cuLaunchKernelEx_ptsz)         \
  X(cuLaunchCooperativeKernel) X(cuLaunchCooperativeKernel_ptsz) X(cuGraphLaunch)               \
  X(cuGraphLaunch_ptsz) X(cuGraphExecDestroy) X(cuDevicePrimaryCtxReset)                        \
  X(cuGraphInstantiate) X(cuGraphInstantiate_v2) X(cuGraphInstantiateWithFlags)                 \
  X(cuGraphInstantiateWithParams) X(cuGraphInstantiateWithParams_ptsz)                          \
  X(cuDevicePrimaryCtxReset_v2) X(cuStreamBeginCapture) X(cuStreamBeginCapture_ptsz)            \
  X(cuStreamBeginCapture_v2) X(cuStreamBeginCapture_v2_ptsz) X(cuStreamBeginCaptureToGraph)     \
  X(cuStreamBeginCaptureToGraph_ptsz) X(cuStreamEndCapture) X(cuStreamEndCapture_ptsz)          \
  X(cuStreamSynchronize) X(cuStreamSynchronize_ptsz) X(cuCtxSynchronize)                        \
  X(cuCtxSynchronize_v2) X(cuEventSynchronize) X(cuEventQuery) X(cuStreamQuery)                 \
  X(cuStreamQuery_ptsz) X(cuEventRecord) X(cuEventRecord_ptsz) X(cuEventRecordWithFlags)        \
  X(cuEventRecordWithFlags_ptsz) X(cuLaunchHostFunc) X(cuLaunchHostFunc_ptsz)                   \
  X(cuMemcpyDtoH_v2) X(cuMemcpyDtoH_v2_ptds) X(cuMemcpy) X(cuMemcpy_ptds) X(cuMemAlloc_v2)      \
  X(cuMemAllocManaged) X(cuMemAllocPitch_v2) X(cuMemAllocAsync) X(cuMemAllocAsync_ptsz)         \
  X(cuMemAllocFromPoolAsync) X(cuMemAllocFromPoolAsync_ptsz) X(cuMemCreate) X(cuMemRelease)     \
  X(cuMemFree_v2) X(cuMemFreeAsync) X(cuMemFreeAsync_ptsz) X(cuMemGetInfo_v2) X(cuCtxDestroy)   \
  X(cuCtxDestroy_v2) X(cuDevicePrimaryCtxRelease) X(cuDevicePrimaryCtxRelease_v2)
// clang-format on

extern "C" {
#define DIVVY_DECLARE(name) void name();
DIVVY_HOOKS(DIVVY_DECLARE)
#undef DIVVY_DECLARE
int cuGetProcAddress(const char* symbol, void** function, int version, std::uint64_t flags);
int cuGetProcAddress_v2(const char* symbol, void** function, int version, std::uint64_t flags,
                        int* status);
}

namespace {

struct Hook {
  const char* name;
  void* ours;
  void* real;
};

Hook hooks[] = {
#define DIVVY_ENTRY(name) {#name, reinterpret_cast<void*>(&(name)), nullptr},
    DIVVY_HOOKS(DIVVY_ENTRY)
#undef DIVVY_ENTRY
        {"cuGetProcAddress", reinterpret_cast<void*>(&cuGetProcAddress), nullptr},
    {"cuGetProcAddress_v2", reinterpret_cast<void*>(&cuGetProcAddress_v2), nullptr},
};
pthread_once_t once = PTHREAD_ONCE_INIT;

void FindReal() {
  for (Hook& hook : hooks) hook.real = DriverSymbol(hook.name);
}

using GetProcAddressV1 = cuda::Result (*)(const char*, void**, int, std::uint64_t);
using GetProcAddressV2 = cuda::Result (*)(const char*, void**, int, std::uint64_t, int*);

// The driver has answered a look-up: hand out ours for what it found. By address, not by name: the
// driver knows which of several forms of a function a program of some version wants, and the
// address says which it chose.
void Replace(void** function) {
  process.coverage.lookups.fetch_add(1, std::memory_order_relaxed);
  if (function == nullptr || *function == nullptr) return;
  if (void* ours = HookFor(*function); ours != nullptr) {
    *function = ours;
    process.coverage.replaced.fetch_add(1, std::memory_order_relaxed);
  }
}

}  // namespace

void* HookFor(const void* real) {
  pthread_once(&once, FindReal);
  for (const Hook& hook : hooks) {
    if (hook.real == real) return hook.ours;
  }
  return nullptr;
}

void* HookNamed(const char* name) {
  for (const Hook& hook : hooks) {
    if (strcmp(hook.name, name) == 0) return hook.ours;
  }
  return nullptr;
}

}  // namespace divvy::gate

extern "C" {

DIVVY_HOOK int cuGetProcAddress(const char* symbol, void** function, int version,
                                std::uint64_t flags) {
  using namespace divvy::gate;
  const auto real = reinterpret_cast<GetProcAddressV1>(DriverSymbol("cuGetProcAddress"));
  if (real == nullptr) return divvy::cuda::kNotFound;
  const divvy::cuda::Result result = real(symbol, function, version, flags);
  if (result == divvy::cuda::kSuccess) Replace(function);
  return result;
}

DIVVY_HOOK int cuGetProcAddress_v2(const char* symbol, void** function, int version,
                                   std::uint64_t flags, int* status) {
  using namespace divvy::gate;
  const auto real = reinterpret_cast<GetProcAddressV2>(DriverSymbol("cuGetProcAddress_v2"));
  if (real == nullptr) return divvy::cuda::kNotFound;
  const divvy::cuda::Result result = real(symbol, function, version, flags, status);
  if (result == divvy::cuda::kSuccess) Replace(function);
  return result;
}

// The loader's look-up, under its own name. It ends in a jump to the real one, so that RTLD_NEXT
// and RTLD_DEFAULT, which go by who is calling, see the caller and not us.
DIVVY_HOOK __attribute__((optimize("O2"))) void* dlsym(void* handle, const char* name) noexcept {
  using namespace divvy::gate;
  if (name[0] == 'c' && name[1] == 'u') {
    if (void* ours = HookNamed(name); ours != nullptr && RealDlsym(handle, name) != nullptr) {
      process.coverage.dlsyms.fetch_add(1, std::memory_order_relaxed);
      return ours;
    }
  }
  return RealDlsym(handle, name);
}
}
