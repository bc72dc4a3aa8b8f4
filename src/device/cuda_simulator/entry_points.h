#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cuda_simulator/abi_more.h"

// The functions that the simulated libcuda.so.1 exports, with CUDA's names and signatures. A _ptsz
// or _ptds function is the one before it, but for the default stream, which is the calling thread's
// own. Those of memory are in entry_points_memory.h.

// Names are CUDA's, not ours.
// NOLINTBEGIN(readability-identifier-naming)

namespace divvy::device::cuda_simulator {

#pragma GCC visibility push(default)
extern "C" {

cuda::Result cuInit(unsigned flags) noexcept;
cuda::Result cuDriverGetVersion(int* version) noexcept;
cuda::Result cuGetErrorString(cuda::Result error, const char** text) noexcept;
cuda::Result cuGetErrorName(cuda::Result error, const char** text) noexcept;
cuda::Result cuGetProcAddress(const char* name, void** address, int version,
                              std::uint64_t flags) noexcept;
cuda::Result cuGetProcAddress_v2(const char* name, void** address, int version, std::uint64_t flags,
                                 LookupStatus* status) noexcept;
cuda::Result cuGetExportTable(const void** table, const cuda::Uuid* id) noexcept;

cuda::Result cuDeviceGet(cuda::Device* device, int ordinal) noexcept;
cuda::Result cuDeviceGetCount(int* count) noexcept;
cuda::Result cuDeviceGetName(char* name, int length, cuda::Device device) noexcept;
cuda::Result cuDeviceGetUuid(cuda::Uuid* uuid, cuda::Device device) noexcept;
decltype(cuDeviceGetUuid) cuDeviceGetUuid_v2;
cuda::Result cuDeviceTotalMem_v2(std::size_t* bytes, cuda::Device device) noexcept;
cuda::Result cuDeviceGetAttribute(int* value, int attribute, cuda::Device device) noexcept;
cuda::Result cuDeviceGetPCIBusId(char* id, int length, cuda::Device device) noexcept;
cuda::Result cuDeviceGetDefaultMemPool(cuda::MemoryPool* pool, cuda::Device device) noexcept;
cuda::Result cuDeviceGetMemPool(cuda::MemoryPool* pool, cuda::Device device) noexcept;
cuda::Result cuDevicePrimaryCtxRetain(cuda::Context* context, cuda::Device device) noexcept;
cuda::Result cuDevicePrimaryCtxRelease(cuda::Device device) noexcept;
decltype(cuDevicePrimaryCtxRelease) cuDevicePrimaryCtxRelease_v2;
cuda::Result cuDevicePrimaryCtxReset(cuda::Device device) noexcept;
decltype(cuDevicePrimaryCtxReset) cuDevicePrimaryCtxReset_v2;
cuda::Result cuDevicePrimaryCtxSetFlags_v2(cuda::Device device, unsigned flags) noexcept;
cuda::Result cuDevicePrimaryCtxGetState(cuda::Device device, unsigned* flags, int* active) noexcept;

cuda::Result cuCtxCreate_v2(cuda::Context* context, unsigned flags, cuda::Device device) noexcept;
cuda::Result cuCtxCreate_v3(cuda::Context* context, void* affinities, int count, unsigned flags,
                            cuda::Device device) noexcept;
cuda::Result cuCtxCreate_v4(cuda::Context* context, void* params, unsigned flags,
                            cuda::Device device) noexcept;
cuda::Result cuCtxDestroy(cuda::Context context) noexcept;
decltype(cuCtxDestroy) cuCtxDestroy_v2;
cuda::Result cuCtxSetCurrent(cuda::Context context) noexcept;
cuda::Result cuCtxGetCurrent(cuda::Context* context) noexcept;
cuda::Result cuCtxPushCurrent_v2(cuda::Context context) noexcept;
cuda::Result cuCtxPopCurrent_v2(cuda::Context* context) noexcept;
cuda::Result cuCtxGetDevice(cuda::Device* device) noexcept;
cuda::Result cuCtxGetDevice_v2(cuda::Device* device, cuda::Context context) noexcept;
cuda::Result cuCtxGetFlags(unsigned* flags) noexcept;
cuda::Result cuCtxGetApiVersion(cuda::Context context, unsigned* version) noexcept;
cuda::Result cuCtxSynchronize() noexcept;
cuda::Result cuCtxSynchronize_v2(cuda::Context context) noexcept;
cuda::Result cuCtxGetStreamPriorityRange(int* least, int* greatest) noexcept;

cuda::Result cuStreamCreate(cuda::Stream* stream, unsigned flags) noexcept;
cuda::Result cuStreamCreateWithPriority(cuda::Stream* stream, unsigned flags,
                                        int priority) noexcept;
cuda::Result cuStreamDestroy_v2(cuda::Stream stream) noexcept;
cuda::Result cuStreamSynchronize(cuda::Stream stream) noexcept;
decltype(cuStreamSynchronize) cuStreamSynchronize_ptsz;
cuda::Result cuStreamQuery(cuda::Stream stream) noexcept;
decltype(cuStreamQuery) cuStreamQuery_ptsz;
cuda::Result cuStreamWaitEvent(cuda::Stream stream, cuda::Event event, unsigned flags) noexcept;
decltype(cuStreamWaitEvent) cuStreamWaitEvent_ptsz;
cuda::Result cuStreamGetCtx(cuda::Stream stream, cuda::Context* context) noexcept;
decltype(cuStreamGetCtx) cuStreamGetCtx_ptsz;
cuda::Result cuStreamGetCtx_v2(cuda::Stream stream, cuda::Context* context,
                               void** green_context) noexcept;
decltype(cuStreamGetCtx_v2) cuStreamGetCtx_v2_ptsz;
cuda::Result cuStreamGetId(cuda::Stream stream, unsigned long long* id) noexcept;
decltype(cuStreamGetId) cuStreamGetId_ptsz;
cuda::Result cuStreamGetPriority(cuda::Stream stream, int* priority) noexcept;
decltype(cuStreamGetPriority) cuStreamGetPriority_ptsz;
cuda::Result cuStreamGetFlags(cuda::Stream stream, unsigned* flags) noexcept;
decltype(cuStreamGetFlags) cuStreamGetFlags_ptsz;
cuda::Result cuStreamAddCallback(cuda::Stream stream, StreamCallback callback, void* data,
                                 unsigned flags) noexcept;
decltype(cuStreamAddCallback) cuStreamAddCallback_ptsz;
cuda::Result cuLaunchHostFunc(cuda::Stream stream, HostFunction function, void* data) noexcept;
decltype(cuLaunchHostFunc) cuLaunchHostFunc_ptsz;

cuda::Result cuStreamWaitValue32(cuda::Stream stream, cuda::DevicePointer address,
                                 std::uint32_t value, unsigned flags) noexcept;
decltype(cuStreamWaitValue32) cuStreamWaitValue32_ptsz;
decltype(cuStreamWaitValue32) cuStreamWaitValue32_v2;
decltype(cuStreamWaitValue32) cuStreamWaitValue32_v2_ptsz;
decltype(cuStreamWaitValue32) cuStreamWriteValue32;
decltype(cuStreamWaitValue32) cuStreamWriteValue32_ptsz;
decltype(cuStreamWaitValue32) cuStreamWriteValue32_v2;
decltype(cuStreamWaitValue32) cuStreamWriteValue32_v2_ptsz;
cuda::Result cuStreamWaitValue64(cuda::Stream stream, cuda::DevicePointer address,
                                 std::uint64_t value, unsigned flags) noexcept;
decltype(cuStreamWaitValue64) cuStreamWaitValue64_ptsz;
decltype(cuStreamWaitValue64) cuStreamWaitValue64_v2;
decltype(cuStreamWaitValue64) cuStreamWaitValue64_v2_ptsz;
decltype(cuStreamWaitValue64) cuStreamWriteValue64;
decltype(cuStreamWaitValue64) cuStreamWriteValue64_ptsz;
decltype(cuStreamWaitValue64) cuStreamWriteValue64_v2;
decltype(cuStreamWaitValue64) cuStreamWriteValue64_v2_ptsz;
cuda::Result cuStreamBatchMemOp(cuda::Stream stream, unsigned count, cuda::MemOp* operations,
                                unsigned flags) noexcept;
decltype(cuStreamBatchMemOp) cuStreamBatchMemOp_ptsz;
decltype(cuStreamBatchMemOp) cuStreamBatchMemOp_v2;
decltype(cuStreamBatchMemOp) cuStreamBatchMemOp_v2_ptsz;

cuda::Result cuThreadExchangeStreamCaptureMode(cuda::CaptureMode* mode) noexcept;
cuda::Result cuStreamBeginCapture(cuda::Stream stream) noexcept;
decltype(cuStreamBeginCapture) cuStreamBeginCapture_ptsz;
cuda::Result cuStreamBeginCapture_v2(cuda::Stream stream, cuda::CaptureMode mode) noexcept;
decltype(cuStreamBeginCapture_v2) cuStreamBeginCapture_v2_ptsz;
cuda::Result cuStreamBeginCaptureToGraph(cuda::Stream stream, cuda::Graph graph,
                                         const cuda::GraphNode* dependencies, const void* edges,
                                         std::size_t count, cuda::CaptureMode mode) noexcept;
decltype(cuStreamBeginCaptureToGraph) cuStreamBeginCaptureToGraph_ptsz;
cuda::Result cuStreamEndCapture(cuda::Stream stream, cuda::Graph* graph) noexcept;
decltype(cuStreamEndCapture) cuStreamEndCapture_ptsz;
cuda::Result cuStreamIsCapturing(cuda::Stream stream, cuda::CaptureStatus* status) noexcept;
decltype(cuStreamIsCapturing) cuStreamIsCapturing_ptsz;
cuda::Result cuStreamGetCaptureInfo(cuda::Stream stream, cuda::CaptureStatus* status,
                                    std::uint64_t* id) noexcept;
decltype(cuStreamGetCaptureInfo) cuStreamGetCaptureInfo_ptsz;
cuda::Result cuStreamGetCaptureInfo_v2(cuda::Stream stream, cuda::CaptureStatus* status,
                                       std::uint64_t* id, cuda::Graph* graph,
                                       const cuda::GraphNode** dependencies,
                                       std::size_t* count) noexcept;
decltype(cuStreamGetCaptureInfo_v2) cuStreamGetCaptureInfo_v2_ptsz;
cuda::Result cuStreamGetCaptureInfo_v3(cuda::Stream stream, cuda::CaptureStatus* status,
                                       std::uint64_t* id, cuda::Graph* graph,
                                       const cuda::GraphNode** dependencies, const void** edges,
                                       std::size_t* count) noexcept;
decltype(cuStreamGetCaptureInfo_v3) cuStreamGetCaptureInfo_v3_ptsz;

cuda::Result cuEventCreate(cuda::Event* event, unsigned flags) noexcept;
cuda::Result cuEventRecord(cuda::Event event, cuda::Stream stream) noexcept;
decltype(cuEventRecord) cuEventRecord_ptsz;
cuda::Result cuEventRecordWithFlags(cuda::Event event, cuda::Stream stream,
                                    unsigned flags) noexcept;
decltype(cuEventRecordWithFlags) cuEventRecordWithFlags_ptsz;
cuda::Result cuEventQuery(cuda::Event event) noexcept;
cuda::Result cuEventSynchronize(cuda::Event event) noexcept;
cuda::Result cuEventElapsedTime(float* milliseconds, cuda::Event begin, cuda::Event end) noexcept;
decltype(cuEventElapsedTime) cuEventElapsedTime_v2;
cuda::Result cuEventDestroy_v2(cuda::Event event) noexcept;

cuda::Result cuModuleLoadData(cuda::Module* module, const void* image) noexcept;
cuda::Result cuModuleLoadDataEx(cuda::Module* module, const void* image, unsigned count,
                                void* options, void** values) noexcept;
cuda::Result cuModuleUnload(cuda::Module module) noexcept;
cuda::Result cuModuleGetFunction(cuda::Function* function, cuda::Module module,
                                 const char* name) noexcept;
cuda::Result cuLibraryLoadData(cuda::Library* library, const void* code, void* jit_options,
                               void** jit_values, unsigned jit_count, void* options, void** values,
                               unsigned count) noexcept;
cuda::Result cuLibraryUnload(cuda::Library library) noexcept;
cuda::Result cuLibraryGetKernel(cuda::Kernel* kernel, cuda::Library library,
                                const char* name) noexcept;
cuda::Result cuKernelGetFunction(cuda::Function* function, cuda::Kernel kernel) noexcept;
cuda::Result cuKernelGetName(const char** name, cuda::Kernel kernel) noexcept;
cuda::Result cuFuncGetName(const char** name, cuda::Function function) noexcept;
cuda::Result cuFuncGetModule(cuda::Module* module, cuda::Function function) noexcept;
cuda::Result cuFuncGetAttribute(int* value, int attribute, cuda::Function function) noexcept;
cuda::Result cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, cuda::Function function,
                                                         int block_size,
                                                         std::size_t shared_bytes) noexcept;
cuda::Result cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks,
                                                                  cuda::Function function,
                                                                  int block_size,
                                                                  std::size_t shared_bytes,
                                                                  unsigned flags) noexcept;

