#include "device/simulator/scenario.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/simulator/gpu_spec.h"
#include "device/simulator/operations.h"

namespace divvy::device::simulator {
namespace {

using ::testing::HasSubstr;

class ScenarioTest : public ::testing::Test {
 protected:
  ScenarioTest() : state_(*ParseGpuSpec("H200-141GB+mig,A30-24GB")) {}

  State state_;
};

TEST_F(ScenarioTest, CreateWholeMakesAReadyInstance) {
  const auto created = CreateWhole(state_, 0, "2g.35gb", {});
  ASSERT_TRUE(created);
  EXPECT_EQ(created->place.start, 0);
  ASSERT_EQ(created->compute_instances.size(), 1U);
  EXPECT_EQ(created->compute_instances[0].slices, 2);
  EXPECT_EQ(state_.gpus[0].instances.size(), 1U);
}

TEST_F(ScenarioTest, CreateWholeSaysWhatIsWrong) {
  const State before = state_;
  EXPECT_EQ(CreateWhole(state_, 5, "1g.18gb", {}).error().code, ErrorCode::kNotFound);
  EXPECT_THAT(CreateWhole(state_, 0, "1g.5gb", {}).error().message, HasSubstr("1g.18gb"));
  EXPECT_EQ(CreateWhole(state_, 1, "1g.6gb", {}).error().code, ErrorCode::kFailedPrecondition);
  EXPECT_EQ(CreateWhole(state_, 0, "3g.71gb", 1).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(state_, before);
  ASSERT_TRUE(CreateWhole(state_, 0, "7g.141gb", {}));
  EXPECT_EQ(CreateWhole(state_, 0, "1g.18gb", {}).error().code, ErrorCode::kResourceExhausted);
}

TEST_F(ScenarioTest, ProcessesLandOnTheOnlyComputeInstance) {
  ASSERT_TRUE(CreateWhole(state_, 0, "3g.71gb", 4));
  ProcessRequest request;
  request.gpu_instance = 2;
  request.pid = 1234;
  const auto process = StartProcess(state_, request);
  ASSERT_TRUE(process);
  EXPECT_EQ(process->gpu_instance, 2U);
  EXPECT_EQ(process->compute_instance, 0U);
  EXPECT_EQ(StartProcess(state_, request).error().code, ErrorCode::kInvalidArgument);
  request.pid.reset();
  EXPECT_EQ(StartProcess(state_, request)->pid, 1001U);
  EXPECT_EQ(StartProcess(state_, request)->pid, 1002U);
}

TEST_F(ScenarioTest, ProcessesNeedAPlaceThatExistsAndIsClear) {
  ASSERT_TRUE(CreateWhole(state_, 0, "3g.71gb", 4));
  ProcessRequest request;
  request.start = 0;
  EXPECT_THAT(StartProcess(state_, request).error().message, HasSubstr("3g.71gb at 4"));
  request.start = 4;
  request.compute_instance = 3;
  EXPECT_EQ(StartProcess(state_, request).error().code, ErrorCode::kNotFound);
  request.compute_instance.reset();
  request.memory_mib = 71425;
  EXPECT_EQ(StartProcess(state_, request).error().code, ErrorCode::kResourceExhausted);

  GpuInstance& parent = state_.gpus[0].instances[0];
  parent.compute_instances.clear();
  request.memory_mib = 0;
  EXPECT_FALSE(StartProcess(state_, request)->compute_instance);
  state_.gpus[0].processes.clear();
  const ComputeProfile profile =
      ComputeProfilesOf(state_.gpus[0].model->profile(parent.place.profile)).front();
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(CreateComputeInstance(state_, state_.gpus[0], parent, profile, {}).code,
              nvml::kSuccess);
  }
  EXPECT_EQ(StartProcess(state_, request).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(ScenarioTest, StopEndsTheProcess) {
  ProcessRequest request;
  request.gpu = 1;
  request.pid = 9;
  ASSERT_TRUE(StartProcess(state_, request));
  EXPECT_TRUE(StopProcess(state_, 9));
  EXPECT_EQ(StopProcess(state_, 9).error().code, ErrorCode::kNotFound);
}

TEST_F(ScenarioTest, DrawingShowsWhatRunsWhere) {
  ASSERT_TRUE(CreateWhole(state_, 0, "3g.71gb", 4));
  ProcessRequest request;
  request.start = 4;
  request.pid = 1234;
  ASSERT_TRUE(StartProcess(state_, request));
  state_.gpus[1].mig_pending = true;
  const std::string drawn = Draw(state_);
  EXPECT_THAT(drawn, HasSubstr("GI 2   3g.71gb        slices 4-7"));
  EXPECT_THAT(drawn, HasSubstr("pid 1234  python"));
  EXPECT_THAT(drawn, HasSubstr("MIG off (on pending)"));
}

}  // namespace
}  // namespace divvy::device::simulator
