#include "device/simulator/faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace divvy::device::simulator {
namespace {

using ::testing::HasSubstr;

TEST(FaultRulesTest, NoRulesDoNothing) {
  for (const char* text : {"", " ; ;", "\n"}) {
    auto rules = FaultRules::Parse(text);
    ASSERT_TRUE(rules) << text;
    const FaultEffect effect = rules->Apply("nvmlInit");
    EXPECT_FALSE(effect.error || effect.kill || effect.kill_after || effect.activation);
    EXPECT_EQ(effect.delay.count(), 0);
  }
}

TEST(FaultRulesTest, ActionsOfSeveralRulesAddUp) {
  auto rules = FaultRules::Parse(
      "*@1=delay:50ms; nvmlInit@*=delay:25ms; nvmlInit@1=in_use; *@*=NVML_ERROR_TIMEOUT");
  ASSERT_TRUE(rules) << rules.error().message;
  const FaultEffect first = rules->Apply("nvmlInit");
  EXPECT_EQ(first.delay, std::chrono::milliseconds(75));
  EXPECT_EQ(first.error, nvml::kInUse);
  const FaultEffect second = rules->Apply("nvmlInit");
  EXPECT_EQ(second.delay, std::chrono::milliseconds(25));
  EXPECT_EQ(second.error, nvml::kTimeout);
}

TEST(FaultRulesTest, EachRuleCountsItsOwnFunction) {
  auto rules = FaultRules::Parse("nvmlShutdown@2=kill");
  ASSERT_TRUE(rules);
  EXPECT_FALSE(rules->Apply("nvmlShutdown").kill);
  EXPECT_FALSE(rules->Apply("nvmlInit").kill);
  EXPECT_TRUE(rules->Apply("nvmlShutdown").kill);
  EXPECT_FALSE(rules->Apply("nvmlShutdown").kill);
  rules->ResetCounts();
  EXPECT_FALSE(rules->Apply("nvmlShutdown").kill);
  EXPECT_TRUE(rules->Apply("nvmlShutdown").kill);
}

TEST(FaultRulesTest, BadRulesAreNamedWithWhatIsWrong) {
  const struct {
    const char* rule;
    const char* problem;
  } kCases[] = {
      {"nvmlInit", "FUNCTION@N=ACTION"},
      {"nvmlInit@1", "FUNCTION@N=ACTION"},
      {"nvmlInit=kill", "FUNCTION@N=ACTION"},
      {"nvmlInti@1=kill", "did you mean 'nvmlInit'"},
      {"nvmlInit@0=kill", "call number"},
      {"nvmlInit@x=kill", "call number"},
      {"nvmlInit@1=die", "'die' is no NVML error"},
      {"nvmlInit@1=SUCCESS", "no NVML error"},
      {"nvmlInit@1=77", "no NVML error"},
      {"nvmlInit@1=delay:5", "delay:50ms"},
      {"nvmlInit@1=delay:-5ms", "delay:50ms"},
      {"nvmlInit@1=activation:IN_USE", "nvmlDeviceSetMigMode"},
      {"nvmlDeviceSetMigMode@1=activation:", "no NVML error"},
  };
  for (const auto& [rule, problem] : kCases) {
    const auto rules = FaultRules::Parse(std::string("nvmlInit@1=kill; ") + rule);
    ASSERT_FALSE(rules) << rule;
    EXPECT_EQ(rules.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(rules.error().message, HasSubstr(std::string("'") + rule + "'"));
    EXPECT_THAT(rules.error().message, HasSubstr(problem));
  }
}

}  // namespace
}  // namespace divvy::device::simulator
