#include <fstream>
#include <sstream>

#include "device/cuda_simulator/test_program.h"

namespace divvy::device::cuda_simulator {
namespace {

using SharingTest = CudaSimTest;

constexpr float kForever = 60e6F;  // A minute: longer than any test.

// Fills the GPU with a kernel that never ends, says so, and waits to be killed.
void Occupy(Link& link) {
  const Session cuda;
  const auto begin = cuda.Recorded(cuda.stream);
  ASSERT_EQ(cuda.Launch(kForever), cuda::kSuccess);
  // The kernel follows on the event in one and the same look at the stream.
  ASSERT_EQ(cuEventSynchronize(begin), cuda::kSuccess);
  cuda.Settle();
  link.Tell();
  [[maybe_unused]] const bool asked = link.Await();
}

// A number of the one line of statistics in a file.
double StatOf(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  const std::string line = text.str();
  const std::size_t at = line.find("\"" + name + "\": ");
  EXPECT_NE(at, std::string::npos) << name << " in " << line;
  return at == std::string::npos ? -1 : std::stod(line.substr(at + name.size() + 4));
}

// Needs SMs that are taken, says when it is known to wait, and gets them in the end.
void Contend(Link& link) {
  const Session cuda;
  const auto begin = cuda.Recorded(cuda.stream);
  ASSERT_EQ(cuda.Launch(1000, 1), cuda::kSuccess);
  const auto end = cuda.Recorded(cuda.stream);
  cuda.Settle();
  EXPECT_EQ(cuEventQuery(end), cuda::kNotReady);
  link.Tell();
  ASSERT_EQ(cuEventSynchronize(end), cuda::kSuccess);
  EXPECT_GT(cuda.Elapsed(begin, end), 1.0F);  // Not held up, it is 1 ms to the digit.
}

TEST_F(SharingTest, KernelWaitsForSmsUntilTheirHolderEnds) {
  // Who writes statistics ends as programs do, and not by _exit.
  Program holder(With({{"DIVVY_CUDA_SIM_STATS", "/dev/null"}}), Occupy);
  ASSERT_TRUE(holder.link().Await());
  const std::string stats = File("stats");
  Program waiter(With({{"DIVVY_CUDA_SIM_STATS", stats}}), Contend);
  ASSERT_TRUE(waiter.link().Await());
  holder.link().Tell();
  EXPECT_EQ(waiter.Join(), 0);
  EXPECT_EQ(holder.Join(), 0);
  EXPECT_GT(StatOf(stats, "sm_wait_us"), 0);
  EXPECT_EQ(StatOf(stats, "kernels"), 1);
}

TEST_F(SharingTest, SmsOfAProcessThatWasKilledAreFree) {
  Program holder(With({}), Occupy);
  ASSERT_TRUE(holder.link().Await());
  Program waiter(With({}), Contend);
  ASSERT_TRUE(waiter.link().Await());
  holder.Kill();
  // Nobody collects the dead yet: it must not count as alive all the same.
  EXPECT_EQ(waiter.Join(), 0);
}

TEST_F(SharingTest, MemoryOfAProcessThatWasKilledIsFree) {
  environment_["DIVVY_CUDA_SIM_SPEC"] = "memory=64MiB";
  Program holder(With({}), [](Link& link) {
    const Session cuda;
    cuda::DevicePointer memory = 0;
    ASSERT_EQ(cuMemAlloc_v2(&memory, 48 << 20), cuda::kSuccess);
    link.Tell();
    [[maybe_unused]] const bool asked = link.Await();
  });
  ASSERT_TRUE(holder.link().Await());
  const auto allocate = [](cuda::Result expected, std::size_t expected_free) {
    const Session cuda;
    std::size_t free = 0;
    std::size_t total = 0;
    ASSERT_EQ(cuMemGetInfo_v2(&free, &total), cuda::kSuccess);
    EXPECT_EQ(total, std::size_t{64} << 20);
    EXPECT_EQ(free, expected_free << 20);
    cuda::DevicePointer memory = 0;
    EXPECT_EQ(cuMemAlloc_v2(&memory, 32 << 20), expected);
  };
  Run([&] { allocate(cuda::kOutOfMemory, 16); });
  holder.Kill();
  holder.Join();
  Run([&] { allocate(cuda::kSuccess, 64); });
}

TEST_F(SharingTest, LowPriorityClientGoesLast) {
  Program holder(With({}), Occupy);
  ASSERT_TRUE(holder.link().Await());
  // Both wait for the same SMs, the low one first.
  Program low(With({{"CUDA_MPS_CLIENT_PRIORITY", "1"}}), [](Link& link) {
    const Session cuda;
    ASSERT_EQ(cuda.Launch(200'000), cuda::kSuccess);  // Had it begun first, it would be over first.
    cuda.Settle();
    link.Tell();
    ASSERT_EQ(cuStreamSynchronize(cuda.stream), cuda::kSuccess);
    link.Tell();
    [[maybe_unused]] const bool asked = link.Await();
  });
  ASSERT_TRUE(low.link().Await());
  Program normal(With({}), [](Link& link) {
    const Session cuda;
    ASSERT_EQ(cuda.Launch(1000), cuda::kSuccess);
    cuda.Settle();
    link.Tell();
    ASSERT_EQ(cuStreamSynchronize(cuda.stream), cuda::kSuccess);
    link.Tell();
    [[maybe_unused]] const bool asked = link.Await();
  });
  ASSERT_TRUE(normal.link().Await());
  holder.Kill();
  ASSERT_TRUE(normal.link().Await());
  EXPECT_FALSE(low.link().HasWord());
  EXPECT_TRUE(low.link().Await());
}

TEST_F(SharingTest, ThreadPercentageCapsTheSms) {
  Run(
      [] {
        const Session cuda;
        int sms = 0;
        ASSERT_EQ(cuDeviceGetAttribute(&sms, cuda::kMultiprocessorCount, 0), cuda::kSuccess);
        EXPECT_EQ(sms, 4);
        const auto begin = cuda.Recorded(cuda.stream);
        ASSERT_EQ(cuda.Launch(1000), cuda::kSuccess);
        const auto end = cuda.Recorded(cuda.stream);
        ASSERT_EQ(cuEventSynchronize(end), cuda::kSuccess);
        EXPECT_GE(cuda.Elapsed(begin, end), 4.0F);
      },
      {{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "25"}});
}

TEST_F(SharingTest, TimeSlicesGoRound) {
  environment_["DIVVY_CUDA_SIM_SPEC"] = "mode=timeslice slice_us=1000";
  Program holder(With({}), Occupy);
  ASSERT_TRUE(holder.link().Await());
  // Against a kernel that never ends: some of the time is ours, and we are stopped on the way.
  const std::string stats = File("stats");
  Run(
      [] {
        const Session cuda;
        const auto begin = cuda.Recorded(cuda.stream);
        ASSERT_EQ(cuda.Launch(10'000, 1), cuda::kSuccess);
        const auto end = cuda.Recorded(cuda.stream);
        ASSERT_EQ(cuEventSynchronize(end), cuda::kSuccess);
        EXPECT_GT(cuda.Elapsed(begin, end), 10.0F);
      },
      {{"DIVVY_CUDA_SIM_STATS", stats}});
  EXPECT_GE(StatOf(stats, "preemptions"), 1);
}

TEST_F(SharingTest, TurnHoldsAsManyKernelsAsFitIntoIt) {
  environment_["DIVVY_CUDA_SIM_SPEC"] = "mode=timeslice slice_us=100000";
  Program holder(With({}), Occupy);
  ASSERT_TRUE(holder.link().Await());
  Run([] {
    const Session cuda;
    ASSERT_EQ(cuda.Launch(1000), cuda::kSuccess);
    const auto first = cuda.Recorded(cuda.stream);
    for (int i = 0; i < 4; ++i) ASSERT_EQ(cuda.Launch(1000), cuda::kSuccess);
    const auto last = cuda.Recorded(cuda.stream);
    ASSERT_EQ(cuEventSynchronize(last), cuda::kSuccess);
    EXPECT_LT(cuda.Elapsed(first, last), 90.0F);  // In another turn it would be 100 ms and more.
  });
}

TEST_F(SharingTest, LongSliceIsNotInterrupted) {
  environment_["DIVVY_CUDA_SIM_SPEC"] = "mode=timeslice slice_us=1000";
  Program holder(With({}), [](Link& link) {
    const Session cuda;
    cuda.SetSlice(60'000'000);
    auto* word = cuda.NewWord();
    ASSERT_EQ(cuda.WaitFor(word, 1, cuda.stream), cuda::kSuccess);
    const auto begin = cuda.Recorded(cuda.stream);
    for (int i = 0; i < 30; ++i) ASSERT_EQ(cuda.Launch(10'000), cuda::kSuccess);
    const auto end = cuda.Recorded(cuda.stream);
    cuda.Settle();
    *word = 1;
    ASSERT_EQ(cuEventSynchronize(begin), cuda::kSuccess);
    link.Tell();
    ASSERT_EQ(cuEventSynchronize(end), cuda::kSuccess);
    EXPECT_FLOAT_EQ(cuda.Elapsed(begin, end), 300.0F);
    [[maybe_unused]] const bool asked = link.Await();
  });
  ASSERT_TRUE(holder.link().Await());
  Run([] {
    const Session cuda;
    ASSERT_EQ(cuda.Launch(100'000), cuda::kSuccess);
    EXPECT_EQ(cuStreamSynchronize(cuda.stream), cuda::kSuccess);  // When the other has no work.
  });
  holder.link().Tell();
  EXPECT_EQ(holder.Join(), 0);
}

TEST_F(SharingTest, ShortSliceIsInterruptedSoon) {
  environment_["DIVVY_CUDA_SIM_SPEC"] = "mode=timeslice slice_us=1000000";
  Program holder(With({}), [](Link& link) {
    const Session cuda;
    cuda.SetSlice(1);
    ASSERT_EQ(cuda.Launch(kForever), cuda::kSuccess);
    cuda.Settle();
    link.Tell();
    [[maybe_unused]] const bool asked = link.Await();
  });
  ASSERT_TRUE(holder.link().Await());
  Run([] {
    const Session cuda;
    const auto begin = cuda.Recorded(cuda.stream);
    // After each of them the other has its turn, which may be a second.
    for (int i = 0; i < 4; ++i) {
      ASSERT_EQ(cuda.Launch(100), cuda::kSuccess);
      ASSERT_EQ(cuStreamSynchronize(cuda.stream), cuda::kSuccess);
      cuda.Settle();
    }
    const auto end = cuda.Recorded(cuda.stream);
    ASSERT_EQ(cuEventSynchronize(end), cuda::kSuccess);
    EXPECT_LT(cuda.Elapsed(begin, end), 2000.0F);
  });
}

TEST_F(SharingTest, ProcessesWithTheShortestSlicesGetOn) {
  environment_["DIVVY_CUDA_SIM_SPEC"] = "mode=timeslice slice_us=1000000";
  const auto work = [](Link& link) {
    const Session cuda;
    cuda.SetSlice(1);
    link.Tell();
    ASSERT_TRUE(link.Await());
    ASSERT_EQ(cuda.Launch(20'000), cuda::kSuccess);
    EXPECT_EQ(cuStreamSynchronize(cuda.stream), cuda::kSuccess);
  };
  Program one(With({}), work);
  Program other(With({}), work);
  ASSERT_TRUE(one.link().Await());
  ASSERT_TRUE(other.link().Await());
  one.link().Tell();
  other.link().Tell();
  EXPECT_EQ(one.Join(), 0);
  EXPECT_EQ(other.Join(), 0);
}

TEST_F(SharingTest, HandingOverTheGpuTakesItsTime) {
  environment_["DIVVY_CUDA_SIM_SPEC"] = "mode=timeslice switch_us=200000";
  const auto elapsed = [] {
    const Session cuda;
    auto* word = cuda.NewWord();
    EXPECT_EQ(cuda.WaitFor(word, 1, cuda.stream), cuda::kSuccess);
    const auto begin = cuda.Recorded(cuda.stream);
    EXPECT_EQ(cuda.Launch(1000), cuda::kSuccess);
    const auto end = cuda.Recorded(cuda.stream);
    cuda.Settle();
    *word = 1;
    EXPECT_EQ(cuEventSynchronize(end), cuda::kSuccess);
    return cuda.Elapsed(begin, end);
  };
  Run([&] { EXPECT_LT(elapsed(), 100.0F); });
  Run([&] { EXPECT_GE(elapsed(), 201.0F); });
}

TEST_F(SharingTest, StreamBlockedInAWaitHoldsNoTimeSlice) {
  environment_["DIVVY_CUDA_SIM_SPEC"] = "mode=timeslice slice_us=1000000";
  Program waiter(With({}), [](Link& link) {
    const Session cuda;
    auto* word = cuda.NewWord();
    ASSERT_EQ(cuda.Launch(100), cuda::kSuccess);
    ASSERT_EQ(cuda.WaitFor(word, 1, cuda.stream), cuda::kSuccess);
    ASSERT_EQ(cuda.Launch(100), cuda::kSuccess);
    const auto probe = cuda.NewStream();
    ASSERT_EQ(cuda.Launch(1, 1, probe), cuda::kSuccess);
    ASSERT_EQ(cuStreamSynchronize(probe), cuda::kSuccess);
    link.Tell();
    [[maybe_unused]] const bool asked = link.Await();
  });
  ASSERT_TRUE(waiter.link().Await());
  // A slice is a second here: who gets on in less was given the GPU at once.
  Run([] {
    const Session cuda;
    const auto begin = cuda.Recorded(cuda.stream);
    ASSERT_EQ(cuda.Launch(1000), cuda::kSuccess);
    const auto end = cuda.Recorded(cuda.stream);
    ASSERT_EQ(cuEventSynchronize(end), cuda::kSuccess);
    EXPECT_LT(cuda.Elapsed(begin, end), 500.0F);
  });
}

TEST_F(SharingTest, TimeSliceOfAProcessThatWasKilledEnds) {
  environment_["DIVVY_CUDA_SIM_SPEC"] = "mode=timeslice slice_us=1000000";
  Program holder(With({}), Occupy);
  ASSERT_TRUE(holder.link().Await());
  holder.Kill();
  Run([] {
    const Session cuda;
    const auto begin = cuda.Recorded(cuda.stream);
    ASSERT_EQ(cuda.Launch(1000), cuda::kSuccess);
    const auto end = cuda.Recorded(cuda.stream);
    ASSERT_EQ(cuEventSynchronize(end), cuda::kSuccess);
    EXPECT_LT(cuda.Elapsed(begin, end), 500.0F);
  });
}

TEST_F(SharingTest, MachineIsMadeOnceAndItsAttributesStay) {
  Run([] { const Session cuda; }, {{"DIVVY_CUDA_SIM_SPEC", "gpus=2 sms=7 memory=1GiB"}});
  Run(
      [] {
        const Session cuda;
        int count = 0;
        int sms = 0;
        ASSERT_EQ(cuDeviceGetCount(&count), cuda::kSuccess);
        ASSERT_EQ(cuDeviceGetAttribute(&sms, cuda::kMultiprocessorCount, 0), cuda::kSuccess);
        EXPECT_EQ(count, 2);
        EXPECT_EQ(sms, 7);
      },
      {{"DIVVY_CUDA_SIM_SPEC", "gpus=1 sms=99"}});
}

TEST_F(SharingTest, GpusOfOneMachineAreApart) {
  environment_["DIVVY_CUDA_SIM_SPEC"] = "gpus=2";
  Program holder(With({{"CUDA_VISIBLE_DEVICES", "1"}}), Occupy);
  ASSERT_TRUE(holder.link().Await());
  Run([] {
    const Session cuda;
    ASSERT_EQ(cuda.Launch(1000), cuda::kSuccess);
    EXPECT_EQ(cuStreamSynchronize(cuda.stream), cuda::kSuccess);
  });
}

}  // namespace
}  // namespace divvy::device::cuda_simulator
