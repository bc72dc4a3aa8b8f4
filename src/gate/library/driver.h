#pragma once

// The real CUDA driver behind the gate.

#include "gate/cuda_abi.h"

namespace divvy::gate {

// What the gate itself calls. Any of them may be missing from an older driver: null then.
struct Driver {
  cuda::Result (*cuCtxGetCurrent)(cuda::Context*);
  cuda::Result (*cuCtxSetCurrent)(cuda::Context);
  cuda::Result (*cuCtxGetDevice)(cuda::Device*);
  cuda::Result (*cuDevicePrimaryCtxGetState)(cuda::Device, unsigned*, int*);
  cuda::Result (*cuDevicePrimaryCtxRetain)(cuda::Context*, cuda::Device);
  cuda::Result (*cuDevicePrimaryCtxRelease_v2)(cuda::Device);
  cuda::Result (*cuDeviceGetCount)(int*);
  cuda::Result (*cuDeviceGetAttribute)(int*, int, cuda::Device);
  cuda::Result (*cuDeviceGetUuid_v2)(cuda::Uuid*, cuda::Device);
  cuda::Result (*cuDriverGetVersion)(int*);
  cuda::Result (*cuThreadExchangeStreamCaptureMode)(cuda::CaptureMode*);
  cuda::Result (*cuStreamIsCapturing)(cuda::Stream, cuda::CaptureStatus*);
  cuda::Result (*cuStreamWaitValue32_v2)(cuda::Stream, cuda::DevicePointer, std::uint32_t,
                                         unsigned);
  cuda::Result (*cuStreamWriteValue32_v2)(cuda::Stream, cuda::DevicePointer, std::uint32_t,
                                          unsigned);
  cuda::Result (*cuStreamCreate)(cuda::Stream*, unsigned);
  cuda::Result (*cuStreamDestroy_v2)(cuda::Stream);
  cuda::Result (*cuStreamSynchronize)(cuda::Stream);
  cuda::Result (*cuEventCreate)(cuda::Event*, unsigned);
  cuda::Result (*cuEventRecord)(cuda::Event, cuda::Stream);
  cuda::Result (*cuEventQuery)(cuda::Event);
  cuda::Result (*cuEventSynchronize)(cuda::Event);
  cuda::Result (*cuEventElapsedTime)(float*, cuda::Event, cuda::Event);
  cuda::Result (*cuMemHostRegister_v2)(void*, std::size_t, unsigned);
  cuda::Result (*cuMemHostGetDevicePointer_v2)(cuda::DevicePointer*, void*, unsigned);
  cuda::Result (*cuOccupancyMaxActiveBlocksPerMultiprocessor)(int*, cuda::Function, int,
                                                              std::size_t);
  cuda::Result (*cuKernelGetName)(const char**, cuda::Kernel);
  cuda::Result (*cuFuncGetName)(const char**, cuda::Function);
  cuda::Result (*cuGraphGetNodes)(cuda::Graph, cuda::GraphNode*, std::size_t*);
  cuda::Result (*cuGraphNodeGetType)(cuda::GraphNode, int*);
  cuda::Result (*cuMemGetInfo_v2)(std::size_t*, std::size_t*);
  cuda::Result (*cuModuleLoadData)(cuda::Module*, const void*);
  cuda::Result (*cuModuleGetFunction)(cuda::Function*, cuda::Module, const char*);
  cuda::Result (*cuLaunchKernel)(cuda::Function, unsigned, unsigned, unsigned, unsigned, unsigned,
                                 unsigned, unsigned, cuda::Stream, void**, void**);
};

// Loads libcuda.so.1 if the process has not. Null, for good, if there is none.
const Driver* RealDriver();

// The loader's own look-up, past ours.
void* RealDlsym(void* handle, const char* name);

// The real function of that name in the driver, or null.
void* DriverSymbol(const char* name);

// While it lives, calls of this thread cannot break a capture that another thread has under way.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Driver& driver) : driver_(driver) { Exchange(); }
  ~RelaxedCapture() { Exchange(); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  void Exchange() {
    if (driver_.cuThreadExchangeStreamCaptureMode != nullptr)
      driver_.cuThreadExchangeStreamCaptureMode(&mode_);
  }
  const Driver& driver_;
  cuda::CaptureMode mode_ = cuda::kCaptureRelaxed;
};

}  // namespace divvy::gate
