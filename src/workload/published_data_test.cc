#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "gpu/catalogue.h"
#include "workload/profile_import.h"
#include "workload/trace_file.h"

// Other people's tables as they are, where the machine has them: DIVVY_DATA names
// a folder with parvagpu_a100_mig_mps/profiles.csv and so on.

namespace divvy::workload {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::optional<std::string> Published(const std::string& path) {
  const char* folder = std::getenv("DIVVY_DATA");
  if (folder == nullptr) return std::nullopt;
  std::ifstream file(std::string(folder) + "/" + path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

#define READ_OR_SKIP(name, path)     \
  const auto name = Published(path); \
  if (!name) GTEST_SKIP() << "DIVVY_DATA has no file " << path

const ProfileCurve* Curve(const Imported& imported, std::string_view model, std::string_view size,
                          int processes) {
  for (const ModelProfile& profile : imported.models) {
    for (const ProfileCurve& curve : profile.curves) {
      if (profile.model == model && Describe(curve.size) == size && curve.processes == processes) {
        return &curve;
      }
    }
  }
  return nullptr;
}

TEST(PublishedDataTest, ParvaGpuTableIsRead) {
  READ_OR_SKIP(text, "parvagpu_a100_mig_mps/profiles.csv");
  const auto imported = ImportProfiles(ForeignTable::kParvaGpu, *text, "profiles.csv");
  ASSERT_TRUE(imported) << imported.error().message;
  EXPECT_EQ(imported->models.size(), 11U);
  EXPECT_THAT(imported->notes.front(), StartsWith("728 rows left out: out of memory or not run"));
  EXPECT_TRUE(gpu::FindGpuModel(imported->models.front().gpu));
  // About 4.7 to 5.1 ms at batch 1 on every slice, says its description.
  for (const char* size : {"1g", "2g", "3g", "4g", "7g"}) {
    const ProfileCurve* curve = Curve(*imported, "resnet50", size, 1);
    ASSERT_NE(curve, nullptr);
    EXPECT_NEAR(*curve->LatencyMs(1), 4.9, 0.3) << size;
  }
}

TEST(PublishedDataTest, ParvaGpuOutliersAreLeftOutAndFewOthers) {
  READ_OR_SKIP(text, "parvagpu_a100_mig_mps/profiles.csv");
  const auto imported = ImportProfiles(ForeignTable::kParvaGpu, *text, "profiles.csv");
  ASSERT_TRUE(imported) << imported.error().message;
  EXPECT_EQ(Curve(*imported, "densenet169", "3g", 1)->largest_batch(), 64);
  EXPECT_EQ(Curve(*imported, "densenet169", "4g", 1)->largest_batch(), 64);
  EXPECT_EQ(Curve(*imported, "densenet169", "7g", 1)->largest_batch(), 256);
  EXPECT_THAT(imported->notes,
              Contains(StartsWith("densenet169 on 3g, 1 process, batch 128: 1461")));
  EXPECT_THAT(imported->notes,
              Contains(StartsWith("densenet169 on 4g, 1 process, batch 128: 1619")));
  int outliers = 0;
  int copies = 0;
  for (const std::string& note : imported->notes) {
    outliers += note.find("had flattened") != std::string::npos ? 1 : 0;
    copies += note.find("digit for digit") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(outliers, 3);  // The third: densenet169 on 7g, 2 processes, twice the curve.
  EXPECT_EQ(copies, 9);
}

TEST(PublishedDataTest, ParvaGpuTableSurvivesItsOwnForm) {
  READ_OR_SKIP(text, "parvagpu_a100_mig_mps/profiles.csv");
  const auto imported = ImportProfiles(ForeignTable::kParvaGpu, *text, "profiles.csv");
  ASSERT_TRUE(imported) << imported.error().message;
  const auto file = ParseProfiles(FormatProfiles(imported->models), "p.csv");
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ(file->models.size(), imported->models.size());
  std::size_t points = 0;
  for (std::size_t m = 0; m < file->models.size(); ++m) {
    ASSERT_EQ(file->models[m].curves.size(), imported->models[m].curves.size());
    for (std::size_t c = 0; c < file->models[m].curves.size(); ++c) {
      points += file->models[m].curves[c].points.size();
    }
  }
  EXPECT_EQ(points, 1747U - 3 - 9);
  for (const Finding& finding : file->findings) {
    EXPECT_NE(finding.kind, Finding::Kind::kOutlier) << finding.message;
  }
}

TEST(PublishedDataTest, MigPerfTableIsRead) {
  READ_OR_SKIP(text, "migperf_a100_mig/long.csv");
  const auto imported = ImportProfiles(ForeignTable::kMigPerf, *text, "long.csv");
  ASSERT_TRUE(imported) << imported.error().message;
  for (const std::string& note : imported->notes) {
    EXPECT_THAT(note, Not(HasSubstr("had flattened")));
  }
  const ProfileCurve* bert = Curve(*imported, "bert-base@seq64", "3g.40gb", 1);
  ASSERT_NE(bert, nullptr);
  EXPECT_TRUE(bert->points.front().utilization);
  EXPECT_TRUE(bert->MemoryMib(32));
  EXPECT_NE(Curve(*imported, "bert-base@seq512", "1g.10gb", 1), nullptr);
  EXPECT_NE(Curve(*imported, "vision_transformer", "7g.80gb", 1), nullptr);
  // ResNet50 at batch 32, as its description states.
  EXPECT_NEAR(*Curve(*imported, "resnet50", "1g.10gb", 1)->LatencyMs(32), 83.7, 0.1);
  EXPECT_TRUE(ParseProfiles(FormatProfiles(imported->models), "p.csv"));
}

TEST(PublishedDataTest, AzureTracesAreRead) {
  READ_OR_SKIP(text, "azure_llm_inference_2023/AzureLLMInferenceTrace_conv.csv");
  const auto trace = ParseTrace(*text, "conv.csv");
  ASSERT_TRUE(trace) << trace.error().message;
  ASSERT_EQ(trace->models.size(), 1U);
  EXPECT_EQ(trace->models[0].arrivals.size(), 19'366U);
  EXPECT_NEAR(Seconds(trace->length), 3600, 120);
  const auto batches = BatchesOf(trace->models[0]);
  ASSERT_TRUE(batches);
  EXPECT_GT(batches->mean(), 1);
}

}  // namespace
}  // namespace divvy::workload
