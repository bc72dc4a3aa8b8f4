#include "gate/library/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <atomic>
#include <initializer_list>

namespace divvy::gate {
namespace {

using Lookup = void* (*)(void*, const char*);

void* handle;
Driver driver;
pthread_once_t once = PTHREAD_ONCE_INIT;

template <typename Function>
void Load(Function*& function, const char* name) {
  function = reinterpret_cast<Function*>(RealDlsym(handle, name));
}

void LoadDriver() {
  // The program has it loaded by the time a hook runs; a second handle costs nothing.
  handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) return;
#define DIVVY_LOAD(name) Load(driver.name, #name)
  DIVVY_LOAD(cuCtxGetCurrent);
  DIVVY_LOAD(cuCtxSetCurrent);
  DIVVY_LOAD(cuCtxGetDevice);
  DIVVY_LOAD(cuDevicePrimaryCtxGetState);
  DIVVY_LOAD(cuDevicePrimaryCtxRetain);
  DIVVY_LOAD(cuDevicePrimaryCtxRelease_v2);
  DIVVY_LOAD(cuDeviceGetCount);
  DIVVY_LOAD(cuDeviceGetAttribute);
  DIVVY_LOAD(cuDeviceGetUuid_v2);
  DIVVY_LOAD(cuDriverGetVersion);
  DIVVY_LOAD(cuThreadExchangeStreamCaptureMode);
  DIVVY_LOAD(cuStreamIsCapturing);
  DIVVY_LOAD(cuStreamWaitValue32_v2);
  DIVVY_LOAD(cuStreamWriteValue32_v2);
  DIVVY_LOAD(cuStreamCreate);
  DIVVY_LOAD(cuStreamDestroy_v2);
  DIVVY_LOAD(cuStreamSynchronize);
  DIVVY_LOAD(cuEventCreate);
  DIVVY_LOAD(cuEventRecord);
  DIVVY_LOAD(cuEventQuery);
  DIVVY_LOAD(cuEventSynchronize);
  DIVVY_LOAD(cuEventElapsedTime);
  DIVVY_LOAD(cuMemHostRegister_v2);
  DIVVY_LOAD(cuMemHostGetDevicePointer_v2);
  DIVVY_LOAD(cuOccupancyMaxActiveBlocksPerMultiprocessor);
  DIVVY_LOAD(cuKernelGetName);
  DIVVY_LOAD(cuFuncGetName);
  DIVVY_LOAD(cuGraphGetNodes);
  DIVVY_LOAD(cuGraphNodeGetType);
  DIVVY_LOAD(cuMemGetInfo_v2);
  DIVVY_LOAD(cuModuleLoadData);
  DIVVY_LOAD(cuModuleGetFunction);
  DIVVY_LOAD(cuLaunchKernel);
#undef DIVVY_LOAD
}

Lookup FindLookup() {
  // One of these is the symbol's version on every glibc there is for x86-64 and arm64.
  for (const char* version : {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"}) {
    if (void* found = dlvsym(RTLD_NEXT, "dlsym", version); found != nullptr)
      return reinterpret_cast<Lookup>(found);
  }
  return nullptr;
}

}  // namespace

const Driver* RealDriver() {
  pthread_once(&once, LoadDriver);
  return handle == nullptr ? nullptr : &driver;
}

void* RealDlsym(void* library, const char* name) {
  static std::atomic<Lookup> found;
  Lookup lookup = found.load(std::memory_order_acquire);
  if (lookup == nullptr) {
    lookup = FindLookup();
    found.store(lookup, std::memory_order_release);
  }
  return lookup == nullptr ? nullptr : lookup(library, name);
}

void* DriverSymbol(const char* name) {
  return RealDriver() == nullptr ? nullptr : RealDlsym(handle, name);
}

}  // namespace divvy::gate
