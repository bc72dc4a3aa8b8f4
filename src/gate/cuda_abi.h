#pragma once

// What the gate and the simulated driver need to know of the CUDA driver's binary interface:
// handles, result codes and the few structures that cross it. Declared here, so that nothing of
// ours needs a CUDA toolkit to be built. Names follow the driver's own, without its CU_ prefixes.

#include <cstddef>
#include <cstdint>

namespace divvy::cuda {

using Device = int;
using DevicePointer = std::uint64_t;
using Context = struct ContextHandle*;
using Stream = struct StreamHandle*;
using Event = struct EventHandle*;
using Module = struct ModuleHandle*;
using Function = struct FunctionHandle*;  // may be a kernel in disguise
using Kernel = struct KernelHandle*;
using Library = struct LibraryHandle*;
using Graph = struct GraphHandle*;
using GraphNode = struct GraphNodeHandle*;
using GraphExec = struct GraphExecHandle*;
using MemoryPool = struct MemoryPoolHandle*;
using AllocationHandle = std::uint64_t;

enum Result : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kDeinitialized = 4,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kInvalidHandle = 400,
  kIllegalState = 401,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kLaunchFailed = 719,
  kNotPermitted = 800,
  kNotSupported = 801,
  kMpsServerNotReady = 807,
  kMpsClientTerminated = 810,
  kStreamCaptureUnsupported = 900,
  kStreamCaptureInvalidated = 901,
  kStreamCaptureUnmatched = 903,
  kStreamCaptureUnjoined = 904,
  kStreamCaptureIsolation = 905,
  kStreamCaptureImplicit = 906,
  kCapturedEvent = 907,
  kStreamCaptureWrongThread = 908,
  kUnknown = 999,
};

enum DeviceAttribute : int {
  kMaxThreadsPerBlock = 1,
  kMaxSharedMemoryPerBlock = 8,
  kWarpSize = 10,
  kMultiprocessorCount = 16,
  kMaxThreadsPerMultiprocessor = 39,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kCanUse64BitStreamMemOps = 122,
  kCanUseStreamWaitValueNor = 123,
};

enum CaptureStatus : int { kCaptureNone = 0, kCaptureActive = 1, kCaptureInvalidated = 2 };
enum CaptureMode : int { kCaptureGlobal = 0, kCaptureThreadLocal = 1, kCaptureRelaxed = 2 };

// The two stream handles that are not handles: the default stream of all threads, and the caller's
// own.
inline Stream LegacyStream() { return reinterpret_cast<Stream>(1); }
inline Stream PerThreadStream() { return reinterpret_cast<Stream>(2); }

inline constexpr unsigned kWaitValueGeq = 0;
inline constexpr unsigned kWaitValueEq = 1;
inline constexpr unsigned kWaitValueAnd = 2;
inline constexpr unsigned kWaitValueNor = 3;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventBlockingSync = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kHostRegisterPortable = 1;
inline constexpr unsigned kHostRegisterDeviceMap = 2;
// Flag of a look-up by name: give the form in which the default stream is the caller's own.
inline constexpr std::uint64_t kPerThreadDefaultStream = 2;

struct Uuid {
  unsigned char bytes[16];
};

struct LaunchAttribute {
  int id;
  char pad[4];
  union {
    char bytes[64];
    int priority;
  } value;
};

struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

struct KernelNodeParams {
  Function function;
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
  void** parameters;
  void** extra;
  Kernel kernel;
  Context context;
};

enum MemOpType : int {
  kMemOpWait32 = 1,
  kMemOpWrite32 = 2,
  kMemOpFlush = 3,
  kMemOpWait64 = 4,
  kMemOpWrite64 = 5
};

union MemOp {
  MemOpType type;
  struct {
    MemOpType type;
    DevicePointer address;
    std::uint64_t value;
    unsigned flags;
    DevicePointer alias;
  } value;  // waits and writes alike
  std::uint64_t pad[6];
};

inline constexpr int kLocationDevice = 1;
struct MemoryLocation {
  int type;  // `id` is a device only where this is kLocationDevice
  int id;
};

struct AllocationProperties {
  int type;
  int handle_types;
  MemoryLocation location;
  void* windows_meta_data;
  struct {
    unsigned char compression;
    unsigned char gpu_direct;
    unsigned short usage;
    unsigned char reserved[4];
  } flags;
};

}  // namespace divvy::cuda
