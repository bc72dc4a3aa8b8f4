#include <cstring>

#include "device/cuda_simulator/call.h"
#include "device/cuda_simulator/entry_points_memory.h"

// Copies and fills of memory.

namespace divvy::device::cuda_simulator {
namespace {

enum class Side { kHost, kDevice, kEither };

cuda::DevicePointer ToAddress(const void* pointer) {
  return reinterpret_cast<cuda::DevicePointer>(pointer);
}

// Whether copies may name this memory: a device's must be known, a host's may be anything.
bool IsUsable(const Driver& driver, cuda::DevicePointer address, std::size_t bytes, Side side) {
  if (address == 0) return false;
  return side != Side::kDevice || driver.memory.Holds(address, bytes);
}

struct CopyRequest {
  cuda::DevicePointer to;
  Side to_side;
  cuda::DevicePointer from;
  Side from_side;
  std::size_t bytes;
};

// Puts a copy into a stream. Memory that the driver does not know may change, or go, as soon as the
// call is over: such a source is copied at once, and such a target waited for.
cuda::Result CopyInOrder(Call& call, const std::shared_ptr<StreamState>& stream,
                         const CopyRequest& request, bool wait) {
  Driver& driver = call.driver;
  if (!IsUsable(driver, request.to, request.bytes, request.to_side) ||
      !IsUsable(driver, request.from, request.bytes, request.from_side)) {
    return cuda::kInvalidValue;
  }
  if (request.bytes == 0) return cuda::kSuccess;
  Copy copy{request.to, request.from, request.bytes, nullptr, 0};
  if (!stream->capture) {
    wait |= !driver.memory.Holds(request.to, request.bytes);
    if (!wait && !driver.memory.Holds(request.from, request.bytes)) {
      copy.staged = std::make_shared<std::vector<std::byte>>(request.bytes);
      std::memcpy(copy.staged->data(), reinterpret_cast<const void*>(request.from), request.bytes);
    }
  }
  if (const auto result = Submit(call, stream, kNodeCopy, std::move(copy))) return result;
  if (stream->capture || !wait) return cuda::kSuccess;
  driver.engine->AwaitTicket(call.lock, stream, stream->issued);
  return stream->context->error;
}

cuda::Result CopyAsync(const char* function, cuda::Stream handle, const CopyRequest& request) {
  return OnStream(function, handle, [&](Call& call, const auto& stream) {
    return CopyInOrder(call, stream, request, false);
  });
}

// Copies that return when they are done. No capture may hold the stream they take.
cuda::Result CopyNow(const char* function, const CopyRequest& request) {
  return OnStream(function, nullptr, [&](Call& call, const auto& stream) {
    if (const auto result = call.driver.CheckNotCaptured(*stream)) return result;
    if (const auto result = call.driver.CheckUnsafe()) return result;
    return CopyInOrder(call, stream, request, true);
  });
}

cuda::Result FillIn(const char* function, cuda::Stream handle, const Fill& fill, bool now) {
  return OnStream(function, handle, [&](Call& call, const auto& stream) {
    if (now) {
      if (const auto result = call.driver.CheckNotCaptured(*stream)) return result;
      if (const auto result = call.driver.CheckUnsafe()) return result;
    }
    if (fill.to % fill.width != 0) return cuda::kInvalidValue;
    if (!call.driver.memory.Holds(fill.to, fill.count * fill.width)) return cuda::kInvalidValue;
    return Submit(call, stream, kNodeFill, fill);
  });
}

}  // namespace

cuda::Result cuMemcpy(cuda::DevicePointer to, cuda::DevicePointer from,
                      std::size_t bytes) noexcept {
  return CopyNow("cuMemcpy", {to, Side::kEither, from, Side::kEither, bytes});
}

cuda::Result cuMemcpy_ptds(cuda::DevicePointer to, cuda::DevicePointer from,
                           std::size_t bytes) noexcept {
  return PerThread(cuMemcpy, to, from, bytes);
}

cuda::Result cuMemcpyHtoD_v2(cuda::DevicePointer to, const void* from, std::size_t bytes) noexcept {
  return CopyNow("cuMemcpyHtoD_v2", {to, Side::kDevice, ToAddress(from), Side::kHost, bytes});
}

cuda::Result cuMemcpyHtoD_v2_ptds(cuda::DevicePointer to, const void* from,
                                  std::size_t bytes) noexcept {
  return PerThread(cuMemcpyHtoD_v2, to, from, bytes);
}

cuda::Result cuMemcpyDtoH_v2(void* to, cuda::DevicePointer from, std::size_t bytes) noexcept {
  return CopyNow("cuMemcpyDtoH_v2", {ToAddress(to), Side::kHost, from, Side::kDevice, bytes});
}

cuda::Result cuMemcpyDtoH_v2_ptds(void* to, cuda::DevicePointer from, std::size_t bytes) noexcept {
  return PerThread(cuMemcpyDtoH_v2, to, from, bytes);
}

cuda::Result cuMemcpyDtoD_v2(cuda::DevicePointer to, cuda::DevicePointer from,
                             std::size_t bytes) noexcept {
  // The one of them that does not wait for its end.
  return CopyAsync("cuMemcpyDtoD_v2", nullptr, {to, Side::kDevice, from, Side::kDevice, bytes});
}

cuda::Result cuMemcpyDtoD_v2_ptds(cuda::DevicePointer to, cuda::DevicePointer from,
                                  std::size_t bytes) noexcept {
  return PerThread(cuMemcpyDtoD_v2, to, from, bytes);
}

cuda::Result cuMemcpyAsync(cuda::DevicePointer to, cuda::DevicePointer from, std::size_t bytes,
                           cuda::Stream stream) noexcept {
  return CopyAsync("cuMemcpyAsync", stream, {to, Side::kEither, from, Side::kEither, bytes});
}

cuda::Result cuMemcpyAsync_ptsz(cuda::DevicePointer to, cuda::DevicePointer from, std::size_t bytes,
                                cuda::Stream stream) noexcept {
  return PerThread(cuMemcpyAsync, to, from, bytes, stream);
}

cuda::Result cuMemcpyHtoDAsync_v2(cuda::DevicePointer to, const void* from, std::size_t bytes,
                                  cuda::Stream stream) noexcept {
  return CopyAsync("cuMemcpyHtoDAsync_v2", stream,
                   {to, Side::kDevice, ToAddress(from), Side::kHost, bytes});
}

cuda::Result cuMemcpyHtoDAsync_v2_ptsz(cuda::DevicePointer to, const void* from, std::size_t bytes,
                                       cuda::Stream stream) noexcept {
  return PerThread(cuMemcpyHtoDAsync_v2, to, from, bytes, stream);
}

cuda::Result cuMemcpyDtoHAsync_v2(void* to, cuda::DevicePointer from, std::size_t bytes,
                                  cuda::Stream stream) noexcept {
  return CopyAsync("cuMemcpyDtoHAsync_v2", stream,
                   {ToAddress(to), Side::kHost, from, Side::kDevice, bytes});
}

cuda::Result cuMemcpyDtoHAsync_v2_ptsz(void* to, cuda::DevicePointer from, std::size_t bytes,
                                       cuda::Stream stream) noexcept {
  return PerThread(cuMemcpyDtoHAsync_v2, to, from, bytes, stream);
}

cuda::Result cuMemcpyDtoDAsync_v2(cuda::DevicePointer to, cuda::DevicePointer from,
                                  std::size_t bytes, cuda::Stream stream) noexcept {
  return CopyAsync("cuMemcpyDtoDAsync_v2", stream, {to, Side::kDevice, from, Side::kDevice, bytes});
}

cuda::Result cuMemcpyDtoDAsync_v2_ptsz(cuda::DevicePointer to, cuda::DevicePointer from,
                                       std::size_t bytes, cuda::Stream stream) noexcept {
  return PerThread(cuMemcpyDtoDAsync_v2, to, from, bytes, stream);
}

cuda::Result cuMemsetD8_v2(cuda::DevicePointer to, unsigned char value,
                           std::size_t count) noexcept {
  return FillIn("cuMemsetD8_v2", nullptr, {to, value, 1, count}, true);
}

cuda::Result cuMemsetD8_v2_ptds(cuda::DevicePointer to, unsigned char value,
                                std::size_t count) noexcept {
  return PerThread(cuMemsetD8_v2, to, value, count);
}

cuda::Result cuMemsetD16_v2(cuda::DevicePointer to, unsigned short value,
                            std::size_t count) noexcept {
  return FillIn("cuMemsetD16_v2", nullptr, {to, value, 2, count}, true);
}

cuda::Result cuMemsetD16_v2_ptds(cuda::DevicePointer to, unsigned short value,
                                 std::size_t count) noexcept {
  return PerThread(cuMemsetD16_v2, to, value, count);
}

cuda::Result cuMemsetD32_v2(cuda::DevicePointer to, unsigned value, std::size_t count) noexcept {
  return FillIn("cuMemsetD32_v2", nullptr, {to, value, 4, count}, true);
}

cuda::Result cuMemsetD32_v2_ptds(cuda::DevicePointer to, unsigned value,
                                 std::size_t count) noexcept {
  return PerThread(cuMemsetD32_v2, to, value, count);
}

cuda::Result cuMemsetD8Async(cuda::DevicePointer to, unsigned char value, std::size_t count,
                             cuda::Stream stream) noexcept {
  return FillIn("cuMemsetD8Async", stream, {to, value, 1, count}, false);
}

cuda::Result cuMemsetD8Async_ptsz(cuda::DevicePointer to, unsigned char value, std::size_t count,
                                  cuda::Stream stream) noexcept {
  return PerThread(cuMemsetD8Async, to, value, count, stream);
}

cuda::Result cuMemsetD16Async(cuda::DevicePointer to, unsigned short value, std::size_t count,
                              cuda::Stream stream) noexcept {
  return FillIn("cuMemsetD16Async", stream, {to, value, 2, count}, false);
}

cuda::Result cuMemsetD16Async_ptsz(cuda::DevicePointer to, unsigned short value, std::size_t count,
                                   cuda::Stream stream) noexcept {
  return PerThread(cuMemsetD16Async, to, value, count, stream);
}

cuda::Result cuMemsetD32Async(cuda::DevicePointer to, unsigned value, std::size_t count,
                              cuda::Stream stream) noexcept {
  return FillIn("cuMemsetD32Async", stream, {to, value, 4, count}, false);
}

cuda::Result cuMemsetD32Async_ptsz(cuda::DevicePointer to, unsigned value, std::size_t count,
                                   cuda::Stream stream) noexcept {
  return PerThread(cuMemsetD32Async, to, value, count, stream);
}

}  // namespace divvy::device::cuda_simulator
