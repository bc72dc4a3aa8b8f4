#include "workload/fleet_learning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "workload/fleet.h"

namespace divvy::workload {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Result<Fleet> Parse(const std::string& learning) {
  return ParseFleet(
      "gpus: {kind: A100-80GB, count: 1}\nmodels:\n"
      "  - {name: m, profile: p.csv, slo: 20ms, load: {rate: 1}, learning: " +
          learning + "}\n",
      "f.yaml");
}

std::string ErrorOf(const std::string& learning) {
  const auto fleet = Parse(learning);
  return fleet ? "no error" : fleet.error().message;
}

const std::string kStart = "{accuracy: 0.82, drift: 0.05, speed: t.csv, ";

// The complaint about one entry of `options`.
std::string ErrorOfOption(const std::string& option) {
  return ErrorOf(kStart + "options: [" + option + "]}");
}

std::string ErrorOfCurve(const std::string& curve) {
  return ErrorOf(kStart + "curve: " + curve + "}");
}

TEST(FleetLearningTest, ReadsEveryKey) {
  const auto fleet = Parse(
      "{accuracy: 0.82, drift: 0.05, floor: 0.3, uncertainty: 0.01,\n"
      "  speed: {file: training.csv, model: net},\n"
      "  options: [{name: quick, samples: 8000, accuracy: 0.8},\n"
      "            {name: full, samples: 3e4, accuracy: 0.9}]}");
  ASSERT_TRUE(fleet) << fleet.error().message;
  const FleetLearning& read = *fleet->models.front().learning;
  EXPECT_EQ(read.learning.accuracy, 0.82);
  EXPECT_EQ(read.learning.drift_per_minute, 0.05);
  EXPECT_EQ(read.learning.floor, 0.3);
  EXPECT_EQ(read.learning.uncertainty, 0.01);
  EXPECT_EQ(read.speed.path, "training.csv");
  EXPECT_EQ(read.speed.line, 4);
  EXPECT_EQ(read.speed_model, "net");
  EXPECT_EQ(read.line, 3);
  ASSERT_EQ(read.learning.options.size(), 2U);
  EXPECT_EQ(read.learning.options[0].name, "quick");
  EXPECT_EQ(read.learning.options[0].samples, 8000);
  EXPECT_EQ(read.learning.options[0].accuracy, 0.8);
  EXPECT_EQ(read.learning.options[1].samples, 30'000);
}

TEST(FleetLearningTest, ACurveIsReadAsOptions) {
  const auto fleet =
      Parse(kStart + "curve: {start: 0.6, limit: 0.92, scale: 9000, at: [4000, 9000]}}");
  ASSERT_TRUE(fleet) << fleet.error().message;
  const Learning& learning = fleet->models.front().learning->learning;
  EXPECT_EQ(learning.floor, 0);
  EXPECT_EQ(learning.uncertainty, 0);
  ASSERT_EQ(learning.options.size(), 2U);
  EXPECT_EQ(learning.options[1].name, "9000");
  EXPECT_NEAR(learning.options[1].accuracy, 0.8023, 1e-4);
  EXPECT_EQ(fleet->models.front().learning->speed_model, "m");
}

TEST(FleetLearningTest, WithoutTheKeyAModelDoesNotLearn) {
  const auto fleet = ParseFleet(
      "gpus: {kind: A100-80GB, count: 1}\n"
      "models: [{name: m, profile: p.csv, slo: 20ms, load: {rate: 1}}]\n",
      "f.yaml");
  ASSERT_TRUE(fleet) << fleet.error().message;
  EXPECT_FALSE(fleet->models.front().learning);
}

TEST(FleetLearningTest, ErrorsNameLineValueAndWhatWouldBeRight) {
  EXPECT_THAT(ErrorOf("0.8"), StartsWith("f.yaml:3: learning is a mapping with the keys accuracy"));
  EXPECT_EQ(ErrorOf("{drift: 0, speed: t, options: []}"),
            "f.yaml:3: learning needs the key 'accuracy'");
  EXPECT_EQ(ErrorOf("{accuracy: 1, speed: t, options: []}"),
            "f.yaml:3: learning needs the key 'drift'");
  EXPECT_EQ(ErrorOf("{accuracy: 1, drift: 0, options: []}"),
            "f.yaml:3: learning needs the key 'speed'");
  EXPECT_EQ(ErrorOf("{accuracy: 82, drift: 0, speed: t, options: []}"),
            "f.yaml:3: accuracy: '82' is not a number from 0 to 1");
  EXPECT_EQ(ErrorOf("{accuracy: 0.8, drift: -1, speed: t, options: []}"),
            "f.yaml:3: drift: '-1' is not a number from 0 to 100");
  EXPECT_EQ(ErrorOf("{accuracy: 0.8, drift: 1, floor: 0.9, speed: t, options: []}"),
            "f.yaml:3: floor: '0.9' is above accuracy, 0.8");
  EXPECT_EQ(ErrorOf("{accuracy: 0.8, drift: 1, speed: {model: x}, options: []}"),
            "f.yaml:3: speed needs the key 'file'");
  EXPECT_EQ(ErrorOf("{accuracy: 0.8, drift: 1, speed: t, option: []}"),
            "f.yaml:3: learning has no key 'option'; did you mean 'options'?");
  constexpr const char* kOneOf = "f.yaml:3: learning needs one of the keys 'options' and 'curve'";
  EXPECT_EQ(ErrorOf(kStart + "uncertainty: 0}"), kOneOf);
  EXPECT_EQ(ErrorOf(kStart + "options: [], curve: {}}"), kOneOf);
  EXPECT_EQ(ErrorOf(kStart + "options: []}"),
            "f.yaml:3: options: 0; there is 1 at least and at most 1000");
  EXPECT_THAT(ErrorOf(kStart + "options: 3}"), HasSubstr("options: is a list"));
  EXPECT_EQ(ErrorOf(kStart + "uncertainty: 2, options: [{name: a, samples: 1, accuracy: 1}]}"),
            "f.yaml:3: uncertainty: '2' is not a number from 0 to 1");
}

TEST(FleetLearningTest, ErrorsOfOptions) {
  EXPECT_EQ(ErrorOfOption("{samples: 1, accuracy: 1}"),
            "f.yaml:3: an option of retraining needs the key 'name'");
  EXPECT_EQ(ErrorOfOption("{name: a, accuracy: 1}"),
            "f.yaml:3: an option of retraining needs the key 'samples'");
  EXPECT_EQ(ErrorOfOption("{name: a, samples: 1}"),
            "f.yaml:3: an option of retraining needs the key 'accuracy'");
  EXPECT_EQ(ErrorOfOption("{name: a, samples: 0, accuracy: 1}"),
            "f.yaml:3: samples: '0' is not a number from 1 to 1000000000000000");
  EXPECT_EQ(ErrorOfOption("{name: a, samples: 1, accuracy: 1.5}"),
            "f.yaml:3: accuracy: '1.5' is not a number from 0 to 1");
  EXPECT_EQ(ErrorOfOption("{name: a, samples: 1, accuracy: 1},\n   "
                          "{name: a, samples: 2, accuracy: 1}"),
            "f.yaml:4: the option 'a' appears twice; it stands on line 3 already");
}

TEST(FleetLearningTest, ErrorsOfACurve) {
  EXPECT_EQ(ErrorOfCurve("{limit: 1, scale: 1, at: [1]}"), "f.yaml:3: curve needs the key 'start'");
  EXPECT_EQ(ErrorOfCurve("{start: 0, scale: 1, at: [1]}"), "f.yaml:3: curve needs the key 'limit'");
  EXPECT_EQ(ErrorOfCurve("{start: 0, limit: 1, at: [1]}"), "f.yaml:3: curve needs the key 'scale'");
  EXPECT_EQ(ErrorOfCurve("{start: 0, limit: 1, scale: 1}"), "f.yaml:3: curve needs the key 'at'");
  EXPECT_EQ(ErrorOfCurve("{start: 0.9, limit: 0.8, scale: 1, at: [1]}"),
            "f.yaml:3: limit: '0.8' is below start, 0.9; training does not make a model worse");
  EXPECT_EQ(ErrorOfCurve("{start: 0, limit: 1, scale: 0, at: [1]}"),
            "f.yaml:3: scale: '0' is not a number from 1 to 1000000000000000");
  EXPECT_EQ(ErrorOfCurve("{start: 0, limit: 1, scale: 1, at: []}"),
            "f.yaml:3: at: 0; there is 1 at least and at most 1000");
  EXPECT_EQ(ErrorOfCurve("{start: 0, limit: 1, scale: 1, at: [5, 5]}"),
            "f.yaml:3: at: '5' does not exceed 5, the one before; numbers of samples ascend");
}

}  // namespace
}  // namespace divvy::workload
