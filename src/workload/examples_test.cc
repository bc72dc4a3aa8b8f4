#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "workload/fleet.h"
#include "workload/profile_file.h"
#include "workload/trace_file.h"
#include "workload/training_file.h"

// The files that people start from: examples/fleets, and the YAML in the formats'
// descriptions.

namespace divvy::workload {
namespace {

const std::filesystem::path kExamples = std::string(DIVVY_SOURCE_DIR) + "/examples/fleets";
const std::filesystem::path kFormats = std::string(DIVVY_SOURCE_DIR) + "/docs/formats";

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// The blocks of a format's description that begin with ```LANGUAGE.
std::vector<std::string> Blocks(const std::string& name, const std::string& language) {
  const std::string text = ReadFile(kFormats / name);
  const std::string open = "```" + language + "\n";
  std::vector<std::string> blocks;
  for (std::size_t at = text.find(open); at != std::string::npos; at = text.find(open, at)) {
    at += open.size();
    blocks.push_back(text.substr(at, text.find("```", at) - at));
  }
  return blocks;
}

bool IsTraining(const std::filesystem::path& path) {
  return path.stem().string().ends_with("training");
}

TEST(ExamplesTest, EveryProfileIsReadWithoutFindings) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kExamples)) {
    if (entry.path().extension() != ".csv" || IsTraining(entry.path())) continue;
    ++count;
    const auto file = ParseProfiles(ReadFile(entry.path()), entry.path().string());
    ASSERT_TRUE(file) << file.error().message;
    for (const Finding& finding : file->findings) ADD_FAILURE() << finding.message;
    for (const ModelProfile& model : file->models) {
      EXPECT_EQ(model.source, "made up for the example");
    }
  }
  EXPECT_EQ(count, 2);
}

TEST(ExamplesTest, EveryFleetIsReadAndItsProfilesHaveItsModels) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kExamples)) {
    if (entry.path().extension() != ".yaml") continue;
    ++count;
    const auto fleet = ParseFleet(ReadFile(entry.path()), entry.path().string());
    ASSERT_TRUE(fleet) << fleet.error().message;
    for (const FleetModel& model : fleet->models) {
      const auto profiles = ParseProfiles(ReadFile(kExamples / model.profile.path), "p.csv");
      ASSERT_TRUE(profiles) << profiles.error().message;
      const ModelProfile* profile = profiles->Find(model.profile_model);
      ASSERT_NE(profile, nullptr) << model.profile_model;
      EXPECT_EQ(profile->gpu, fleet->gpus.kind);
      if (!model.learning) continue;
      const auto training =
          ParseTraining(ReadFile(kExamples / model.learning->speed.path), "t.csv");
      ASSERT_TRUE(training) << training.error().message;
      const TrainingSpeeds* speeds = training->Find(model.learning->speed_model);
      ASSERT_NE(speeds, nullptr) << model.learning->speed_model;
      EXPECT_EQ(speeds->gpu, fleet->gpus.kind);
      EXPECT_EQ(speeds->source, "made up for the example");
    }
  }
  EXPECT_EQ(count, 5);
}

TEST(ExamplesTest, EveryFleetInTheDocumentsIsRead) {
  const auto blocks = Blocks("fleet.md", "yaml");
  EXPECT_EQ(blocks.size(), 5U);
  for (const std::string& block : blocks) {
    const auto fleet = ParseFleet(block, "fleet.md");
    EXPECT_TRUE(fleet) << fleet.error().message << "\n" << block;
  }
}

TEST(ExamplesTest, EveryTableInTheDocumentsIsRead) {
  const auto profiles = Blocks("profile.md", "csv");
  EXPECT_EQ(profiles.size(), 1U);
  for (const std::string& block : profiles) {
    const auto file = ParseProfiles(block, "profile.md");
    EXPECT_TRUE(file) << file.error().message;
  }
  const auto training = Blocks("training.md", "csv");
  EXPECT_EQ(training.size(), 1U);
  for (const std::string& block : training) {
    const auto file = ParseTraining(block, "training.md");
    EXPECT_TRUE(file) << file.error().message;
  }
  const auto traces = Blocks("trace.md", "csv");
  EXPECT_EQ(traces.size(), 2U);
  for (const std::string& block : traces) {
    const auto trace = ParseTrace(block, "trace.md");
    EXPECT_TRUE(trace) << trace.error().message;
  }
}

}  // namespace
}  // namespace divvy::workload
