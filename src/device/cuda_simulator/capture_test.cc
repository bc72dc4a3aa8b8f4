#include <thread>

#include "device/cuda_simulator/test_program.h"

namespace divvy::device::cuda_simulator {
namespace {

using CaptureTest = CudaSimTest;

cuda::CaptureStatus StatusOf(cuda::Stream stream) {
  cuda::CaptureStatus status = cuda::kCaptureNone;
  EXPECT_EQ(cuStreamIsCapturing(stream, &status), cuda::kSuccess);
  return status;
}

void Begin(cuda::Stream stream, cuda::CaptureMode mode = cuda::kCaptureGlobal) {
  ASSERT_EQ(cuStreamBeginCapture_v2(stream, mode), cuda::kSuccess);
}

// Ends a capture that was broken, as it must end.
void ExpectBroken(cuda::Stream stream) {
  EXPECT_EQ(StatusOf(stream), cuda::kCaptureInvalidated);
  cuda::Graph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), cuda::kStreamCaptureInvalidated);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(StatusOf(stream), cuda::kCaptureNone);
}

void ExpectWhole(cuda::Stream stream) {
  EXPECT_EQ(StatusOf(stream), cuda::kCaptureActive);
  cuda::Graph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), cuda::kSuccess);
  EXPECT_NE(graph, nullptr);
  EXPECT_EQ(cuGraphDestroy(graph), cuda::kSuccess);
}

cuda::Result Allocate() {
  cuda::DevicePointer memory = 0;
  return cuMemAlloc_v2(&memory, 4096);
}

TEST_F(CaptureTest, WaitingForACapturedStreamBreaksTheCapture) {
  Run([] {
    const Session cuda;
    for (const auto mode :
         {cuda::kCaptureGlobal, cuda::kCaptureThreadLocal, cuda::kCaptureRelaxed}) {
      Begin(cuda.stream, mode);
      EXPECT_EQ(cuStreamSynchronize(cuda.stream), cuda::kStreamCaptureUnsupported);
      EXPECT_EQ(cuda.Launch(1), cuda::kStreamCaptureInvalidated);
      ExpectBroken(cuda.stream);
      Begin(cuda.stream, mode);
      EXPECT_EQ(cuStreamQuery(cuda.stream), cuda::kStreamCaptureUnsupported);
      ExpectBroken(cuda.stream);
      Begin(cuda.stream, mode);
      EXPECT_EQ(cuCtxSynchronize(), cuda::kStreamCaptureUnsupported);
      ExpectBroken(cuda.stream);
    }
    EXPECT_EQ(cuda.Launch(1), cuda::kSuccess);  // And nothing stays behind.
    EXPECT_EQ(cuStreamSynchronize(cuda.stream), cuda::kSuccess);
  });
}

TEST_F(CaptureTest, UnsafeCallsAreForbiddenByModeOfThreadAndCapture) {
  Run([] {
    const Session cuda;
    const auto event = cuda.Recorded(cuda.stream);
    const auto other = cuda.NewStream();
    ASSERT_EQ(cuStreamSynchronize(cuda.stream), cuda::kSuccess);
    for (const auto& unsafe :
         {std::function<cuda::Result()>(Allocate),
          std::function<cuda::Result()>([&] { return cuEventQuery(event); }),
          std::function<cuda::Result()>([&] { return cuStreamQuery(other); }),
          std::function<cuda::Result()>([&] { return cuEventSynchronize(event); })}) {
      Begin(cuda.stream, cuda::kCaptureGlobal);
      EXPECT_EQ(unsafe(), cuda::kStreamCaptureUnsupported);
      ExpectBroken(cuda.stream);
      Begin(cuda.stream, cuda::kCaptureRelaxed);
      EXPECT_EQ(unsafe(), cuda::kSuccess);
      ExpectWhole(cuda.stream);
    }
  });
}

TEST_F(CaptureTest, GlobalCaptureIsBrokenFromOtherThreadsUnlessTheyAreRelaxed) {
  Run([] {
    const Session cuda;
    const auto elsewhere = [&](cuda::CaptureMode mode) {
      cuda::Result result = cuda::kUnknown;
      std::thread([&] {
        ASSERT_EQ(cuCtxSetCurrent(cuda.context), cuda::kSuccess);
        ASSERT_EQ(cuThreadExchangeStreamCaptureMode(&mode), cuda::kSuccess);
        EXPECT_EQ(mode, cuda::kCaptureGlobal);
        result = Allocate();
      }).join();
      return result;
    };
    Begin(cuda.stream, cuda::kCaptureGlobal);
    EXPECT_EQ(elsewhere(cuda::kCaptureRelaxed), cuda::kSuccess);
    EXPECT_EQ(elsewhere(cuda::kCaptureThreadLocal), cuda::kSuccess);
    EXPECT_EQ(StatusOf(cuda.stream), cuda::kCaptureActive);
    EXPECT_EQ(elsewhere(cuda::kCaptureGlobal), cuda::kStreamCaptureUnsupported);
    ExpectBroken(cuda.stream);
    Begin(cuda.stream, cuda::kCaptureThreadLocal);
    EXPECT_EQ(elsewhere(cuda::kCaptureGlobal), cuda::kSuccess);
    ExpectWhole(cuda.stream);
  });
}

