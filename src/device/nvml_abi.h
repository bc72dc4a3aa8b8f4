#pragma once

#include <cstddef>

// The part of NVML's C interface that Divvy uses, declared by us: Debian ships
// no nvml.h, and the library itself is only looked up at run time. Names of
// functions and fields are NVIDIA's, so that this reads beside NVML's manual;
// layouts are checked below against the sizes that drivers since R450 use.

namespace divvy::device::nvml {

using Device = struct OpaqueDevice*;
using GpuInstance = struct OpaqueGpuInstance*;
using ComputeInstance = struct OpaqueComputeInstance*;

enum Return : unsigned {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNoPermission = 4,
  kAlreadyInitialized = 5,
  kNotFound = 6,
  kInsufficientSize = 7,
  kInsufficientPower = 8,
  kDriverNotLoaded = 9,
  kTimeout = 10,
  kIrqIssue = 11,
  kLibraryNotFound = 12,
  kFunctionNotFound = 13,
  kCorruptedInforom = 14,
  kGpuIsLost = 15,
  kResetRequired = 16,
  kOperatingSystem = 17,
  kLibRmVersionMismatch = 18,
  kInUse = 19,
  kMemory = 20,
  kNoData = 21,
  kVgpuEccNotSupported = 22,
  kInsufficientResources = 23,
  kFreqNotSupported = 24,
  kArgumentVersionMismatch = 25,
  kDeprecated = 26,
  kNotReady = 27,
  kGpuNotFound = 28,
  kInvalidState = 29,
  kUnknown = 999,
};

// Which programs may use a GPU.
enum ComputeMode : unsigned {
  kComputeDefault = 0,
  kComputeExclusiveThread = 1,  // Of old drivers.
  kComputeProhibited = 2,
  kComputeExclusiveProcess = 3,
};

inline constexpr unsigned kMigDisable = 0;
inline constexpr unsigned kMigEnable = 1;
inline constexpr unsigned kGpuInstanceProfileCount = 18;
inline constexpr unsigned kComputeInstanceProfileCount = 9;
inline constexpr unsigned kEngineProfileShared = 0;
inline constexpr unsigned kNoInstance = 0xFFFFFFFF;  // In ProcessInfo, without MIG.

inline constexpr std::size_t kUuidBufferSize = 96;
inline constexpr std::size_t kNameBufferSize = 96;
inline constexpr std::size_t kVersionBufferSize = 80;

struct PciInfo {
  char busIdLegacy[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pciDeviceId;
  unsigned pciSubSystemId;
  char busId[32];
};

struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

// v2 and v3 of the running-process calls share this form.
struct ProcessInfo {
  unsigned pid;
  unsigned long long usedGpuMemory;
  unsigned gpuInstanceId;
  unsigned computeInstanceId;
};

struct Utilization {
  unsigned gpu;  // Percent of the last sample period in which a kernel ran.
  unsigned memory;
};

// GPM, on Hopper and later: two samples of the GPU's counters, and figures for the time between.
using GpmSample = struct OpaqueGpmSample*;

inline constexpr unsigned kGpmVersion = 1;
inline constexpr unsigned kGpmGraphicsUtil = 1;  // Percent of the time in which anything ran.
inline constexpr unsigned kGpmSmUtil = 2;        // Percent of the SMs that were busy, on average.

struct GpmSupport {
  unsigned version;
  unsigned isSupportedDevice;
};

struct GpmMetric {
  unsigned metricId;
  Return nvmlReturn;
  double value;
  const char* names[3];
};

// NVML's own has room for as many metrics as its version knows, and reads `numMetrics` of them.
struct GpmMetricsGet {
  unsigned version;
  unsigned numMetrics;
  GpmSample sample1;
  GpmSample sample2;
  GpmMetric metrics[2];
};

struct DeviceAttributes {
  unsigned multiprocessorCount;
  unsigned sharedCopyEngineCount;
  unsigned sharedDecoderCount;
  unsigned sharedEncoderCount;
  unsigned sharedJpegCount;
  unsigned sharedOfaCount;
  unsigned gpuInstanceSliceCount;
  unsigned computeInstanceSliceCount;
  unsigned long long memorySizeMB;
};

struct Placement {
  unsigned start;
  unsigned size;
};

struct GpuInstanceProfileInfo {
  unsigned id;
  unsigned isP2pSupported;
  unsigned sliceCount;
  unsigned instanceCount;
  unsigned multiprocessorCount;
  unsigned copyEngineCount;
  unsigned decoderCount;
  unsigned encoderCount;
  unsigned jpegCount;
  unsigned ofaCount;
  unsigned long long memorySizeMB;
};

struct GpuInstanceProfileInfoV2 {
  unsigned version;
  unsigned id;
  unsigned isP2pSupported;
  unsigned sliceCount;
  unsigned instanceCount;
  unsigned multiprocessorCount;
  unsigned copyEngineCount;
  unsigned decoderCount;
  unsigned encoderCount;
  unsigned jpegCount;
  unsigned ofaCount;
  unsigned long long memorySizeMB;
  char name[kNameBufferSize];
};

struct GpuInstanceInfo {
  Device device;
  unsigned id;
  unsigned profileId;
  Placement placement;
};

struct ComputeInstanceProfileInfo {
  unsigned id;
  unsigned sliceCount;
  unsigned instanceCount;
  unsigned multiprocessorCount;
  unsigned sharedCopyEngineCount;
  unsigned sharedDecoderCount;
  unsigned sharedEncoderCount;
  unsigned sharedJpegCount;
  unsigned sharedOfaCount;
};

struct ComputeInstanceProfileInfoV2 {
  unsigned version;
  unsigned id;
  unsigned sliceCount;
  unsigned instanceCount;
  unsigned multiprocessorCount;
  unsigned sharedCopyEngineCount;
  unsigned sharedDecoderCount;
  unsigned sharedEncoderCount;
  unsigned sharedJpegCount;
  unsigned sharedOfaCount;
  char name[kNameBufferSize];
};

struct ComputeInstanceInfo {
  Device device;  // In _v2: the MIG device itself, whose UUID is the MIG-... one.
  GpuInstance gpuInstance;
  unsigned id;
  unsigned profileId;
  Placement placement;  // In compute slices of the GPU instance.
};

// Versioned structs carry their size and version in the first field.
template <typename T>
constexpr unsigned StructVersion(unsigned version) {
  return static_cast<unsigned>(sizeof(T)) | (version << 24U);
}

static_assert(sizeof(PciInfo) == 68);
static_assert(sizeof(ProcessInfo) == 24);
static_assert(sizeof(DeviceAttributes) == 40);
static_assert(sizeof(GpuInstanceProfileInfo) == 48);
static_assert(sizeof(GpuInstanceProfileInfoV2) == 152);
static_assert(sizeof(GpuInstanceInfo) == 24);
static_assert(sizeof(ComputeInstanceProfileInfo) == 36);
static_assert(sizeof(ComputeInstanceProfileInfoV2) == 136);
static_assert(sizeof(ComputeInstanceInfo) == 32);

}  // namespace divvy::device::nvml
