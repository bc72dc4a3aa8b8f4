#include "workload/fleet_serve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace divvy::workload {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<Fleet> ParseWith(const std::string& serve) {
  return ParseFleet(
      "gpus: {kind: A100-80GB, count: 1}\n"
      "models:\n"
      "  - name: m\n"
      "    profile: p.csv\n"
      "    slo: 20ms\n"
      "    load: {rate: 1}\n" +
          (serve.empty() ? "" : "    serve: " + serve + "\n"),
      "fleet.yaml");
}

TEST(FleetServeTest, IsSyntheticUnlessSaidOtherwise) {
  const auto fleet = ParseWith("");
  ASSERT_TRUE(fleet) << fleet.error().message;
  EXPECT_EQ(fleet->models[0].serve.engine, "synthetic");
  EXPECT_FALSE(fleet->models[0].serve.artifact);
  EXPECT_TRUE(fleet->models[0].serve.inputs.empty());
}

TEST(FleetServeTest, ReadsArtifactAndTensors) {
  const auto fleet = ParseWith(
      "{artifact: m.pt, inputs: [{name: x, dims: [3, -1]}], outputs: [{name: y, type: INT64, dims: "
      "[]}]}");
  ASSERT_TRUE(fleet) << fleet.error().message;
  const FleetServe& serve = fleet->models[0].serve;
  EXPECT_EQ(serve.engine, "torch");
  EXPECT_EQ(serve.artifact->path, "m.pt");
  EXPECT_EQ(serve.inputs[0].type, "FP32");
  EXPECT_THAT(serve.inputs[0].dims, ElementsAre(3, -1));
  EXPECT_EQ(serve.outputs[0].type, "INT64");
  EXPECT_THAT(serve.outputs[0].dims, ElementsAre());
}

TEST(FleetServeTest, RefusesWhatCannotBeMeant) {
  const std::pair<const char*, const char*> cases[] = {
      {"{engine: torch}", "fleet.yaml:7: serve: the engine torch needs an artifact"},
      {"{artefact: m.pt}", "artifact"},
      {"{url: https://h}", "does not begin with http://"},
      {"{url: http://}", "does not begin with http://"},
      {"{url: http://h, engine: synthetic}", "has no engine"},
      {"{inputs: []}", "inputs: 0; 1 to 64"},
      {"{inputs: [{name: x, dims: [0]}]}", "empty tensor"},
      {"{inputs: [{name: x, dims: [-2]}]}", "-1"},
      {"{inputs: [{name: x, type: fp32, dims: [1]}]}", "FP32"},
      {"{inputs: [{name: 'a:b', dims: [1]}]}", "colon"},
      {"{inputs: [{dims: [1]}]}", "name"},
      {"{inputs: [{name: x, dims: [1,1,1,1,1,1,1,1,1]}]}", "at most 8"},
  };
  for (const auto& [text, says] : cases) {
    const auto fleet = ParseWith(text);
    ASSERT_FALSE(fleet) << text;
    EXPECT_THAT(fleet.error().message, HasSubstr(says)) << text;
  }
}

}  // namespace
}  // namespace divvy::workload
