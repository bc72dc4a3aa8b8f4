#pragma once

#include <cstddef>

#include "device/cuda_simulator/abi_more.h"

// Of what entry_points.h is about, the functions that allocate, map, copy and fill memory.

// Names are CUDA's, not ours.
// NOLINTBEGIN(readability-identifier-naming)

namespace divvy::device::cuda_simulator {

#pragma GCC visibility push(default)
extern "C" {

cuda::Result cuMemGetInfo_v2(std::size_t* free, std::size_t* total) noexcept;
cuda::Result cuMemAlloc_v2(cuda::DevicePointer* address, std::size_t bytes) noexcept;
cuda::Result cuMemAllocPitch_v2(cuda::DevicePointer* address, std::size_t* pitch, std::size_t width,
                                std::size_t height, unsigned element) noexcept;
cuda::Result cuMemAllocManaged(cuda::DevicePointer* address, std::size_t bytes,
                               unsigned flags) noexcept;
cuda::Result cuMemFree_v2(cuda::DevicePointer address) noexcept;
cuda::Result cuMemAllocAsync(cuda::DevicePointer* address, std::size_t bytes,
                             cuda::Stream stream) noexcept;
decltype(cuMemAllocAsync) cuMemAllocAsync_ptsz;
cuda::Result cuMemAllocFromPoolAsync(cuda::DevicePointer* address, std::size_t bytes,
                                     cuda::MemoryPool pool, cuda::Stream stream) noexcept;
decltype(cuMemAllocFromPoolAsync) cuMemAllocFromPoolAsync_ptsz;
cuda::Result cuMemFreeAsync(cuda::DevicePointer address, cuda::Stream stream) noexcept;
decltype(cuMemFreeAsync) cuMemFreeAsync_ptsz;
cuda::Result cuMemGetAddressRange_v2(cuda::DevicePointer* base, std::size_t* bytes,
                                     cuda::DevicePointer address) noexcept;
cuda::Result cuPointerGetAttribute(void* value, int attribute,
                                   cuda::DevicePointer address) noexcept;
cuda::Result cuMemHostAlloc(void** address, std::size_t bytes, unsigned flags) noexcept;
cuda::Result cuMemAllocHost_v2(void** address, std::size_t bytes) noexcept;
cuda::Result cuMemFreeHost(void* address) noexcept;
cuda::Result cuMemHostRegister_v2(void* address, std::size_t bytes, unsigned flags) noexcept;
cuda::Result cuMemHostUnregister(void* address) noexcept;
cuda::Result cuMemHostGetDevicePointer_v2(cuda::DevicePointer* device_address, void* address,
                                          unsigned flags) noexcept;
cuda::Result cuMemHostGetFlags(unsigned* flags, void* address) noexcept;

cuda::Result cuMemCreate(cuda::AllocationHandle* handle, std::size_t bytes,
                         const cuda::AllocationProperties* properties,
                         unsigned long long flags) noexcept;
cuda::Result cuMemRelease(cuda::AllocationHandle handle) noexcept;
cuda::Result cuMemAddressReserve(cuda::DevicePointer* address, std::size_t bytes,
                                 std::size_t alignment, cuda::DevicePointer hint,
                                 unsigned long long flags) noexcept;
cuda::Result cuMemAddressFree(cuda::DevicePointer address, std::size_t bytes) noexcept;
cuda::Result cuMemMap(cuda::DevicePointer address, std::size_t bytes, std::size_t offset,
                      cuda::AllocationHandle handle, unsigned long long flags) noexcept;
cuda::Result cuMemUnmap(cuda::DevicePointer address, std::size_t bytes) noexcept;
cuda::Result cuMemSetAccess(cuda::DevicePointer address, std::size_t bytes,
                            const AccessDescription* access, std::size_t count) noexcept;
cuda::Result cuMemGetAllocationGranularity(std::size_t* bytes,
                                           const cuda::AllocationProperties* properties,
                                           int option) noexcept;

cuda::Result cuMemcpy(cuda::DevicePointer to, cuda::DevicePointer from, std::size_t bytes) noexcept;
decltype(cuMemcpy) cuMemcpy_ptds;
cuda::Result cuMemcpyHtoD_v2(cuda::DevicePointer to, const void* from, std::size_t bytes) noexcept;
decltype(cuMemcpyHtoD_v2) cuMemcpyHtoD_v2_ptds;
cuda::Result cuMemcpyDtoH_v2(void* to, cuda::DevicePointer from, std::size_t bytes) noexcept;
decltype(cuMemcpyDtoH_v2) cuMemcpyDtoH_v2_ptds;
decltype(cuMemcpy) cuMemcpyDtoD_v2;
decltype(cuMemcpy) cuMemcpyDtoD_v2_ptds;
cuda::Result cuMemcpyAsync(cuda::DevicePointer to, cuda::DevicePointer from, std::size_t bytes,
                           cuda::Stream stream) noexcept;
decltype(cuMemcpyAsync) cuMemcpyAsync_ptsz;
cuda::Result cuMemcpyHtoDAsync_v2(cuda::DevicePointer to, const void* from, std::size_t bytes,
                                  cuda::Stream stream) noexcept;
decltype(cuMemcpyHtoDAsync_v2) cuMemcpyHtoDAsync_v2_ptsz;
cuda::Result cuMemcpyDtoHAsync_v2(void* to, cuda::DevicePointer from, std::size_t bytes,
                                  cuda::Stream stream) noexcept;
decltype(cuMemcpyDtoHAsync_v2) cuMemcpyDtoHAsync_v2_ptsz;
decltype(cuMemcpyAsync) cuMemcpyDtoDAsync_v2;
decltype(cuMemcpyAsync) cuMemcpyDtoDAsync_v2_ptsz;
cuda::Result cuMemsetD8_v2(cuda::DevicePointer to, unsigned char value, std::size_t count) noexcept;
decltype(cuMemsetD8_v2) cuMemsetD8_v2_ptds;
cuda::Result cuMemsetD16_v2(cuda::DevicePointer to, unsigned short value,
                            std::size_t count) noexcept;
decltype(cuMemsetD16_v2) cuMemsetD16_v2_ptds;
cuda::Result cuMemsetD32_v2(cuda::DevicePointer to, unsigned value, std::size_t count) noexcept;
decltype(cuMemsetD32_v2) cuMemsetD32_v2_ptds;
cuda::Result cuMemsetD8Async(cuda::DevicePointer to, unsigned char value, std::size_t count,
                             cuda::Stream stream) noexcept;
decltype(cuMemsetD8Async) cuMemsetD8Async_ptsz;
cuda::Result cuMemsetD16Async(cuda::DevicePointer to, unsigned short value, std::size_t count,
                              cuda::Stream stream) noexcept;
decltype(cuMemsetD16Async) cuMemsetD16Async_ptsz;
cuda::Result cuMemsetD32Async(cuda::DevicePointer to, unsigned value, std::size_t count,
                              cuda::Stream stream) noexcept;
decltype(cuMemsetD32Async) cuMemsetD32Async_ptsz;

}  // extern "C"
#pragma GCC visibility pop

}  // namespace divvy::device::cuda_simulator

// NOLINTEND(readability-identifier-naming)
