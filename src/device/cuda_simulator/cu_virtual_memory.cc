#include <sys/mman.h>

#include "device/cuda_simulator/call.h"
#include "device/cuda_simulator/entry_points_memory.h"

// Virtual memory: physical allocations, addresses and mappings between them. Only their bookkeeping
// is real: a mapping makes its addresses usable, and two mappings of one allocation share nothing.

namespace divvy::device::cuda_simulator {
namespace {

constexpr std::size_t kGranularity = std::size_t{2} << 20;

bool IsWhole(std::size_t bytes) { return bytes != 0 && bytes % kGranularity == 0; }

Driver::Allocation* ToKey(cuda::AllocationHandle handle) {
  return reinterpret_cast<Driver::Allocation*>(handle);
}

// A mapping takes all of a reserved range, or part of it; the range counts as mapped then.
cuda::Result Protect(Call& call, cuda::DevicePointer address, std::size_t bytes, bool map) {
  Range* range = nullptr;
  if (const Range* found = call.driver.memory.Find(address)) {
    range = call.driver.memory.FindBase(found->base);
  }
  if (range == nullptr || range->charged != 0 || !IsWhole(bytes)) return cuda::kInvalidValue;
  if (range->kind != RangeKind::kReserved && range->kind != RangeKind::kDevice) {
    return cuda::kInvalidValue;
  }
  if (bytes > range->size - (address - range->base)) return cuda::kInvalidValue;
  if (!map && range->kind != RangeKind::kDevice) return cuda::kInvalidValue;
  mprotect(reinterpret_cast<void*>(address), bytes, map ? PROT_READ | PROT_WRITE : PROT_NONE);
  range->kind = map ? RangeKind::kDevice : RangeKind::kReserved;
  return cuda::kSuccess;
}

}  // namespace

cuda::Result cuMemCreate(cuda::AllocationHandle* handle, std::size_t bytes,
                         const cuda::AllocationProperties* properties,
                         unsigned long long flags) noexcept {
  return InContext("cuMemCreate", [&](Call& call) {
    if (handle == nullptr || properties == nullptr || !IsWhole(bytes) || flags != 0) {
      return cuda::kInvalidValue;
    }
    if (const auto result = call.driver.CheckUnsafe()) return result;
    constexpr int kLocationHost = 2;
    const cuda::MemoryLocation& location = properties->location;
    int gpu = -1;
    if (location.type == cuda::kLocationDevice) {
      if (!call.driver.HasDevice(location.id)) return cuda::kInvalidDevice;
      gpu = call.driver.devices[location.id];
      if (const auto result = call.driver.Charge(gpu, bytes)) return result;
    } else if (location.type < kLocationHost) {
      return cuda::kInvalidValue;
    }
    const auto made = std::make_shared<Driver::Allocation>(Driver::Allocation{bytes, gpu});
    *handle = reinterpret_cast<cuda::AllocationHandle>(call.driver.allocations.Add(made));
    return cuda::kSuccess;
  });
}

cuda::Result cuMemRelease(cuda::AllocationHandle handle) noexcept {
  return InDriver("cuMemRelease", [&](Call& call) {
    const auto found = call.driver.allocations.Find(ToKey(handle));
    if (!found) return cuda::kInvalidValue;
    if (found->gpu >= 0) call.driver.Refund(found->gpu, found->size);
    call.driver.allocations.Remove(ToKey(handle));
    return cuda::kSuccess;
  });
}

cuda::Result cuMemAddressReserve(cuda::DevicePointer* address, std::size_t bytes, std::size_t,
                                 cuda::DevicePointer, unsigned long long flags) noexcept {
  return InContext("cuMemAddressReserve", [&](Call& call) {
    if (address == nullptr || !IsWhole(bytes) || flags != 0) return cuda::kInvalidValue;
    const Range* range = call.driver.memory.Allocate(RangeKind::kReserved, bytes, call.context);
    if (range == nullptr) return cuda::kOutOfMemory;
    *address = range->base;
    return cuda::kSuccess;
  });
}

cuda::Result cuMemAddressFree(cuda::DevicePointer address, std::size_t bytes) noexcept {
  return InDriver("cuMemAddressFree", [&](Call& call) {
    const Range* range = call.driver.memory.FindBase(address);
    if (range == nullptr || range->kind != RangeKind::kReserved || range->size != bytes) {
      return cuda::kInvalidValue;
    }
    call.driver.memory.Free(address);
    return cuda::kSuccess;
  });
}

cuda::Result cuMemMap(cuda::DevicePointer address, std::size_t bytes, std::size_t offset,
                      cuda::AllocationHandle handle, unsigned long long flags) noexcept {
  return InContext("cuMemMap", [&](Call& call) {
    const auto found = call.driver.allocations.Find(ToKey(handle));
    if (!found || flags != 0 || offset != 0 || bytes > found->size) return cuda::kInvalidValue;
    return Protect(call, address, bytes, true);
  });
}

cuda::Result cuMemUnmap(cuda::DevicePointer address, std::size_t bytes) noexcept {
  return InContext("cuMemUnmap", [&](Call& call) { return Protect(call, address, bytes, false); });
}

cuda::Result cuMemSetAccess(cuda::DevicePointer address, std::size_t bytes,
                            const AccessDescription* access, std::size_t count) noexcept {
  return InContext("cuMemSetAccess", [&](Call& call) {
    if (access == nullptr || count == 0) return cuda::kInvalidValue;
    return call.driver.memory.Holds(address, bytes) ? cuda::kSuccess : cuda::kInvalidValue;
  });
}

cuda::Result cuMemGetAllocationGranularity(std::size_t* bytes,
                                           const cuda::AllocationProperties* properties,
                                           int) noexcept {
  return InDriver("cuMemGetAllocationGranularity", [&](Call&) {
    if (bytes == nullptr || properties == nullptr) return cuda::kInvalidValue;
    *bytes = kGranularity;
    return cuda::kSuccess;
  });
}

}  // namespace divvy::device::cuda_simulator
