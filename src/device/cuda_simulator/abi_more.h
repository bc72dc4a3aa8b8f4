#pragma once

#include <cstddef>
#include <cstdint>

#include "gate/cuda_abi.h"

// What a driver must answer beyond what the gate asks of one: more result codes, attributes and
// structures of CUDA's binary interface, declared by us.

namespace divvy::device::cuda_simulator {

inline constexpr cuda::Result kContextIsDestroyed{static_cast<cuda::Result>(709)};
inline constexpr cuda::Result kHostMemoryAlreadyRegistered{static_cast<cuda::Result>(712)};
inline constexpr cuda::Result kHostMemoryNotRegistered{static_cast<cuda::Result>(713)};
inline constexpr cuda::Result kCooperativeLaunchTooLarge{static_cast<cuda::Result>(720)};
inline constexpr cuda::Result kStreamCaptureMerge{static_cast<cuda::Result>(902)};
inline constexpr cuda::Result kGraphExecUpdateFailure{static_cast<cuda::Result>(910)};

// What a look-up by name adds to its result.
enum LookupStatus : int { kLookupFound = 0, kLookupUnknownName = 1, kLookupOldVersion = 2 };

enum GraphNodeType : int {
  kNodeKernel = 0,
  kNodeCopy = 1,
  kNodeFill = 2,
  kNodeHost = 3,
  kNodeEmpty = 5,
  kNodeWaitEvent = 6,
  kNodeRecordEvent = 7,
  kNodeAllocation = 10,
  kNodeFree = 11,
  kNodeMemOp = 12,
};

enum PointerAttribute : int {
  kPointerContext = 1,
  kPointerMemoryType = 2,
  kPointerDevicePointer = 3,
  kPointerHostPointer = 4,
  kPointerIsManaged = 8,
  kPointerDeviceOrdinal = 9,
  kPointerRangeStart = 11,
  kPointerRangeSize = 12,
};

inline constexpr unsigned kMemoryTypeHost = 1;
inline constexpr unsigned kMemoryTypeDevice = 2;

enum FunctionAttribute : int {
  kFunctionMaxThreads = 0,
  kFunctionSharedBytes = 1,
  kFunctionConstBytes = 2,
  kFunctionLocalBytes = 3,
  kFunctionRegisters = 4,
  kFunctionPtxVersion = 5,
  kFunctionBinaryVersion = 6,
  kFunctionMaxDynamicShared = 8,
  kFunctionAttributes = 16,  // How many there are.
};

struct GraphInstantiateParams {
  std::uint64_t flags;
  cuda::Stream upload_stream;
  cuda::GraphNode error_node;
  int result;
};

struct GraphUpdateInfo {
  int result;
  cuda::GraphNode error_node;
  cuda::GraphNode error_from_node;
};
inline constexpr int kUpdateSuccess = 0;
inline constexpr int kUpdateTopologyChanged = 2;
inline constexpr int kUpdateNodeTypeChanged = 3;

struct AccessDescription {
  cuda::MemoryLocation location;
  int flags;
};

// The first form of a kernel node's parameters, before there were kernels without a context.
struct KernelNodeParamsV1 {
  cuda::Function function;
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
  void** parameters;
  void** extra;
};

using HostFunction = void (*)(void* data);
using StreamCallback = void (*)(cuda::Stream stream, cuda::Result status, void* data);

}  // namespace divvy::device::cuda_simulator
