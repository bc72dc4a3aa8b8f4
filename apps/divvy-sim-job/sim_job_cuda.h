#pragma once

#include <optional>
#include <string>

#include "gate/cuda_abi.h"

namespace divvy::tests {

// How a program comes by the driver's functions.
enum class Lookup {
  kByVersion,       // As CUDA's runtime: dlopen, dlsym of cuGetProcAddress_v2, the rest from that.
  kByFirstVersion,  // As that of CUDA 11, which has no more than cuGetProcAddress.
  kByName,          // dlopen and dlsym, as cuFFT, Triton and many others.
  kLinked,          // Bound by the loader; only divvy-sim-job-linked can.
};

// The functions of the driver that the job uses, wherever they came from.
struct Cuda {
  cuda::Result (*init)(unsigned);
  cuda::Result (*device_get)(int*, int);
  cuda::Result (*primary_retain)(cuda::Context*, int);
  cuda::Result (*set_current)(cuda::Context);
  cuda::Result (*get_current)(cuda::Context*);
  cuda::Result (*context_synchronize)();
  cuda::Result (*module_load)(cuda::Module*, const void*);
  cuda::Result (*module_function)(cuda::Function*, cuda::Module, const char*);
  cuda::Result (*launch)(cuda::Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                         unsigned, cuda::Stream, void**, void**);
  cuda::Result (*launch_ex)(const cuda::LaunchConfig*, cuda::Function, void**, void**);
  cuda::Result (*launch_cooperative)(cuda::Function, unsigned, unsigned, unsigned, unsigned,
                                     unsigned, unsigned, unsigned, cuda::Stream, void**);
  cuda::Result (*launch_host_function)(cuda::Stream, void (*)(void*), void*);
  cuda::Result (*stream_create)(cuda::Stream*, unsigned);
  cuda::Result (*stream_synchronize)(cuda::Stream);
  cuda::Result (*stream_query)(cuda::Stream);
  cuda::Result (*begin_capture)(cuda::Stream, cuda::CaptureMode);
  cuda::Result (*end_capture)(cuda::Stream, cuda::Graph*);
  cuda::Result (*graph_instantiate)(cuda::GraphExec*, cuda::Graph, unsigned long long);
  cuda::Result (*graph_launch)(cuda::GraphExec, cuda::Stream);
  cuda::Result (*event_create)(cuda::Event*, unsigned);
  cuda::Result (*event_record)(cuda::Event, cuda::Stream);
  cuda::Result (*event_synchronize)(cuda::Event);
  cuda::Result (*event_query)(cuda::Event);
  cuda::Result (*memory_allocate)(cuda::DevicePointer*, std::size_t);
  cuda::Result (*copy_to_host)(void*, cuda::DevicePointer, std::size_t);
};

// Finds all of them, in the forms whose default stream is the calling thread's own if `per_thread`.
// Otherwise nothing, and `problem` says which is missing, or why there is no driver.
std::optional<Cuda> FindCuda(Lookup lookup, bool per_thread, std::string& problem);

// The functions the loader has bound, in one of two files: divvy-sim-job has none.
std::optional<Cuda> LinkedCuda(bool per_thread);

}  // namespace divvy::tests
