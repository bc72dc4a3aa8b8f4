#include "serving/from_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "plan/plan_file.h"
#include "workload/profile_file.h"

namespace divvy::serving {
namespace {

using testing::HasSubstr;

constexpr const char* kProfiles =
    "model,partition,batch,processes,latency_ms,p95_ms\n"
    "bert,1g,1,1,10,12\n"
    "bert,1g,4,1,22,26.4\n"
    "bert,1g,1,2,16,\n"
    "bert,1g,4,2,40,\n"
    "bert,7g,1,1,5,\n"
    "bert,7g,8,1,12,\n";

class FromPlanTest : public testing::Test {
 protected:
  FromPlanTest() : file_(workload::ParseProfiles(kProfiles, "p.csv").value()) {
    models_ = {{"bert", file_.Find("bert")}};
  }

  Result<PlannedSetup> Build(const std::string& gpus) {
    return SetupFromPlan(plan::ParsePlan("version: 1\n" + gpus, "plan.yaml").value(), models_);
  }

  workload::ProfileFile file_;
  std::vector<ServedModel> models_;
};

TEST_F(FromPlanTest, ReplicasTakeTheirTimesFromTheProfile) {
  const auto built = Build(R"(gpus:
  - gpu: 0
    kind: A100-40GB
    instances:
      - {profile: 1g.5gb, start: 0, runs: [{model: bert, batch: 3}]}
      - {profile: 1g.5gb, start: 1, runs: [{model: bert, processes: 2}]}
      - {profile: 1g.5gb, start: 2, runs: [{job: train}]}
  - gpu: 1
    kind: A100-40GB
    instances:
      - {profile: 7g.40gb, runs: [{model: bert}]}
)");
  ASSERT_TRUE(built) << built.error().message;
  const serving::Setup& setup = built->setup;
  ASSERT_EQ(setup.replicas.size(), 3U);
  const auto table = [&](std::size_t replica) {
    return setup.tables[setup.replicas[replica].table];
  };
  EXPECT_EQ(table(0).max_batch(), 3);
  EXPECT_EQ(table(0)(1), FromMilliseconds(10));
  EXPECT_EQ(table(0)(3), FromMilliseconds(18));
  EXPECT_EQ(setup.replicas[1].lanes, 2);
  EXPECT_EQ(table(1)(4), FromMilliseconds(40));
  EXPECT_EQ(table(2).max_batch(), 8);
  EXPECT_LT(setup.replicas[0].size, setup.replicas[2].size);
  EXPECT_EQ(built->places[2].gpu, 1U);
  EXPECT_EQ(built->places[2].profile, "7g.40gb");
  // The 95th percentile of a log-normal time with mean 1 and this sigma is 1.2.
  const double sigma = built->spread[setup.replicas[0].table];
  EXPECT_NEAR(std::exp(1.6449 * sigma - sigma * sigma / 2), 1.2, 1e-3);
  EXPECT_EQ(built->spread[setup.replicas[1].table], 0);
}

TEST_F(FromPlanTest, SaysWhatIsMissingAndWhere) {
  const auto message = [&](const std::string& instance) {
    const auto built =
        Build("gpus:\n  - gpu: 0\n    kind: A100-40GB\n    instances:\n      - " + instance + "\n");
    return built ? "no error" : built.error().message;
  };
  EXPECT_THAT(message("{profile: 1g.5gb, runs: [{model: resnet}]}"),
              HasSubstr("line 6: the plan runs model 'resnet'"));
  EXPECT_THAT(message("{profile: 2g.10gb, runs: [{model: bert}]}"),
              HasSubstr("'bert' was not measured on 2g.10gb with 1 process"));
  EXPECT_THAT(message("{profile: 1g.5gb, runs: [{model: bert, processes: 3}]}"),
              HasSubstr("on 1g.5gb with 3 processes"));
  EXPECT_THAT(message("{profile: 1g.5gb, runs: [{model: bert, batch: 5}]}"),
              HasSubstr("measured up to 4 only"));
  EXPECT_THAT(message("{profile: 7g.40gb, runs: [{model: bert}, {model: bert}]}"),
              HasSubstr("line 6: 2 models share one 7g.40gb"));
  const auto whole = Build(
      "gpus:\n  - gpu: 0\n    kind: A100-40GB\n    mig: false\n"
      "    runs: [{model: bert}]\n");
  ASSERT_FALSE(whole);
  EXPECT_THAT(whole.error().message, HasSubstr("without MIG"));
}

}  // namespace
}  // namespace divvy::serving