TEST_F(CaptureTest, LegacyStreamMayNotBeUsedBesideACapturedBlockingStream) {
  Run([] {
    const Session cuda;
    const auto blocking = cuda.NewStream(0);
    EXPECT_EQ(cuStreamBeginCapture_v2(nullptr, cuda::kCaptureRelaxed),
              cuda::kStreamCaptureUnsupported);
    for (const auto mode : {cuda::kCaptureGlobal, cuda::kCaptureRelaxed}) {
      Begin(blocking, mode);
      EXPECT_EQ(cuda.Launch(1, 1, nullptr), cuda::kStreamCaptureImplicit);
      ExpectBroken(blocking);
    }
    Begin(blocking);
    EXPECT_EQ(cuStreamSynchronize(nullptr), cuda::kStreamCaptureImplicit);
    ExpectBroken(blocking);
    // To ask whether it is captured is refused too, but harmless.
    Begin(blocking);
    cuda::CaptureStatus status{};
    EXPECT_EQ(cuStreamIsCapturing(nullptr, &status), cuda::kStreamCaptureImplicit);
    ExpectWhole(blocking);
    // A stream that does not block is no concern of the legacy stream.
    Begin(cuda.stream);
    EXPECT_EQ(cuda.Launch(1, 1, nullptr), cuda::kSuccess);
    ExpectWhole(cuda.stream);
  });
}

TEST_F(CaptureTest, CaptureEndsWhereAndByWhomItWasBegun) {
  Run([] {
    const Session cuda;
    cuda::Graph graph = nullptr;
    EXPECT_EQ(cuStreamEndCapture(cuda.stream, &graph), cuda::kIllegalState);
    Begin(cuda.stream);
    EXPECT_EQ(cuStreamBeginCapture_v2(cuda.stream, cuda::kCaptureGlobal), cuda::kIllegalState);
    std::thread([&] {
      ASSERT_EQ(cuCtxSetCurrent(cuda.context), cuda::kSuccess);
      EXPECT_EQ(cuStreamEndCapture(cuda.stream, &graph), cuda::kStreamCaptureWrongThread);
    }).join();
    ExpectBroken(cuda.stream);
    Begin(cuda.stream, cuda::kCaptureRelaxed);
    std::thread([&] {
      ASSERT_EQ(cuCtxSetCurrent(cuda.context), cuda::kSuccess);
      EXPECT_EQ(cuStreamEndCapture(cuda.stream, &graph), cuda::kSuccess);
    }).join();
  });
}

TEST_F(CaptureTest, CaptureSpreadsByEventsAndMustBeJoined) {
  Run([] {
    const Session cuda;
    const auto other = cuda.NewStream();
    const auto fork = cuda.NewEvent();
    const auto join = cuda.NewEvent();
    cuda::Graph graph = nullptr;
    for (const bool joined : {false, true}) {
      Begin(cuda.stream);
      ASSERT_EQ(cuda.Launch(1), cuda::kSuccess);
      ASSERT_EQ(cuEventRecord(fork, cuda.stream), cuda::kSuccess);
      ASSERT_EQ(cuStreamWaitEvent(other, fork, 0), cuda::kSuccess);
      EXPECT_EQ(StatusOf(other), cuda::kCaptureActive);
      ASSERT_EQ(cuda.Launch(1, 1, other), cuda::kSuccess);
      ASSERT_EQ(cuEventRecord(join, other), cuda::kSuccess);
      if (joined) {
        ASSERT_EQ(cuStreamWaitEvent(cuda.stream, join, 0), cuda::kSuccess);
        ASSERT_EQ(cuda.Launch(1), cuda::kSuccess);
      }
      EXPECT_EQ(cuStreamEndCapture(cuda.stream, &graph),
                joined ? cuda::kSuccess : cuda::kStreamCaptureUnjoined);
      EXPECT_EQ(StatusOf(other), cuda::kCaptureNone);
    }
    std::size_t nodes = 0;
    ASSERT_EQ(cuGraphGetNodes(graph, nullptr, &nodes), cuda::kSuccess);
    EXPECT_EQ(nodes, 3U);
    EXPECT_EQ(cuEventQuery(fork), cuda::kCapturedEvent);
    // What was recorded outside is not for a capture.
    const auto outside = cuda.Recorded(other);
    Begin(cuda.stream);
    EXPECT_EQ(cuStreamWaitEvent(cuda.stream, outside, 0), cuda::kStreamCaptureIsolation);
    ExpectBroken(cuda.stream);
  });
}

TEST_F(CaptureTest, WhatIsCapturedDoesNotRun) {
  Run([] {
    const Session cuda;
    auto* word = cuda.NewWord();
    Begin(cuda.stream);
    ASSERT_EQ(cuStreamWriteValue32_v2(cuda.stream, AddressOf(word), 7, 0), cuda::kSuccess);
    cuda::CaptureStatus status{};
    std::uint64_t id = 0;
    cuda::Graph graph = nullptr;
    const cuda::GraphNode* nodes = nullptr;
    std::size_t count = 0;
    ASSERT_EQ(cuStreamGetCaptureInfo_v2(cuda.stream, &status, &id, &graph, &nodes, &count),
              cuda::kSuccess);
    ASSERT_EQ(count, 1U);
    GraphNodeType type = kNodeEmpty;
    ASSERT_EQ(cuGraphNodeGetType(nodes[0], &type), cuda::kSuccess);
    EXPECT_EQ(type, kNodeMemOp);
    ASSERT_EQ(cuStreamEndCapture(cuda.stream, &graph), cuda::kSuccess);
    ASSERT_EQ(cuStreamSynchronize(cuda.stream), cuda::kSuccess);
    EXPECT_EQ(*word, 0U);
    cuda::GraphExec exec = nullptr;
    ASSERT_EQ(cuGraphInstantiateWithFlags(&exec, graph, 0), cuda::kSuccess);
    ASSERT_EQ(cuGraphLaunch(exec, cuda.stream), cuda::kSuccess);
    ASSERT_EQ(cuStreamSynchronize(cuda.stream), cuda::kSuccess);
    EXPECT_EQ(*word, 7U);
  });
}

}  // namespace
}  // namespace divvy::device::cuda_simulator
