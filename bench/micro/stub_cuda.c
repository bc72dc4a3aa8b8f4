// A CUDA driver that does nothing at once, with as much of it as the gate asks for: what a program
// spends in it is what the gate in front of it takes.

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

// Whatever their arguments are: the caller passes them in registers and takes them away again.
#define NOTHING(name) \
  EXPORT int name(void) { return 0; }
NOTHING(cuInit)
NOTHING(cuCtxSetCurrent)
NOTHING(cuDevicePrimaryCtxRelease_v2)
NOTHING(cuThreadExchangeStreamCaptureMode)
NOTHING(cuStreamWaitValue32_v2)
NOTHING(cuStreamWriteValue32_v2)
NOTHING(cuStreamDestroy_v2)
NOTHING(cuStreamSynchronize)
NOTHING(cuEventRecord)
NOTHING(cuEventQuery)
NOTHING(cuEventSynchronize)
NOTHING(cuMemHostRegister_v2)
NOTHING(cuLaunchKernel)
// The same, under a name that no gate stands before.
NOTHING(stub_launch)

// Handles point nowhere and are not null.
static void* Handle(void) {
  static uintptr_t last;
  return (void*)(last += 64);
}

EXPORT int cuCtxGetCurrent(void** context) {
  *context = (void*)64;
  return 0;
}
EXPORT int cuCtxGetDevice(int* device) {
  *device = 0;
  return 0;
}
EXPORT int cuDeviceGetCount(int* count) {
  *count = 1;
  return 0;
}
EXPORT int cuDeviceGetAttribute(int* value, int attribute, int device) {
  (void)attribute, (void)device;
  *value = 132;
  return 0;
}
EXPORT int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  memset(uuid, device + 1, 16);
  return 0;
}
EXPORT int cuStreamIsCapturing(void* stream, int* status) {
  (void)stream;
  *status = 0;
  return 0;
}
EXPORT int cuStreamCreate(void** stream, unsigned flags) {
  (void)flags;
  *stream = Handle();
  return 0;
}
EXPORT int cuEventCreate(void** event, unsigned flags) {
  (void)flags;
  *event = Handle();
  return 0;
}
// Pairs of events with nothing between them come first, then kernels of 30 us.
EXPORT int cuEventElapsedTime(float* milliseconds, void* begin, void* end) {
  static int asked;
  (void)begin, (void)end;
  *milliseconds = asked < 8 ? 0.002F : 0.032F;
  asked += asked < 8;
  return 0;
}
EXPORT int cuMemHostGetDevicePointer_v2(uint64_t* pointer, void* memory, unsigned flags) {
  (void)flags;
  *pointer = (uintptr_t)memory;
  return 0;
}
EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void* function, int size,
                                                       size_t shared) {
  (void)function, (void)size, (void)shared;
  *blocks = 2;
  return 0;
}
EXPORT int cuKernelGetName(const char** name, void* kernel) {
  (void)kernel;
  *name = "stub";
  return 0;
}
