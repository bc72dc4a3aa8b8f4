#include "device/cuda_simulator/call.h"
#include "device/cuda_simulator/entry_points_memory.h"

// Host memory that GPUs see. One address serves both sides.

namespace divvy::device::cuda_simulator {
namespace {

constexpr unsigned kHostFlags = 7;       // Portable, mapped, write-combined.
constexpr unsigned kRegisterFlags = 15;  // Portable, mapped, I/O memory, read only.

cuda::Result Allocate(const char* function, void** address, std::size_t bytes, unsigned flags) {
  return InContext(function, [&](Call& call) {
    if (address == nullptr || bytes == 0 || flags > kHostFlags) return cuda::kInvalidValue;
    if (const auto result = call.driver.CheckUnsafe()) return result;
    const Range* range = call.driver.memory.Allocate(RangeKind::kPinned, bytes, call.context);
    if (range == nullptr) return cuda::kOutOfMemory;
    call.driver.memory.FindBase(range->base)->flags = flags;
    *address = reinterpret_cast<void*>(range->base);
    return cuda::kSuccess;
  });
}

bool IsHost(const Range* range) {
  return range != nullptr &&
         (range->kind == RangeKind::kPinned || range->kind == RangeKind::kRegistered);
}

}  // namespace

cuda::Result cuMemHostAlloc(void** address, std::size_t bytes, unsigned flags) noexcept {
  return Allocate("cuMemHostAlloc", address, bytes, flags);
}

cuda::Result cuMemAllocHost_v2(void** address, std::size_t bytes) noexcept {
  return Allocate("cuMemAllocHost_v2", address, bytes, 0);
}

cuda::Result cuMemFreeHost(void* address) noexcept {
  return InContext("cuMemFreeHost", [&](Call& call) {
    const auto base = reinterpret_cast<std::uint64_t>(address);
    const Range* range = call.driver.memory.FindBase(base);
    if (range == nullptr || range->kind != RangeKind::kPinned) return cuda::kInvalidValue;
    if (const auto result = call.driver.CheckUnsafe()) return result;
    const auto context = range->context;
    call.driver.engine->AwaitContext(call.lock, *context);
    if (call.driver.memory.FindBase(base) == nullptr) return cuda::kInvalidValue;
    call.driver.memory.Free(base);
    return cuda::kSuccess;
  });
}

cuda::Result cuMemHostRegister_v2(void* address, std::size_t bytes, unsigned flags) noexcept {
  return InContext("cuMemHostRegister_v2", [&](Call& call) {
    if (address == nullptr || bytes == 0 || flags > kRegisterFlags) return cuda::kInvalidValue;
    if (const auto result = call.driver.CheckUnsafe()) return result;
    const auto base = reinterpret_cast<std::uint64_t>(address);
    return call.driver.memory.Register(base, bytes, flags, call.context)
               ? cuda::kSuccess
               : kHostMemoryAlreadyRegistered;
  });
}

cuda::Result cuMemHostUnregister(void* address) noexcept {
  return InContext("cuMemHostUnregister", [&](Call& call) {
    const auto base = reinterpret_cast<std::uint64_t>(address);
    const Range* range = call.driver.memory.FindBase(base);
    if (range == nullptr || range->kind != RangeKind::kRegistered) return kHostMemoryNotRegistered;
    if (const auto result = call.driver.CheckUnsafe()) return result;
    call.driver.memory.Unregister(base);
    return cuda::kSuccess;
  });
}

cuda::Result cuMemHostGetDevicePointer_v2(cuda::DevicePointer* device_address, void* address,
                                          unsigned flags) noexcept {
  return InContext("cuMemHostGetDevicePointer_v2", [&](Call& call) {
    const auto host = reinterpret_cast<std::uint64_t>(address);
    if (device_address == nullptr || flags != 0) return cuda::kInvalidValue;
    if (!IsHost(call.driver.memory.Find(host))) return cuda::kInvalidValue;
    *device_address = host;
    return cuda::kSuccess;
  });
}

cuda::Result cuMemHostGetFlags(unsigned* flags, void* address) noexcept {
  return InContext("cuMemHostGetFlags", [&](Call& call) {
    const Range* range = call.driver.memory.Find(reinterpret_cast<std::uint64_t>(address));
    if (flags == nullptr || !IsHost(range)) return cuda::kInvalidValue;
    *flags = range->flags;
    return cuda::kSuccess;
  });
}

}  // namespace divvy::device::cuda_simulator
