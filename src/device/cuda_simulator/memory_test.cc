#include <cstring>
#include <vector>

#include "device/cuda_simulator/test_program.h"

namespace divvy::device::cuda_simulator {
namespace {

using MemoryTest = CudaSimTest;

std::size_t FreeBytes() {
  std::size_t free = 0;
  std::size_t total = 0;
  EXPECT_EQ(cuMemGetInfo_v2(&free, &total), cuda::kSuccess);
  return free;
}

TEST_F(MemoryTest, EveryWayToAllocateCountsAndIsGivenBack) {
  Run([] {
    const Session cuda;
    const std::size_t before = FreeBytes();
    cuda::DevicePointer plain = 0;
    cuda::DevicePointer pitched = 0;
    cuda::DevicePointer managed = 0;
    cuda::DevicePointer ordered = 0;
    std::size_t pitch = 0;
    ASSERT_EQ(cuMemAlloc_v2(&plain, 1 << 20), cuda::kSuccess);
    ASSERT_EQ(cuMemAllocPitch_v2(&pitched, &pitch, 1000, 1000, 4), cuda::kSuccess);
    EXPECT_EQ(pitch, 1024U);
    ASSERT_EQ(cuMemAllocManaged(&managed, 1 << 20, 1), cuda::kSuccess);
    ASSERT_EQ(cuMemAllocAsync(&ordered, 1 << 20, cuda.stream), cuda::kSuccess);
    EXPECT_EQ(before - FreeBytes(), std::size_t{8} << 20);  // In pieces of 2 MiB.
    cuda::AllocationProperties properties{};
    properties.location = {cuda::kLocationDevice, 0};
    cuda::AllocationHandle handle = 0;
    ASSERT_EQ(cuMemCreate(&handle, 4 << 20, &properties, 0), cuda::kSuccess);
    EXPECT_EQ(before - FreeBytes(), std::size_t{12} << 20);
    ASSERT_EQ(cuMemRelease(handle), cuda::kSuccess);
    EXPECT_EQ(cuMemRelease(handle), cuda::kInvalidValue);
    ASSERT_EQ(cuMemFreeAsync(ordered, cuda.stream), cuda::kSuccess);
    for (const auto each : {plain, pitched, managed}) {
      EXPECT_EQ(cuMemFree_v2(each), cuda::kSuccess);
      EXPECT_EQ(cuMemFree_v2(each), cuda::kInvalidValue);
    }
    ASSERT_EQ(cuCtxSynchronize(), cuda::kSuccess);
    EXPECT_EQ(FreeBytes(), before);
  });
}

TEST_F(MemoryTest, HostLocationsNameNoDevice) {
  Run([] {
    const Session cuda;
    cuda::AllocationProperties properties{};
    properties.location = {3, 77};  // Of a NUMA node; 77 is no device.
    cuda::AllocationHandle handle = 0;
    EXPECT_EQ(cuMemCreate(&handle, 2 << 20, &properties, 0), cuda::kSuccess);
    properties.location = {cuda::kLocationDevice, 77};
    EXPECT_EQ(cuMemCreate(&handle, 2 << 20, &properties, 0), cuda::kInvalidDevice);
  });
}

TEST_F(MemoryTest, CopiesAndFillsMoveBytesInOrder) {
  Run([] {
    const Session cuda;
    constexpr std::size_t kBytes = 4096;
    cuda::DevicePointer device = 0;
    ASSERT_EQ(cuMemAlloc_v2(&device, kBytes), cuda::kSuccess);
    std::vector<unsigned char> from(kBytes, 1);
    std::vector<unsigned char> to(kBytes, 0);
    ASSERT_EQ(cuda.Launch(2000, 1), cuda::kSuccess);
    ASSERT_EQ(cuMemcpyHtoDAsync_v2(device, from.data(), kBytes, cuda.stream), cuda::kSuccess);
    std::memset(from.data(), 9, kBytes);  // The call has what it needs.
    ASSERT_EQ(cuMemsetD32Async(device, 0x02020202, 4, cuda.stream), cuda::kSuccess);
    ASSERT_EQ(cuMemcpyDtoHAsync_v2(to.data(), device, kBytes, cuda.stream), cuda::kSuccess);
    ASSERT_EQ(cuStreamSynchronize(cuda.stream), cuda::kSuccess);
    EXPECT_EQ(to[0], 2);
    EXPECT_EQ(to[15], 2);
    EXPECT_EQ(to[16], 1);
    EXPECT_EQ(to.back(), 1);
    EXPECT_EQ(cuMemcpyDtoH_v2(to.data(), device, kBytes + 1), cuda::kInvalidValue);
    EXPECT_EQ(cuMemcpyHtoD_v2(AddressOf(to.data()), from.data(), 8), cuda::kInvalidValue);
  });
}

TEST_F(MemoryTest, SynchronousCopyWaitsForTheDefaultStreamsWork) {
  Run([] {
    const Session cuda;
    auto* word = cuda.NewWord();
    const auto blocking = cuda.NewStream(0);
    ASSERT_EQ(cuda.Launch(3000, 1, blocking), cuda::kSuccess);
    ASSERT_EQ(cuStreamWriteValue32_v2(blocking, AddressOf(word), 5, 0), cuda::kSuccess);
    unsigned found = 0;
    ASSERT_EQ(cuMemcpyDtoH_v2(&found, AddressOf(word), sizeof(found)), cuda::kSuccess);
    EXPECT_EQ(found, 5U);
  });
}

TEST_F(MemoryTest, PointersTellWhereTheyBelong) {
  Run([] {
    const Session cuda;
    cuda::DevicePointer device = 0;
    ASSERT_EQ(cuMemAlloc_v2(&device, 4096), cuda::kSuccess);
    unsigned type = 0;
    ASSERT_EQ(cuPointerGetAttribute(&type, kPointerMemoryType, device + 8), cuda::kSuccess);
    EXPECT_EQ(type, kMemoryTypeDevice);
    cuda::DevicePointer base = 0;
    std::size_t size = 0;
    ASSERT_EQ(cuMemGetAddressRange_v2(&base, &size, device + 8), cuda::kSuccess);
    EXPECT_EQ(base, device);
    EXPECT_EQ(size, 4096U);
    EXPECT_EQ(cuPointerGetAttribute(&type, kPointerMemoryType, AddressOf(&type)),
              cuda::kInvalidValue);
    ASSERT_EQ(cuPointerGetAttribute(&type, kPointerMemoryType, AddressOf(cuda.NewWord())),
              cuda::kSuccess);
    EXPECT_EQ(type, kMemoryTypeHost);
  });
}

TEST_F(MemoryTest, ReservedAddressesAreUsableOnceMapped) {
  Run([] {
    const Session cuda;
    constexpr std::size_t kSize = 2 << 20;
    cuda::AllocationProperties properties{};
    properties.location = {cuda::kLocationDevice, 0};
    cuda::AllocationHandle handle = 0;
    cuda::DevicePointer address = 0;
    ASSERT_EQ(cuMemCreate(&handle, kSize, &properties, 0), cuda::kSuccess);
    ASSERT_EQ(cuMemAddressReserve(&address, kSize, 0, 0, 0), cuda::kSuccess);
    EXPECT_EQ(cuMemsetD8_v2(address, 1, 8), cuda::kInvalidValue);
    ASSERT_EQ(cuMemMap(address, kSize, 0, handle, 0), cuda::kSuccess);
    EXPECT_EQ(cuMemsetD8_v2(address, 1, 8), cuda::kSuccess);
    EXPECT_EQ(cuMemAddressFree(address, kSize), cuda::kInvalidValue);
    ASSERT_EQ(cuCtxSynchronize(), cuda::kSuccess);
    ASSERT_EQ(cuMemUnmap(address, kSize), cuda::kSuccess);
    EXPECT_EQ(cuMemAddressFree(address, kSize), cuda::kSuccess);
  });
}

}  // namespace
}  // namespace divvy::device::cuda_simulator
