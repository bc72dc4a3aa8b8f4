#include "plan/plan_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace divvy::plan {
namespace {

TEST(PlanJsonTest, HasTheKeysOfTheFile) {
  Plan plan;
  plan.gpus = {{.gpu = 2, .kind = "H200-141GB"},
               {.gpu = "GPU-ab",
                .kind = "A30-24GB",
                .mig = false,
                .runs = {{.kind = Assignment::Kind::kJob, .name = "j"}}}};
  plan.gpus[0].instances = {{"3g.71gb",
                             4,
                             {{.kind = Assignment::Kind::kModel,
                               .name = "m",
                               .processes = 2,
                               .batch = 8,
                               .mps_share = 50}}},
                            {"1g.18gb"}};
  EXPECT_EQ(ToJson(plan), nlohmann::ordered_json::parse(R"({
    "version": 1,
    "gpus": [
      {"gpu": 2, "kind": "H200-141GB", "mig": true, "instances": [
        {"profile": "3g.71gb", "start": 4,
         "runs": [{"model": "m", "processes": 2, "batch": 8, "mps_share": 50}]},
        {"profile": "1g.18gb", "start": null, "runs": []}]},
      {"gpu": "GPU-ab", "kind": "A30-24GB", "mig": false,
       "runs": [{"job": "j", "processes": 1}]}
    ]})"));
}

TEST(PlanJsonTest, ListsAreListsWhenEmpty) {
  Plan plan;
  EXPECT_EQ(ToJson(plan).dump(), R"({"version":1,"gpus":[]})");
  plan.gpus = {{.gpu = 0, .kind = "A30-24GB"}, {.gpu = 1, .kind = "A30-24GB", .mig = false}};
  EXPECT_EQ(ToJson(plan)["gpus"][0]["instances"].dump(), "[]");
  EXPECT_EQ(ToJson(plan)["gpus"][1]["runs"].dump(), "[]");
}

}  // namespace
}  // namespace divvy::plan
