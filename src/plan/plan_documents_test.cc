// The examples and the format's documentation, read by the code they describe.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "plan/mig_parted.h"
#include "plan/plan_file.h"
#include "plan/validate.h"

namespace divvy::plan {
namespace {

namespace fs = std::filesystem;

std::string Contents(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The blocks of a Markdown file that begin with ```LANGUAGE.
std::vector<std::string> Blocks(const std::string& markdown, const std::string& language) {
  std::vector<std::string> blocks;
  const std::string open = "```" + language + "\n";
  for (std::size_t at = markdown.find(open); at != std::string::npos;) {
    at += open.size();
    const std::size_t end = markdown.find("```", at);
    blocks.push_back(markdown.substr(at, end - at));
    at = markdown.find(open, end);
  }
  return blocks;
}

void ExpectValid(const std::string& text, const std::string& name) {
  const auto plan = ParsePlan(text, name);
  ASSERT_TRUE(plan) << plan.error().message;
  for (const Problem& problem : Validate(*plan)) ADD_FAILURE() << Describe(problem, name);
  EXPECT_FALSE(plan->gpus.empty()) << name;
}

TEST(PlanDocumentsTest, EveryExampleIsAValidPlan) {
  int examples = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(DIVVY_SOURCE_DIR) / "examples/plans")) {
    if (entry.path().extension() != ".yaml") continue;
    ExpectValid(Contents(entry.path()), entry.path().filename().string());
    ++examples;
  }
  EXPECT_GE(examples, 3);
}

TEST(PlanDocumentsTest, EveryPlanInTheDocumentationIsValid) {
  const auto blocks = Blocks(Contents(fs::path(DIVVY_SOURCE_DIR) / "docs/formats/plan.md"), "yaml");
  EXPECT_GE(blocks.size(), 3U);
  for (const std::string& block : blocks) ExpectValid(block, "plan.md");
}

TEST(PlanDocumentsTest, TheMigPartedPageShowsWhatIsWritten) {
  const auto blocks =
      Blocks(Contents(fs::path(DIVVY_SOURCE_DIR) / "docs/formats/mig-parted.md"), "yaml");
  ASSERT_EQ(blocks.size(), 2U);
  const auto plan = ParsePlan(blocks[0], "mig-parted.md");
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(ExportMigParted(*plan, "inference"), blocks[1]);
}

}  // namespace
}  // namespace divvy::plan
