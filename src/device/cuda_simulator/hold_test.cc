#include <string>

#include "device/cuda_simulator/test_program.h"

namespace divvy::device::cuda_simulator {
namespace {

// As the gate loads it; what it does is for the simulator to know.
constexpr const char* kPtx = R"(.version 6.0
.target sm_60
.address_size 64
.visible .entry divvy_hold(.param .u64 word, .param .u32 number, .param .u32 nanoseconds)
{
  ret;
}
)";
constexpr unsigned kLongest = 4'000'000'000;

// A program with the kernel that holds the GPU.
struct HoldSession : Session {
  HoldSession() {
    cuda::Module ptx = nullptr;
    EXPECT_EQ(cuModuleLoadData(&ptx, kPtx), cuda::kSuccess);
    EXPECT_EQ(cuModuleGetFunction(&hold, ptx, "divvy_hold"), cuda::kSuccess);
  }

  cuda::Result Hold(cuda::DevicePointer word, unsigned value, unsigned nanoseconds) const {
    void* parameters[] = {&word, &value, &nanoseconds};
    return cuLaunchKernel(hold, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
  }

  cuda::Function hold = nullptr;
};

using HoldTest = CudaSimTest;

TEST_F(HoldTest, EndsAtItsTimeIfTheWordStays) {
  Run([] {
    const HoldSession cuda;
    auto* word = cuda.NewWord();
    *word = 6;
    auto* gate = cuda.NewWord();
    ASSERT_EQ(cuda.WaitFor(gate, 1, cuda.stream), cuda::kSuccess);
    const auto begin = cuda.Recorded(cuda.stream);
    ASSERT_EQ(cuda.Hold(AddressOf(word), 7, 2'500'000), cuda::kSuccess);
    const auto end = cuda.Recorded(cuda.stream);
    cuda.Settle();
    *gate = 1;
    ASSERT_EQ(cuEventSynchronize(end), cuda::kSuccess);
    EXPECT_FLOAT_EQ(cuda.Elapsed(begin, end), 2.5F);
  });
}

TEST_F(HoldTest, EndsWhenTheWordHasCome) {
  // One that ended and kept its SM would leave none.
  environment_["DIVVY_CUDA_SIM_SPEC"] = "sms=1";
  Run([] {
    const HoldSession cuda;
    auto* word = cuda.NewWord();
    const auto begin = cuda.Recorded(cuda.stream);
    ASSERT_EQ(cuda.Hold(AddressOf(word), 2, kLongest), cuda::kSuccess);
    *word = 1;
    cuda.Settle();
    EXPECT_EQ(cuStreamQuery(cuda.stream), cuda::kNotReady);
    *word = 3;
    // And what finds it so, with numbers that ran over too, does not begin to wait.
    ASSERT_EQ(cuda.Hold(AddressOf(word), 3, kLongest), cuda::kSuccess);
    ASSERT_EQ(cuda.Hold(AddressOf(word), 0xFFFF'FFFF, kLongest), cuda::kSuccess);
    const auto end = cuda.Recorded(cuda.stream);
    ASSERT_EQ(cuEventSynchronize(end), cuda::kSuccess);
    EXPECT_LT(cuda.Elapsed(begin, end), 2000.0F);  // One alone may take 4000.
  });
}

TEST_F(HoldTest, KeepsTheTurnAsAnyKernel) {
  environment_["DIVVY_CUDA_SIM_SPEC"] = "mode=timeslice slice_us=1000000";
  Program holder(With({}), [](Link& link) {
    const HoldSession cuda;
    cuda.SetSlice(60'000'000);
    auto* word = cuda.NewWord();
    ASSERT_EQ(cuda.Hold(AddressOf(word), 1, kLongest), cuda::kSuccess);
    cuda.Settle();
    link.Tell();
    ASSERT_TRUE(link.Await());
    EXPECT_EQ(cuStreamQuery(cuda.stream), cuda::kNotReady);
    *word = 1;
    ASSERT_EQ(cuStreamSynchronize(cuda.stream), cuda::kSuccess);
    [[maybe_unused]] const bool asked = link.Await();
  });
  ASSERT_TRUE(holder.link().Await());
  Program other(With({}), [](Link& link) {
    const Session cuda;
    ASSERT_EQ(cuda.Launch(1), cuda::kSuccess);
    cuda.Settle();
    EXPECT_EQ(cuStreamQuery(cuda.stream), cuda::kNotReady);
    link.Tell();
    EXPECT_EQ(cuStreamSynchronize(cuda.stream), cuda::kSuccess);
  });
  ASSERT_TRUE(other.link().Await());
  holder.link().Tell();
  EXPECT_EQ(other.Join(), 0);
}

TEST_F(HoldTest, TimeGoesOnWhereItIsInterrupted) {
  environment_["DIVVY_CUDA_SIM_SPEC"] = "mode=timeslice slice_us=100000";
  Program holder(With({}), [](Link& link) {
    const HoldSession cuda;
    cuda.SetSlice(1);
    auto* word = cuda.NewWord();
    ASSERT_EQ(cuda.Hold(AddressOf(word), 1, 50'000'000), cuda::kSuccess);
    cuda.Settle();
    link.Tell();
    // In turns of its own it would be minutes.
    EXPECT_EQ(cuStreamSynchronize(cuda.stream), cuda::kSuccess);
  });
  ASSERT_TRUE(holder.link().Await());
  Program other(With({}), [](Link& link) {
    const Session cuda;
    ASSERT_EQ(cuda.Launch(60e6F), cuda::kSuccess);
    [[maybe_unused]] const bool asked = link.Await();
  });
  EXPECT_EQ(holder.Join(), 0);
}

TEST_F(HoldTest, BadAddressEndsTheContext) {
  const auto fails_at = [this](auto address) {
    Run([&] {
      const HoldSession cuda;
      ASSERT_EQ(cuda.Hold(address(cuda), 1, kLongest), cuda::kSuccess);
      EXPECT_EQ(cuStreamSynchronize(cuda.stream), cuda::kIllegalAddress);
      EXPECT_EQ(cuda.Launch(1), cuda::kIllegalAddress);
    });
  };
  static unsigned not_mapped = 0;
  fails_at([](const HoldSession&) { return cuda::DevicePointer{0}; });
  fails_at([](const HoldSession&) { return AddressOf(&not_mapped); });
  fails_at([](const HoldSession& cuda) { return AddressOf(cuda.NewWord()) + 2; });
}

TEST_F(HoldTest, MemoryTakenAwayUnderItEndsTheContext) {
  Run([] {
    const HoldSession cuda;
    alignas(4096) static unsigned page[1024] = {};
    ASSERT_EQ(cuMemHostRegister_v2(page, sizeof(page), cuda::kHostRegisterDeviceMap),
              cuda::kSuccess);
    ASSERT_EQ(cuda.Hold(AddressOf(page), 1, kLongest), cuda::kSuccess);
    cuda.Settle();
    ASSERT_EQ(cuMemHostUnregister(page), cuda::kSuccess);
    EXPECT_EQ(cuStreamSynchronize(cuda.stream), cuda::kIllegalAddress);
  });
}

TEST_F(HoldTest, ParameterLeftOutIsAnError) {
  Run([] {
    const HoldSession cuda;
    cuda::DevicePointer word = 0;
    void* parameters[] = {&word, nullptr, nullptr};
    EXPECT_EQ(cuLaunchKernel(cuda.hold, 1, 1, 1, 1, 1, 1, 0, cuda.stream, parameters, nullptr),
              cuda::kInvalidValue);
    EXPECT_EQ(cuLaunchKernel(cuda.hold, 1, 1, 1, 1, 1, 1, 0, cuda.stream, nullptr, nullptr),
              cuda::kInvalidValue);
  });
}

TEST_F(HoldTest, OtherPtxIsNoImage) {
  Run([] {
    const Session cuda;
    const std::string right = kPtx;
    const auto load = [](const std::string& text) {
      cuda::Module module = nullptr;
      return cuModuleLoadData(&module, text.c_str());
    };
    const auto with = [&](const std::string& part, const std::string& instead) {
      std::string text = right;
      EXPECT_NE(text.find(part), std::string::npos) << part;
      return text.replace(text.find(part), part.size(), instead);
    };
    EXPECT_EQ(load(right), cuda::kSuccess);
    EXPECT_EQ(load(with("divvy_hold", "divvy_held")), cuda::kInvalidImage);
    EXPECT_EQ(load(with(".target sm_60", "")), cuda::kInvalidImage);
    EXPECT_EQ(load(with(".u64 word", ".u32 word")), cuda::kInvalidImage);
    EXPECT_EQ(load(with(", .param .u32 nanoseconds", "")), cuda::kInvalidImage);
    EXPECT_EQ(load(with("nanoseconds)", "nanoseconds, .param .u32 more)")), cuda::kInvalidImage);
    EXPECT_EQ(load(with("nanoseconds)", "nanoseconds")), cuda::kInvalidImage);
    EXPECT_EQ(load(with("}", "")), cuda::kInvalidImage);
    EXPECT_EQ(load(with("{\n  ret;\n}", "")), cuda::kInvalidImage);
    EXPECT_EQ(load(with(".visible .entry", ".visible .func")), cuda::kInvalidImage);
    EXPECT_EQ(load(right + ".visible .entry other()\n{\n}\n"), cuda::kInvalidImage);
  });
}

}  // namespace
}  // namespace divvy::device::cuda_simulator
