#include <atomic>
#include <thread>
#include <vector>

#include "device/cuda_simulator/test_program.h"

namespace divvy::device::cuda_simulator {
namespace {

using StreamTest = CudaSimTest;

// Events carry the simulator's own times, which are exact: kernels that begin together, when a word
// lets their streams go, end as far apart as they are long.

TEST_F(StreamTest, KernelsOfOneStreamRunOneAfterAnother) {
  Run([] {
    const Session cuda;
    auto* word = cuda.NewWord();
    ASSERT_EQ(cuda.WaitFor(word, 1, cuda.stream), cuda::kSuccess);
    const auto begin = cuda.Recorded(cuda.stream);
    ASSERT_EQ(cuda.Launch(2000, 1), cuda::kSuccess);
    ASSERT_EQ(cuda.Launch(3000, 1), cuda::kSuccess);
    const auto end = cuda.Recorded(cuda.stream);
    EXPECT_EQ(cuStreamQuery(cuda.stream), cuda::kNotReady);
    EXPECT_EQ(cuEventQuery(begin), cuda::kNotReady);
    cuda.Settle();
    *word = 1;
    ASSERT_EQ(cuEventSynchronize(end), cuda::kSuccess);
    EXPECT_FLOAT_EQ(cuda.Elapsed(begin, end), 5.0F);
    EXPECT_EQ(cuStreamQuery(cuda.stream), cuda::kSuccess);
  });
}

TEST_F(StreamTest, KernelsOfTwoStreamsRunSideBySideWhereThereIsRoom) {
  Run([] {
    const Session cuda;
    auto* word = cuda.NewWord();
    const auto other = cuda.NewStream();
    for (const auto stream : {cuda.stream, other}) {
      ASSERT_EQ(cuda.WaitFor(word, 1, stream), cuda::kSuccess);
      ASSERT_EQ(cuda.Launch(5000, 16, stream), cuda::kSuccess);  // 8 of 16 SMs.
    }
    const auto first = cuda.Recorded(cuda.stream);
    const auto second = cuda.Recorded(other);
    cuda.Settle();
    *word = 1;
    ASSERT_EQ(cuCtxSynchronize(), cuda::kSuccess);
    EXPECT_LT(std::abs(cuda.Elapsed(first, second)), 4.0F);
  });
}

TEST_F(StreamTest, KernelWithHalfItsSmsTakesTwiceAsLong) {
  Run([] {
    const Session cuda;
    auto* word = cuda.NewWord();
    const auto other = cuda.NewStream();
    ASSERT_EQ(cuda.WaitFor(word, 1, cuda.stream), cuda::kSuccess);
    ASSERT_EQ(cuda.Launch(50'000, 16), cuda::kSuccess);  // 8 of 16 SMs.
    ASSERT_EQ(cuda.WaitFor(word, 1, other), cuda::kSuccess);
    const auto begin = cuda.Recorded(other);
    ASSERT_EQ(cuda.Launch(1000, 32, other), cuda::kSuccess);  // Wants all 16.
    const auto end = cuda.Recorded(other);
    cuda.Settle();
    *word = 1;
    ASSERT_EQ(cuEventSynchronize(end), cuda::kSuccess);
    EXPECT_FLOAT_EQ(cuda.Elapsed(begin, end), 2.0F);
  });
}

TEST_F(StreamTest, LegacyDefaultStreamStandsBetweenBlockingStreams) {
  Run([] {
    const Session cuda;
    auto* word = cuda.NewWord();
    const auto blocking = cuda.NewStream(0);
    const auto free = cuda.NewStream();
    ASSERT_EQ(cuda.WaitFor(word, 1, blocking), cuda::kSuccess);
    const auto begin = cuda.Recorded(blocking);
    ASSERT_EQ(cuda.Launch(2000, 1, blocking), cuda::kSuccess);
    ASSERT_EQ(cuda.Launch(2000, 1, nullptr), cuda::kSuccess);
    ASSERT_EQ(cuda.Launch(2000, 1, blocking), cuda::kSuccess);
    const auto end = cuda.Recorded(blocking);
    // Who does not block is not held up.
    ASSERT_EQ(cuda.Launch(10, 1, free), cuda::kSuccess);
    ASSERT_EQ(cuStreamSynchronize(free), cuda::kSuccess);
    EXPECT_EQ(cuStreamQuery(nullptr), cuda::kNotReady);
    EXPECT_EQ(cuEventQuery(begin), cuda::kNotReady);
    cuda.Settle();
    *word = 1;
    ASSERT_EQ(cuStreamSynchronize(blocking), cuda::kSuccess);
    EXPECT_FLOAT_EQ(cuda.Elapsed(begin, end), 6.0F);
  });
}

TEST_F(StreamTest, SynchronisingTheLegacyStreamWaitsForBlockingStreams) {
  Run([] {
    const Session cuda;
    const auto blocking = cuda.NewStream(0);
    ASSERT_EQ(cuda.Launch(3000, 1, blocking), cuda::kSuccess);
    const auto end = cuda.Recorded(blocking);
    ASSERT_EQ(cuStreamSynchronize(nullptr), cuda::kSuccess);
    EXPECT_EQ(cuEventQuery(end), cuda::kSuccess);
  });
}

TEST_F(StreamTest, EachThreadHasADefaultStreamOfItsOwn) {
  Run([] {
    const Session cuda;
    auto* word = cuda.NewWord();
    unsigned long long ids[2] = {};
    ASSERT_EQ(cuStreamGetId_ptsz(nullptr, &ids[0]), cuda::kSuccess);
    ASSERT_EQ(cuda.WaitFor(word, 1, cuda::PerThreadStream()), cuda::kSuccess);
    std::thread([&] {
      ASSERT_EQ(cuCtxSetCurrent(cuda.context), cuda::kSuccess);
      ASSERT_EQ(cuStreamGetId_ptsz(nullptr, &ids[1]), cuda::kSuccess);
      EXPECT_EQ(cuStreamSynchronize_ptsz(nullptr), cuda::kSuccess);  // Not held up by the other's.
    }).join();
    EXPECT_NE(ids[0], ids[1]);
    EXPECT_EQ(cuStreamQuery_ptsz(nullptr), cuda::kNotReady);
    *word = 1;
    EXPECT_EQ(cuStreamSynchronize_ptsz(nullptr), cuda::kSuccess);
  });
}

TEST_F(StreamTest, StreamWaitsForAnEventAsItWasWhenItWasTold) {
  Run([] {
    const Session cuda;
    auto* word = cuda.NewWord();
    const auto other = cuda.NewStream();
    const auto event = cuda.NewEvent();
    EXPECT_EQ(cuStreamWaitEvent(other, event, 0), cuda::kSuccess);  // Never recorded: no wait.
    EXPECT_EQ(cuStreamSynchronize(other), cuda::kSuccess);
    ASSERT_EQ(cuda.Launch(2000, 1), cuda::kSuccess);
    ASSERT_EQ(cuEventRecord(event, cuda.stream), cuda::kSuccess);
    ASSERT_EQ(cuStreamWaitEvent(other, event, 0), cuda::kSuccess);
    // Recorded again behind a wait: that is another matter.
    ASSERT_EQ(cuda.WaitFor(word, 1, cuda.stream), cuda::kSuccess);
    ASSERT_EQ(cuEventRecord(event, cuda.stream), cuda::kSuccess);
    EXPECT_EQ(cuStreamSynchronize(other), cuda::kSuccess);
    EXPECT_EQ(cuEventQuery(event), cuda::kNotReady);
    *word = 1;
    EXPECT_EQ(cuEventSynchronize(event), cuda::kSuccess);
  });
}

TEST_F(StreamTest, HostFunctionsRunInOrderAndMayCallNothing) {
  struct Log {
    std::vector<int> calls;
    cuda::Result inside = cuda::kSuccess;
  };
  Run([] {
    const Session cuda;
    static Log log;
    ASSERT_EQ(cuda.Launch(1000, 1), cuda::kSuccess);
    ASSERT_EQ(cuLaunchHostFunc(
                  cuda.stream,
                  [](void*) {
                    log.calls.push_back(1);
                    log.inside = cuCtxSynchronize();
                  },
                  nullptr),
              cuda::kSuccess);
    ASSERT_EQ(cuStreamAddCallback(
                  cuda.stream, [](cuda::Stream, cuda::Result, void*) { log.calls.push_back(2); },
                  nullptr, 0),
              cuda::kSuccess);
    ASSERT_EQ(cuStreamSynchronize(cuda.stream), cuda::kSuccess);
    EXPECT_EQ(log.calls, (std::vector<int>{1, 2}));
    EXPECT_EQ(log.inside, cuda::kNotPermitted);
  });
}

TEST_F(StreamTest, LaunchIntoAFullStreamWaits) {
  Run([] {
    const Session cuda;
    auto* word = cuda.NewWord();
    ASSERT_EQ(cuda.WaitFor(word, 1, cuda.stream), cuda::kSuccess);
    constexpr int kMany = 1500;
    std::atomic<int> launched{0};
    std::thread launcher([&] {
      ASSERT_EQ(cuCtxSetCurrent(cuda.context), cuda::kSuccess);
      for (; launched < kMany; ++launched) {
        ASSERT_EQ(cuda.Launch(1, 1), cuda::kSuccess);
      }
    });
    // Time enough for the rest, were it not held up.
    while (launched < 1023) std::this_thread::yield();
    for (int i = 0; i < 50; ++i) cuda.Settle();
    EXPECT_LT(launched.load(), 1100);
    *word = 1;
    launcher.join();
    EXPECT_EQ(launched.load(), kMany);
    EXPECT_EQ(cuStreamSynchronize(cuda.stream), cuda::kSuccess);
  });
}

TEST_F(StreamTest, DestroyedStreamStillDoesItsWork) {
  Run([] {
    const Session cuda;
    auto* word = cuda.NewWord();
    const auto stream = cuda.NewStream();
    ASSERT_EQ(cuda.Launch(500, 1, stream), cuda::kSuccess);
    ASSERT_EQ(cuStreamWriteValue32_v2(stream, AddressOf(word), 7, 0), cuda::kSuccess);
    const auto end = cuda.Recorded(stream);
    ASSERT_EQ(cuStreamDestroy_v2(stream), cuda::kSuccess);
    EXPECT_EQ(cuStreamQuery(stream), cuda::kInvalidHandle);
    EXPECT_EQ(cuda.Launch(10, 1, stream), cuda::kInvalidHandle);
    EXPECT_EQ(cuStreamDestroy_v2(stream), cuda::kInvalidHandle);
    ASSERT_EQ(cuEventSynchronize(end), cuda::kSuccess);
    EXPECT_EQ(*word, 7U);
  });
}

}  // namespace
}  // namespace divvy::device::cuda_simulator
