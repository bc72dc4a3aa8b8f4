#include <gtest/gtest.h>

#include "device/cuda_simulator/faults.h"
#include "device/cuda_simulator/kernel_code.h"
#include "device/cuda_simulator/spec.h"

namespace divvy::device::cuda_simulator {
namespace {

TEST(SpecTest, NamesWhatItSetsAndKeepsTheRest) {
  const auto spec = ParseSpec(" gpus=2  memory=80GiB mode=timeslice slice_us=700 switch_us=30\n");
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->gpus, 2);
  EXPECT_EQ(spec->memory, std::uint64_t{80} << 30);
  EXPECT_EQ(spec->sharing, Sharing::kTimeSlice);
  EXPECT_EQ(spec->slice, 700 * kMicrosecond);
  EXPECT_EQ(spec->switching, 30 * kMicrosecond);
  EXPECT_EQ(spec->sms, 16);
  EXPECT_EQ(ParseSpec("")->switching, 0);
}

TEST(SpecTest, WrongWordIsNamedWithWhatWouldBeRight) {
  for (const char* text : {"gpus", "gpus=0", "gpus=9", "sms=x", "memory=8GB", "mode=mig", "speed=1",
                           "memory=99999999GiB", "slice_us=99", "slice_us=1000001", "switch_us=-1",
                           "switch_us=1000001", "switch_us"}) {
    const auto spec = ParseSpec(text);
    ASSERT_FALSE(spec) << text;
    EXPECT_NE(spec.error().message.find(text), std::string::npos) << spec.error().message;
  }
}

TEST(KernelCodeTest, OneKernelALine) {
  const auto kernels =
      ParseKernels("# a module\n\nkernel a us=2.5 per_sm=3 # quick\r\nkernel b param_us=1");
  ASSERT_TRUE(kernels) << kernels.error().message;
  ASSERT_EQ(kernels->size(), 2U);
  EXPECT_EQ((*kernels)[0].name, "a");
  EXPECT_EQ((*kernels)[0].duration, 2500);
  EXPECT_EQ((*kernels)[0].per_sm, 3);
  EXPECT_TRUE((*kernels)[1].duration_is_parameter);
}

TEST(KernelCodeTest, ErrorsNameLineAndWord) {
  const auto kernels = ParseKernels("kernel a\nkernel b us=-1\n");
  ASSERT_FALSE(kernels);
  EXPECT_NE(kernels.error().message.find("line 2: 'us=-1'"), std::string::npos)
      << kernels.error().message;
  EXPECT_FALSE(ParseKernels("kernel"));
  EXPECT_FALSE(ParseKernels("kernel a speed=2"));
}

TEST(FaultRulesTest, RuleCountsItsOwnCalls) {
  auto rules =
      FaultRules::Parse("cuInit@2=3,delay:cuInit@*=5ms,kill:cuMemAlloc_v2@1,no:cuCtxDestroy_v2");
  ASSERT_TRUE(rules) << rules.error().message;
  EXPECT_FALSE(rules->Apply("cuInit").error);
  const FaultEffect second = rules->Apply("cuInit");
  EXPECT_EQ(second.error, cuda::kNotInitialized);
  EXPECT_EQ(second.delay, 5 * kMillisecond);
  EXPECT_FALSE(rules->Apply("cuInit").error);
  EXPECT_TRUE(rules->Apply("cuMemAlloc_v2").kill);
  EXPECT_FALSE(rules->Apply("cuMemAlloc_v2").kill);
  EXPECT_TRUE(rules->IsMissing("cuCtxDestroy_v2"));
  EXPECT_FALSE(rules->IsMissing("cuInit"));
  EXPECT_EQ(rules->Apply("cuCtxDestroy_v2").error, cuda::kNotSupported);
}

TEST(FaultRulesTest, WrongRuleIsNamed) {
  for (const char* text : {"cuInit", "cuInit@0=1", "cuInit@1", "cuInit@1=0", "@1=2", "no:cuInit@1",
                           "delay:cuInit@1=5", "kill:cuInit@1=9"}) {
    const auto rules = FaultRules::Parse(text);
    ASSERT_FALSE(rules) << text;
    EXPECT_NE(rules.error().message.find(text), std::string::npos) << rules.error().message;
  }
}

}  // namespace
}  // namespace divvy::device::cuda_simulator