cuda::Result cuLaunchKernel(cuda::Function function, unsigned grid_x, unsigned grid_y,
                            unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                            unsigned shared_bytes, cuda::Stream stream, void** parameters,
                            void** extra) noexcept;
decltype(cuLaunchKernel) cuLaunchKernel_ptsz;
cuda::Result cuLaunchKernelEx(const cuda::LaunchConfig* config, cuda::Function function,
                              void** parameters, void** extra) noexcept;
decltype(cuLaunchKernelEx) cuLaunchKernelEx_ptsz;
cuda::Result cuLaunchCooperativeKernel(cuda::Function function, unsigned grid_x, unsigned grid_y,
                                       unsigned grid_z, unsigned block_x, unsigned block_y,
                                       unsigned block_z, unsigned shared_bytes, cuda::Stream stream,
                                       void** parameters) noexcept;
decltype(cuLaunchCooperativeKernel) cuLaunchCooperativeKernel_ptsz;

cuda::Result cuGraphCreate(cuda::Graph* graph, unsigned flags) noexcept;
cuda::Result cuGraphDestroy(cuda::Graph graph) noexcept;
cuda::Result cuGraphAddKernelNode_v2(cuda::GraphNode* node, cuda::Graph graph,
                                     const cuda::GraphNode* dependencies, std::size_t count,
                                     const cuda::KernelNodeParams* params) noexcept;
