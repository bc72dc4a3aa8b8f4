#include <cstdio>

#include "device/cuda_simulator/call.h"
#include "device/cuda_simulator/entry_points.h"
#include "device/cuda_simulator/identity.h"

// Devices and their primary contexts.

namespace divvy::device::cuda_simulator {
namespace {

// For calls about one device: `body(Call&, gpu)`, with the machine's number of it.
template <typename Body>
cuda::Result OfDevice(const char* function, cuda::Device device, Body body) noexcept {
  return InDriver(function, [&](Call& call) {
    if (!call.driver.HasDevice(device)) return cuda::kInvalidDevice;
    return body(call, call.driver.devices[device]);
  });
}

int Attribute(const Machine& machine, int attribute, int gpu) {
  constexpr int kMaxBlocksPerMultiprocessor = 106;
  constexpr int kPciBus = 33;
  switch (attribute) {
    case cuda::kMaxThreadsPerBlock:
    case 2:  // Of a block's first and second dimension.
    case 3:
      return 1024;
    case 4:
      return 64;
    case 5:  // Of a grid's dimensions.
      return 0x7FFFFFFF;
    case 6:
    case 7:
      return 65535;
    case cuda::kMaxSharedMemoryPerBlock:
      return 48 << 10;
    case cuda::kWarpSize:
      return 32;
    case 12:  // Registers of a block and of an SM.
    case 82:
      return 65536;
    case cuda::kMultiprocessorCount:
      return machine.usable_sms();
    case cuda::kMaxThreadsPerMultiprocessor:
      return machine.spec().threads_per_sm;
    case kMaxBlocksPerMultiprocessor:
      return machine.spec().blocks_per_sm;
    case 81:  // Shared memory of an SM, and of a block that asks for more.
    case 97:
      return 227 << 10;
    case cuda::kComputeCapabilityMajor:
      return 9;
    case cuda::kComputeCapabilityMinor:
      return 0;
    case kPciBus:
      return gpu + 1;
    case 133:  // Whether MPS is on.
      return machine.spec().sharing == Sharing::kMps ? 1 : 0;
    case 19:  // Host memory can be mapped.
    case 31:  // Kernels run side by side.
    case 41:  // One address space.
    case 78:  // Stream priorities.
    case 83:  // Managed memory.
    case 90:  // Preemption.
    case 91:  // A registered pointer serves as it is.
    case 92:  // Waits and writes of values, in their first form.
    case 93:
    case 94:
    case 95:   // Cooperative launches.
    case 99:   // Registering.
    case 102:  // Virtual memory.
    case 115:  // Memory pools.
    case cuda::kCanUse64BitStreamMemOps:
    case cuda::kCanUseStreamWaitValueNor:
      return 1;
    default:
      return 0;
  }
}

}  // namespace

cuda::Result cuDeviceGet(cuda::Device* device, int ordinal) noexcept {
  return OfDevice("cuDeviceGet", ordinal, [&](Call&, int) {
    if (device == nullptr) return cuda::kInvalidValue;
    *device = ordinal;
    return cuda::kSuccess;
  });
}

cuda::Result cuDeviceGetCount(int* count) noexcept {
  return InDriver("cuDeviceGetCount", [&](Call& call) {
    if (count == nullptr) return cuda::kInvalidValue;
    *count = static_cast<int>(call.driver.devices.size());
    return cuda::kSuccess;
  });
}

cuda::Result cuDeviceGetName(char* name, int length, cuda::Device device) noexcept {
  return OfDevice("cuDeviceGetName", device, [&](Call&, int) {
    if (name == nullptr || length <= 0) return cuda::kInvalidValue;
    std::snprintf(name, static_cast<std::size_t>(length), "Divvy simulated GPU");
    return cuda::kSuccess;
  });
}

cuda::Result cuDeviceGetUuid(cuda::Uuid* uuid, cuda::Device device) noexcept {
  return OfDevice("cuDeviceGetUuid", device, [&](Call&, int gpu) {
    if (uuid == nullptr) return cuda::kInvalidValue;
    *uuid = UuidOf(gpu);
    return cuda::kSuccess;
  });
}

cuda::Result cuDeviceGetUuid_v2(cuda::Uuid* uuid, cuda::Device device) noexcept {
  return cuDeviceGetUuid(uuid, device);
}

cuda::Result cuDeviceTotalMem_v2(std::size_t* bytes, cuda::Device device) noexcept {
  return OfDevice("cuDeviceTotalMem_v2", device, [&](Call& call, int) {
    if (bytes == nullptr) return cuda::kInvalidValue;
    *bytes = call.driver.machine->spec().memory;
    return cuda::kSuccess;
  });
}

cuda::Result cuDeviceGetAttribute(int* value, int attribute, cuda::Device device) noexcept {
  return OfDevice("cuDeviceGetAttribute", device, [&](Call& call, int gpu) {
    constexpr int kLast = 200;
    if (value == nullptr || attribute < 1 || attribute > kLast) return cuda::kInvalidValue;
    *value = Attribute(*call.driver.machine, attribute, gpu);
    return cuda::kSuccess;
  });
}

cuda::Result cuDeviceGetPCIBusId(char* id, int length, cuda::Device device) noexcept {
  return OfDevice("cuDeviceGetPCIBusId", device, [&](Call&, int gpu) {
    if (id == nullptr || length <= 0) return cuda::kInvalidValue;
    std::snprintf(id, static_cast<std::size_t>(length), "0000:%02X:00.0", gpu + 1);
    return cuda::kSuccess;
  });
}

cuda::Result cuDeviceGetDefaultMemPool(cuda::MemoryPool* pool, cuda::Device device) noexcept {
  return OfDevice("cuDeviceGetDefaultMemPool", device, [&](Call&, int gpu) {
    if (pool == nullptr) return cuda::kInvalidValue;
    constexpr std::uint64_t kPools = std::uint64_t{0x5C} << 36;
    *pool = reinterpret_cast<cuda::MemoryPool>(kPools + static_cast<std::uint64_t>(gpu + 1) * 64);
    return cuda::kSuccess;
  });
}

cuda::Result cuDeviceGetMemPool(cuda::MemoryPool* pool, cuda::Device device) noexcept {
  return cuDeviceGetDefaultMemPool(pool, device);
}

cuda::Result cuDevicePrimaryCtxRetain(cuda::Context* context, cuda::Device device) noexcept {
  return OfDevice("cuDevicePrimaryCtxRetain", device, [&](Call& call, int) {
    if (context == nullptr) return cuda::kInvalidValue;
    auto& primary = call.driver.primary[device];
    if (!primary) primary = call.driver.MakeContext(device, 0, true);
    ++call.driver.primary_uses[device];
    *context = primary->handle;
    call.driver.AskForSlice(call.lock, device);
    return cuda::kSuccess;
  });
}

cuda::Result cuDevicePrimaryCtxRelease_v2(cuda::Device device) noexcept {
  return OfDevice("cuDevicePrimaryCtxRelease_v2", device, [&](Call& call, int) {
    Driver& driver = call.driver;
    if (driver.primary_uses[device] == 0) return cuda::kInvalidContext;
    if (--driver.primary_uses[device] > 0) return cuda::kSuccess;
    if (auto primary = std::exchange(driver.primary[device], nullptr))
      driver.DestroyContext(primary);
    return cuda::kSuccess;
  });
}

cuda::Result cuDevicePrimaryCtxRelease(cuda::Device device) noexcept {
  return cuDevicePrimaryCtxRelease_v2(device);
}

cuda::Result cuDevicePrimaryCtxReset_v2(cuda::Device device) noexcept {
  return OfDevice("cuDevicePrimaryCtxReset_v2", device, [&](Call& call, int) {
    Driver& driver = call.driver;
    // Whoever holds it must retain it again before it is of use.
    if (auto primary = std::exchange(driver.primary[device], nullptr))
      driver.DestroyContext(primary);
    return cuda::kSuccess;
  });
}

cuda::Result cuDevicePrimaryCtxReset(cuda::Device device) noexcept {
  return cuDevicePrimaryCtxReset_v2(device);
}

cuda::Result cuDevicePrimaryCtxSetFlags_v2(cuda::Device device, unsigned) noexcept {
  return OfDevice("cuDevicePrimaryCtxSetFlags_v2", device,
                  [&](Call&, int) { return cuda::kSuccess; });
}

cuda::Result cuDevicePrimaryCtxGetState(cuda::Device device, unsigned* flags,
                                        int* active) noexcept {
  return OfDevice("cuDevicePrimaryCtxGetState", device, [&](Call& call, int) {
    if (flags == nullptr || active == nullptr) return cuda::kInvalidValue;
    *flags = 0;
    *active = call.driver.primary[device] ? 1 : 0;
    return cuda::kSuccess;
  });
}

}  // namespace divvy::device::cuda_simulator
