#include "device/cuda_simulator/entry_points.h"
#include "device/cuda_simulator/entry_points_memory.h"
#include "sim_job_cuda.h"

namespace divvy::tests {

namespace driver = device::cuda_simulator;

// Taken at run time: what the loader has bound each name to, which may be a library preloaded.
std::optional<Cuda> LinkedCuda(bool per_thread) {
  Cuda cuda{};
  cuda.init = driver::cuInit;
  cuda.device_get = driver::cuDeviceGet;
  cuda.primary_retain = driver::cuDevicePrimaryCtxRetain;
  cuda.set_current = driver::cuCtxSetCurrent;
  cuda.get_current = driver::cuCtxGetCurrent;
  cuda.context_synchronize = driver::cuCtxSynchronize;
  cuda.module_load = driver::cuModuleLoadData;
  cuda.module_function = driver::cuModuleGetFunction;
  cuda.stream_create = driver::cuStreamCreate;
  cuda.graph_instantiate = driver::cuGraphInstantiateWithFlags;
  cuda.event_create = driver::cuEventCreate;
  cuda.event_synchronize = driver::cuEventSynchronize;
  cuda.event_query = driver::cuEventQuery;
  cuda.memory_allocate = driver::cuMemAlloc_v2;
  cuda.launch = per_thread ? driver::cuLaunchKernel_ptsz : driver::cuLaunchKernel;
  cuda.launch_ex = per_thread ? driver::cuLaunchKernelEx_ptsz : driver::cuLaunchKernelEx;
  cuda.launch_cooperative =
      per_thread ? driver::cuLaunchCooperativeKernel_ptsz : driver::cuLaunchCooperativeKernel;
  cuda.launch_host_function = per_thread ? driver::cuLaunchHostFunc_ptsz : driver::cuLaunchHostFunc;
  cuda.stream_synchronize =
      per_thread ? driver::cuStreamSynchronize_ptsz : driver::cuStreamSynchronize;
  cuda.stream_query = per_thread ? driver::cuStreamQuery_ptsz : driver::cuStreamQuery;
  cuda.begin_capture =
      per_thread ? driver::cuStreamBeginCapture_v2_ptsz : driver::cuStreamBeginCapture_v2;
  cuda.end_capture = per_thread ? driver::cuStreamEndCapture_ptsz : driver::cuStreamEndCapture;
  cuda.graph_launch = per_thread ? driver::cuGraphLaunch_ptsz : driver::cuGraphLaunch;
  cuda.event_record = per_thread ? driver::cuEventRecord_ptsz : driver::cuEventRecord;
  cuda.copy_to_host = per_thread ? driver::cuMemcpyDtoH_v2_ptds : driver::cuMemcpyDtoH_v2;
  return cuda;
}

}  // namespace divvy::tests
