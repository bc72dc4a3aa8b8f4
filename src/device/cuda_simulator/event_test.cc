#include "device/cuda_simulator/test_program.h"

namespace divvy::device::cuda_simulator {
namespace {

using EventTest = CudaSimTest;

TEST_F(EventTest, ElapsedTimeNeedsTwoFinishedEventsWithTiming) {
  Run([] {
    const Session cuda;
    auto* word = cuda.NewWord();
    float ms = 0;
    const auto never = cuda.NewEvent();
    const auto begin = cuda.Recorded(cuda.stream);
    EXPECT_EQ(cuEventElapsedTime(&ms, begin, never), cuda::kInvalidHandle);
    ASSERT_EQ(cuda.WaitFor(word, 1, cuda.stream), cuda::kSuccess);
    const auto end = cuda.Recorded(cuda.stream);
    EXPECT_EQ(cuEventElapsedTime(&ms, begin, end), cuda::kNotReady);
    const auto untimed = cuda.NewEvent(cuda::kEventDisableTiming);
    ASSERT_EQ(cuEventRecord(untimed, cuda.stream), cuda::kSuccess);
    *word = 1;
    ASSERT_EQ(cuStreamSynchronize(cuda.stream), cuda::kSuccess);
    EXPECT_EQ(cuEventElapsedTime(&ms, begin, untimed), cuda::kInvalidHandle);
    EXPECT_EQ(cuEventElapsedTime_v2(&ms, begin, end), cuda::kSuccess);
    EXPECT_EQ(cuEventElapsedTime(nullptr, begin, end), cuda::kInvalidValue);
  });
}

TEST_F(EventTest, EventThatWasNeverRecordedCountsAsOver) {
  Run([] {
    const Session cuda;
    const auto event = cuda.NewEvent();
    EXPECT_EQ(cuEventQuery(event), cuda::kSuccess);
    EXPECT_EQ(cuEventSynchronize(event), cuda::kSuccess);
  });
}

TEST_F(EventTest, DestroyedEventIsNoHandle) {
  Run([] {
    const Session cuda;
    const auto event = cuda.Recorded(cuda.stream);
    ASSERT_EQ(cuEventDestroy_v2(event), cuda::kSuccess);
    EXPECT_EQ(cuEventQuery(event), cuda::kInvalidHandle);
    EXPECT_EQ(cuEventRecord(event, cuda.stream), cuda::kInvalidHandle);
    EXPECT_EQ(cuStreamWaitEvent(cuda.stream, event, 0), cuda::kInvalidHandle);
    EXPECT_EQ(cuEventDestroy_v2(event), cuda::kInvalidHandle);
    EXPECT_EQ(cuEventQuery(reinterpret_cast<cuda::Event>(cuda.stream)), cuda::kInvalidHandle);
  });
}

TEST_F(EventTest, StreamOfAnotherContextTakesNoWork) {
  Run([] {
    const Session cuda;
    const auto event = cuda.NewEvent();
    cuda::Context other = nullptr;
    ASSERT_EQ(cuCtxCreate_v2(&other, 0, 0), cuda::kSuccess);
    EXPECT_EQ(cuda.Launch(10), cuda::kInvalidHandle);
    EXPECT_EQ(cuEventRecord(event, cuda.stream), cuda::kInvalidHandle);
    EXPECT_EQ(cuEventRecord(event, nullptr), cuda::kInvalidHandle);
    EXPECT_EQ(cuStreamSynchronize(cuda.stream), cuda::kSuccess);  // Waiting is for anyone.
    ASSERT_EQ(cuCtxDestroy_v2(other), cuda::kSuccess);
    cuda::Context current = other;
    ASSERT_EQ(cuCtxGetCurrent(&current), cuda::kSuccess);
    EXPECT_EQ(current, cuda.context);
    EXPECT_EQ(cuCtxSetCurrent(other), cuda::kInvalidContext);
    EXPECT_EQ(cuEventRecord(event, cuda.stream), cuda::kSuccess);
  });
}

}  // namespace
}  // namespace divvy::device::cuda_simulator
