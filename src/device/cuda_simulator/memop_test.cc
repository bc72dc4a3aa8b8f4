#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/cuda_simulator/test_program.h"

namespace divvy::device::cuda_simulator {
namespace {

using MemOpTest = CudaSimTest;

// A page of a file that processes share, as the gate's board is.
volatile unsigned* MapShared(const std::string& path) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT, 0600);
  EXPECT_EQ(ftruncate(file, 4096), 0);
  void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  EXPECT_NE(memory, MAP_FAILED);
  close(file);
  return static_cast<volatile unsigned*>(memory);
}

TEST_F(MemOpTest, PlainStoreOfAnotherProcessLetsAStreamGo) {
  const std::string path = File("board");
  volatile unsigned* word = MapShared(path);
  Program program(With({}), [&](Link& link) {
    const Session cuda;
    volatile unsigned* mapped = MapShared(path);
    void* page = const_cast<unsigned*>(mapped);
    ASSERT_EQ(cuMemHostRegister_v2(page, 4096, cuda::kHostRegisterDeviceMap), cuda::kSuccess);
    cuda::DevicePointer address = 0;
    ASSERT_EQ(cuMemHostGetDevicePointer_v2(&address, page, 0), cuda::kSuccess);
    ASSERT_EQ(cuStreamWaitValue32_v2(cuda.stream, address, 5, cuda::kWaitValueGeq), cuda::kSuccess);
    ASSERT_EQ(cuStreamWriteValue32_v2(cuda.stream, address + 4, 9, 0), cuda::kSuccess);
    link.Tell();
    ASSERT_EQ(cuStreamSynchronize(cuda.stream), cuda::kSuccess);
    EXPECT_GE(*mapped, 5U);
  });
  ASSERT_TRUE(program.link().Await());
  *word = 4;
  EXPECT_EQ(word[1], 0U);
  *word = 6;
  EXPECT_EQ(program.Join(), 0);
  EXPECT_EQ(word[1], 9U);
  munmap(const_cast<unsigned*>(word), 4096);
}

TEST_F(MemOpTest, ConditionsAreThoseOfCuda) {
  Run([] {
    const Session cuda;
    auto* word = cuda.NewWord();
    const auto passes = [&](unsigned found, unsigned value, unsigned condition) {
      *word = found;
      const auto stream = cuda.NewStream();
      EXPECT_EQ(cuStreamWaitValue32_v2(stream, AddressOf(word), value, condition), cuda::kSuccess);
      cuda.Settle();
      return cuStreamQuery(stream) == cuda::kSuccess;
    };
    EXPECT_TRUE(passes(3, 3, cuda::kWaitValueGeq));
    EXPECT_FALSE(passes(2, 3, cuda::kWaitValueGeq));
    EXPECT_TRUE(passes(1, 0xFFFF'FFFF, cuda::kWaitValueGeq));  // A counter that ran over.
    EXPECT_TRUE(passes(3, 3, cuda::kWaitValueEq));
    EXPECT_FALSE(passes(4, 3, cuda::kWaitValueEq));
    EXPECT_TRUE(passes(6, 2, cuda::kWaitValueAnd));
    EXPECT_FALSE(passes(4, 2, cuda::kWaitValueAnd));
    EXPECT_TRUE(passes(1, 2, cuda::kWaitValueNor));
    EXPECT_FALSE(passes(0xFFFF'FFFE, 1, cuda::kWaitValueNor));
  });
}

TEST_F(MemOpTest, WideWordsAndBatches) {
  Run([] {
    const Session cuda;
    auto* word = cuda.NewWord();
    const auto address = AddressOf(word);
    cuda::MemOp operations[3] = {};
    operations[0].value = {cuda::kMemOpWrite64, address, 0x1'0000'0002, 0, 0};
    operations[1].value = {cuda::kMemOpWait64, address, 0x1'0000'0001, cuda::kWaitValueGeq, 0};
    operations[2].value = {cuda::kMemOpWrite32, address + 8, 3, 0, 0};
    ASSERT_EQ(cuStreamBatchMemOp_v2(cuda.stream, 3, operations, 0), cuda::kSuccess);
    ASSERT_EQ(cuStreamSynchronize(cuda.stream), cuda::kSuccess);
    EXPECT_EQ(word[1], 1U);
    EXPECT_EQ(word[2], 3U);
  });
}

TEST_F(MemOpTest, AddressMustBeKnownAndAligned) {
  Run([] {
    const Session cuda;
    auto* word = cuda.NewWord();
    unsigned mine = 0;
    EXPECT_EQ(cuda.WaitFor(&mine, 0, cuda.stream), cuda::kInvalidValue);
    EXPECT_EQ(cuStreamWaitValue32_v2(cuda.stream, AddressOf(word) + 2, 0, 0), cuda::kInvalidValue);
    EXPECT_EQ(cuStreamWaitValue32_v2(cuda.stream, AddressOf(word), 0, 17), cuda::kInvalidValue);
  });
}

TEST_F(MemOpTest, MemoryTakenAwayUnderAWaitEndsTheContext) {
  Run([] {
    const Session cuda;
    alignas(4096) static unsigned page[1024] = {};
    ASSERT_EQ(cuMemHostRegister_v2(page, sizeof(page), cuda::kHostRegisterDeviceMap),
              cuda::kSuccess);
    EXPECT_EQ(cuMemHostRegister_v2(page, sizeof(page), 0), kHostMemoryAlreadyRegistered);
    ASSERT_EQ(cuda.WaitFor(page, 1, cuda.stream), cuda::kSuccess);
    ASSERT_EQ(cuMemHostUnregister(page), cuda::kSuccess);
    EXPECT_EQ(cuMemHostUnregister(page), kHostMemoryNotRegistered);
    EXPECT_EQ(cuStreamSynchronize(cuda.stream), cuda::kIllegalAddress);
    EXPECT_EQ(cuda.Launch(1), cuda::kIllegalAddress);
    EXPECT_EQ(cuCtxSynchronize(), cuda::kIllegalAddress);
  });
}

}  // namespace
}  // namespace divvy::device::cuda_simulator