cuda::Result cuGraphGetNodes(cuda::Graph graph, cuda::GraphNode* nodes,
                             std::size_t* count) noexcept;
cuda::Result cuGraphNodeGetType(cuda::GraphNode node, GraphNodeType* type) noexcept;
cuda::Result cuGraphKernelNodeGetParams(cuda::GraphNode node, KernelNodeParamsV1* params) noexcept;
cuda::Result cuGraphKernelNodeGetParams_v2(cuda::GraphNode node,
                                           cuda::KernelNodeParams* params) noexcept;
cuda::Result cuGraphInstantiate(cuda::GraphExec* exec, cuda::Graph graph,
                                cuda::GraphNode* error_node, char* log,
                                std::size_t log_size) noexcept;
decltype(cuGraphInstantiate) cuGraphInstantiate_v2;
cuda::Result cuGraphInstantiateWithFlags(cuda::GraphExec* exec, cuda::Graph graph,
                                         unsigned long long flags) noexcept;
cuda::Result cuGraphInstantiateWithParams(cuda::GraphExec* exec, cuda::Graph graph,
                                          GraphInstantiateParams* params) noexcept;
decltype(cuGraphInstantiateWithParams) cuGraphInstantiateWithParams_ptsz;
cuda::Result cuGraphExecDestroy(cuda::GraphExec exec) noexcept;
cuda::Result cuGraphExecUpdate(cuda::GraphExec exec, cuda::Graph graph, cuda::GraphNode* error_node,
                               int* update_result) noexcept;
cuda::Result cuGraphExecUpdate_v2(cuda::GraphExec exec, cuda::Graph graph,
                                  GraphUpdateInfo* info) noexcept;
cuda::Result cuGraphExecKernelNodeSetParams_v2(cuda::GraphExec exec, cuda::GraphNode node,
                                               const cuda::KernelNodeParams* params) noexcept;
cuda::Result cuGraphLaunch(cuda::GraphExec exec, cuda::Stream stream) noexcept;
decltype(cuGraphLaunch) cuGraphLaunch_ptsz;
decltype(cuGraphLaunch) cuGraphUpload;
decltype(cuGraphLaunch) cuGraphUpload_ptsz;

}  // extern "C"
#pragma GCC visibility pop

}  // namespace divvy::device::cuda_simulator

// NOLINTEND(readability-identifier-naming)
