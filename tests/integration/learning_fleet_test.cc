// Fleets whose load has a shape and whose models learn, as a user meets them: notes,
// errors about the files they name, and the scenarios made of published data.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "simulated_node.h"

namespace divvy::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

const std::string kScript = DIVVY_SOURCE_DIR "/bench/scenarios/make_scenarios.py";

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class LearningFleetTest : public ::testing::Test {
 protected:
  LearningFleetTest() {
    node_.Write("profiles.csv",
                "model,partition,batch,latency_ms,gpu,source\n"
                "net,1g,1,10,A100-80GB,made up\nnet,7g,8,8,A100-80GB,made up\n");
    Training("net,1g,100,,A100-80GB,made up\nnet,1g,90,,A100-40GB,made up\n");
  }

  void Training(const std::string& rows) const {
    node_.Write("training.csv", "model,size,samples_per_s,memory_mib,gpu,source\n" + rows);
  }

  // A fleet of one model on an A100; `speed` of its learning, and its load.
  std::string OneModel(const std::string& speed, const std::string& load = "{rate: 10}") const {
    return node_.Write("fleet.yaml",
                       "gpus: {kind: A100-80GB, count: auto}\nmodels:\n  - name: net\n"
                       "    profile: profiles.csv\n    slo: 100ms\n    load: " +
                           load + "\n    learning: {accuracy: 0.8, drift: 0.05, speed: " + speed +
                           ",\n      options: [{name: full, samples: 900, accuracy: 0.9}]}\n");
  }

  json PlanJson(const std::string& fleet) const {
    const Finished planned = node_.Divvy({"plan", fleet, "--no-compare", "-o", "json"});
    EXPECT_THAT(planned.err, IsEmpty());
    return json::parse(planned.out);
  }

  std::vector<std::string> NotesOf(const std::string& fleet) const {
    return PlanJson(fleet).at("notes").get<std::vector<std::string>>();
  }

  void ExpectRefused(const std::string& fleet, const std::string& message) const {
    const Finished refused = node_.Divvy({"plan", fleet});
    EXPECT_EQ(refused.exit_status, 2) << refused.out;
    EXPECT_THAT(refused.out, IsEmpty());
    EXPECT_THAT(refused.err, AllOf(StartsWith("divvy: "), HasSubstr(message)));
  }

  SimulatedNode node_;
};

TEST_F(LearningFleetTest, AShapeIsPlannedForItsMeanAndSimulatedAsItIs) {
  const std::string fleet =
      OneModel("training.csv", "{rate: 20, shape: {step: 10s, factors: [0.5, 1, 4.5]}}");
  const json report = PlanJson(fleet);
  EXPECT_EQ(report.at("models").at(0).at("rate_rps"), 40);
  EXPECT_THAT(report.at("notes").get<std::vector<std::string>>(),
              Contains("net: its rate swings from 10/s to 90/s; it is planned for the mean, 40/s"));

  const Finished played =
      node_.Divvy({"simulate", fleet, "--duration", "10s", "--route", "divvy", "-o", "json"});
  ASSERT_EQ(played.exit_status, 0) << played.err;
  // The first step has 10 a second.
  EXPECT_NEAR(json::parse(played.out).at("rows").at(0).at("offered").get<double>(), 100, 50);
}

TEST_F(LearningFleetTest, NotesSayWhereTrainingSpeedsComeFrom) {
  EXPECT_THAT(NotesOf(OneModel("training.csv")),
              Contains("training speeds of net: made up"));  // Of its own kind of GPU.
  Training("net,1g,90,,A100-40GB,\"theirs, 2022\"\n");
  EXPECT_THAT(NotesOf(OneModel("training.csv")),
              Contains("training speeds of net: theirs, 2022; measured on A100-40GB, not on "
                       "A100-80GB"));
}

TEST_F(LearningFleetTest, FilesThatDoNotFitAreRefusedWithFileAndLine) {
  ExpectRefused(OneModel("nowhere.csv"), "fleet.yaml:7: cannot read");
  ExpectRefused(OneModel("-"), "fleet.yaml:7: '-', standard input, is for the fleet alone");
  ExpectRefused(OneModel("{file: training.csv, model: nett}"),
                "training.csv has no model 'nett'; did you mean 'net'?");
  Training("net,1g,fast,,,\n");
  ExpectRefused(OneModel("training.csv"), "training.csv:2: samples_per_s: 'fast' is not a number");
  Training("net,5g,10,,,\n");
  ExpectRefused(OneModel("training.csv"),
                "training.csv has no speed of 'net' that speaks for an instance of A100-80GB");
  Training("net,7g,10,999999,,\n");  // More memory than there is.
  ExpectRefused(OneModel("training.csv"),
                "training.csv has no speed of 'net' that speaks for an instance of A100-80GB");
}

TEST_F(LearningFleetTest, TheExampleFitsItsGpuAtTheMean) {
  const json report = PlanJson(DIVVY_SOURCE_DIR "/examples/fleets/continuous-learning.yaml");
  EXPECT_EQ(report.at("feasible"), true);
  EXPECT_EQ(report.at("gpus"), 1);
}

TEST_F(LearningFleetTest, ScenariosOfPublishedDataAreTheSameEachTimeAndCanBePlanned) {
  const char* data = std::getenv("DIVVY_DATA");
  if (data == nullptr) GTEST_SKIP() << "DIVVY_DATA names no folder with published data";
  const std::filesystem::path dir = node_.dir();
  const auto make = [&](const char* folder) {
    return RunProgram({"/usr/bin/env", "python3", kScript, "--data", data, "--out", dir / folder,
                       "--divvy", DIVVY_PATH},
                      {});
  };
  const Finished made = make("first");
  ASSERT_EQ(made.exit_status, 0) << made.err;
  EXPECT_THAT(made.err, IsEmpty());
  ASSERT_EQ(make("second").exit_status, 0);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir / "first")) {
    const std::string name = entry.path().filename();
    ++files;
    EXPECT_THAT(made.out, HasSubstr(entry.path().string() + "\n"));
    EXPECT_EQ(ReadAll(entry.path()), ReadAll(dir / "second" / name)) << name;
    if (entry.path().extension() != ".yaml") continue;
    const Finished planned =
        node_.Divvy({"plan", entry.path().string(), "--policy", "parvagpu", "--no-compare"});
    EXPECT_THAT(planned.err, IsEmpty()) << name;
    EXPECT_THAT(planned.out, HasSubstr("training speeds of ")) << name;
  }
  EXPECT_EQ(files, 5);
}

}  // namespace
}  // namespace divvy::test
