#include <algorithm>

#include "device/cuda_simulator/call.h"
#include "device/cuda_simulator/entry_points_memory.h"

// Device memory.

namespace divvy::device::cuda_simulator {
namespace {

// What an allocation takes of the GPU: the driver deals in pieces of this size.
constexpr std::size_t kPiece = std::size_t{2} << 20;

std::uint64_t ChargeFor(std::size_t bytes) { return (bytes + kPiece - 1) / kPiece * kPiece; }

cuda::Result Allocate(Call& call, cuda::DevicePointer* address, std::size_t bytes, RangeKind kind) {
  if (address == nullptr || bytes == 0) return cuda::kInvalidValue;
  constexpr std::size_t kMost = std::size_t{1} << 46;
  if (bytes > kMost) return cuda::kOutOfMemory;
  const std::uint64_t charge = ChargeFor(bytes);
  if (const auto result = call.driver.Charge(call.context->gpu, charge)) return result;
  const Range* range = call.driver.memory.Allocate(kind, bytes, call.context);
  if (range == nullptr) {
    call.driver.Refund(call.context->gpu, charge);
    return cuda::kOutOfMemory;
  }
  call.driver.memory.FindBase(range->base)->charged = charge;
  *address = range->base;
  return cuda::kSuccess;
}

cuda::Result AllocateNow(const char* function, cuda::DevicePointer* address, std::size_t bytes,
                         RangeKind kind) {
  return InContext(function, [&](Call& call) {
    if (const auto result = call.driver.CheckUnsafe()) return result;
    return Allocate(call, address, bytes, kind);
  });
}

// The address is known at once, so the memory is made at once; in a capture a node stands for it.
cuda::Result AllocateInOrder(const char* function, cuda::DevicePointer* address, std::size_t bytes,
                             cuda::Stream handle) {
  return OnStream(function, handle, [&](Call& call, const auto& stream) {
    if (stream->context != call.context) return cuda::kInvalidHandle;
    if (const auto result = call.driver.CheckLegacy(*stream)) return result;
    if (const auto result = Allocate(call, address, bytes, RangeKind::kDevice)) return result;
    if (!stream->capture) return cuda::kSuccess;
    Node node;
    node.type = kNodeAllocation;
    return call.driver.Submit(call.lock, stream, std::move(node));
  });
}

bool IsPool(cuda::MemoryPool pool) {
  constexpr std::uint64_t kPools = 0x5C;
  return reinterpret_cast<std::uint64_t>(pool) >> 36 == kPools;
}

}  // namespace

cuda::Result cuMemGetInfo_v2(std::size_t* free, std::size_t* total) noexcept {
  return InContext("cuMemGetInfo_v2", [&](Call& call) {
    const MemoryInfo info = call.driver.machine->Memory(call.context->gpu);
    if (free != nullptr) *free = info.free;
    if (total != nullptr) *total = info.total;
    return cuda::kSuccess;
  });
}

cuda::Result cuMemAlloc_v2(cuda::DevicePointer* address, std::size_t bytes) noexcept {
  return AllocateNow("cuMemAlloc_v2", address, bytes, RangeKind::kDevice);
}

cuda::Result cuMemAllocPitch_v2(cuda::DevicePointer* address, std::size_t* pitch, std::size_t width,
                                std::size_t height, unsigned element) noexcept {
  constexpr std::size_t kAlignment = 512;
  if (pitch == nullptr || (element != 4 && element != 8 && element != 16))
    return cuda::kInvalidValue;
  constexpr std::size_t kMost = std::size_t{1} << 31;
  if (width > kMost || height > kMost) return cuda::kInvalidValue;
  const std::size_t row = (width + kAlignment - 1) / kAlignment * kAlignment;
  const auto result = AllocateNow("cuMemAllocPitch_v2", address, row * height, RangeKind::kDevice);
  if (result == cuda::kSuccess) *pitch = row;
  return result;
}

cuda::Result cuMemAllocManaged(cuda::DevicePointer* address, std::size_t bytes,
                               unsigned flags) noexcept {
  constexpr unsigned kGlobal = 1;
  constexpr unsigned kHost = 2;
  if (flags != kGlobal && flags != kHost) return cuda::kInvalidValue;
  return AllocateNow("cuMemAllocManaged", address, bytes, RangeKind::kManaged);
}

cuda::Result cuMemFree_v2(cuda::DevicePointer address) noexcept {
  return InContext("cuMemFree_v2", [&](Call& call) {
    if (address == 0) return cuda::kSuccess;
    Driver& driver = call.driver;
    if (const auto result = driver.CheckUnsafe()) return result;
    const Range* range = driver.memory.FindBase(address);
    if (range == nullptr || !range->on_device() || range->charged == 0) return cuda::kInvalidValue;
    // Nothing may still use it: the driver waits for the context.
    const auto context = range->context;
    driver.engine->AwaitContext(call.lock, *context);
    range = driver.memory.FindBase(address);
    if (range == nullptr) return cuda::kInvalidValue;  // Another thread was faster.
    driver.Refund(context->gpu, range->charged);
    driver.memory.Free(address);
    return cuda::kSuccess;
  });
}

cuda::Result cuMemAllocAsync(cuda::DevicePointer* address, std::size_t bytes,
                             cuda::Stream stream) noexcept {
  return AllocateInOrder("cuMemAllocAsync", address, bytes, stream);
}

cuda::Result cuMemAllocAsync_ptsz(cuda::DevicePointer* address, std::size_t bytes,
                                  cuda::Stream stream) noexcept {
  return PerThread(cuMemAllocAsync, address, bytes, stream);
}

cuda::Result cuMemAllocFromPoolAsync(cuda::DevicePointer* address, std::size_t bytes,
                                     cuda::MemoryPool pool, cuda::Stream stream) noexcept {
  if (!IsPool(pool)) return cuda::kInvalidValue;
  return AllocateInOrder("cuMemAllocFromPoolAsync", address, bytes, stream);
}

cuda::Result cuMemAllocFromPoolAsync_ptsz(cuda::DevicePointer* address, std::size_t bytes,
                                          cuda::MemoryPool pool, cuda::Stream stream) noexcept {
  return PerThread(cuMemAllocFromPoolAsync, address, bytes, pool, stream);
}

cuda::Result cuMemFreeAsync(cuda::DevicePointer address, cuda::Stream handle) noexcept {
  return OnStream("cuMemFreeAsync", handle, [&](Call& call, const auto& stream) {
    const Range* range = call.driver.memory.FindBase(address);
    if (range == nullptr || !range->on_device() || range->charged == 0) return cuda::kInvalidValue;
    return Submit(call, stream, kNodeFree, Release{address});
  });
}

cuda::Result cuMemFreeAsync_ptsz(cuda::DevicePointer address, cuda::Stream stream) noexcept {
  return PerThread(cuMemFreeAsync, address, stream);
}

cuda::Result cuMemGetAddressRange_v2(cuda::DevicePointer* base, std::size_t* bytes,
                                     cuda::DevicePointer address) noexcept {
  return InContext("cuMemGetAddressRange_v2", [&](Call& call) {
    const Range* range = call.driver.memory.Find(address);
    if (range == nullptr) return cuda::kNotFound;
    if (base != nullptr) *base = range->base;
    if (bytes != nullptr) *bytes = range->size;
    return cuda::kSuccess;
  });
}

cuda::Result cuPointerGetAttribute(void* value, int attribute,
                                   cuda::DevicePointer address) noexcept {
  return InContext("cuPointerGetAttribute", [&](Call& call) {
    const Range* range = call.driver.memory.Find(address);
    if (value == nullptr || range == nullptr) return cuda::kInvalidValue;
    switch (attribute) {
      case kPointerContext:
        *static_cast<cuda::Context*>(value) = range->context->handle;
        break;
      case kPointerMemoryType:
        *static_cast<unsigned*>(value) = range->on_device() ? kMemoryTypeDevice : kMemoryTypeHost;
        break;
      case kPointerHostPointer:
        if (range->kind == RangeKind::kDevice) return cuda::kInvalidValue;
        [[fallthrough]];
      case kPointerDevicePointer:
        *static_cast<cuda::DevicePointer*>(value) = address;
        break;
      case kPointerIsManaged:
        *static_cast<unsigned*>(value) = range->kind == RangeKind::kManaged ? 1 : 0;
        break;
      case kPointerDeviceOrdinal:
        *static_cast<int*>(value) = range->context->device;
        break;
      case kPointerRangeStart:
        *static_cast<cuda::DevicePointer*>(value) = range->base;
        break;
      case kPointerRangeSize:
        *static_cast<std::size_t*>(value) = range->size;
        break;
      default:
        return cuda::kNotSupported;
    }
    return cuda::kSuccess;
  });
}

}  // namespace divvy::device::cuda_simulator
