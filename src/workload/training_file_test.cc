#include "workload/training_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "gpu/catalogue.h"

namespace divvy::workload {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string ErrorOf(std::string_view text) {
  const auto file = ParseTraining(text, "t.csv");
  if (file) return "no error";
  EXPECT_EQ(file.error().code, ErrorCode::kInvalidArgument);
  return file.error().message;
}

constexpr std::string_view kHeader = "model,size,samples_per_s\n";

std::string ErrorOfRow(std::string_view row) {
  return ErrorOf(std::string(kHeader) + std::string(row));
}

TEST(TrainingFileTest, ColumnsMayStandInAnyOrder) {
  const auto file = ParseTraining(
      "samples_per_s,gpu,model,source,size,memory_mib\n"
      "900.5,A100-80GB,vit,\"us, today\",7g,30000\n"
      "300,A100-80GB,vit,\"us, today\",2g,\n"
      "12,,bert,,1g.10gb,\n"
      "40,A100-40GB,vit,,1g,\n",
      "t.csv");
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ(file->models.size(), 3U);
  EXPECT_EQ(file->models[0].model, "bert");
  EXPECT_EQ(file->models[0].gpu, "");
  EXPECT_EQ(file->models[0].source, "");
  EXPECT_EQ(file->Find("vit")->gpu, "A100-40GB");  // The first of two.
  EXPECT_EQ(file->Find("gpt"), nullptr);
  const TrainingSpeeds& vit = file->models[2];
  EXPECT_EQ(vit.gpu, "A100-80GB");
  EXPECT_EQ(vit.source, "us, today");
  ASSERT_EQ(vit.speeds.size(), 2U);
  EXPECT_EQ(Describe(vit.speeds[0].size), "2g");
  EXPECT_EQ(vit.speeds[0].memory_mib, std::nullopt);
  EXPECT_EQ(vit.speeds[1].samples_per_second, 900.5);
  EXPECT_EQ(vit.speeds[1].memory_mib, 30000);
  EXPECT_EQ(vit.speeds[1].row, 2);
}

TEST(TrainingFileTest, SpeedOfAnInstanceIsTheBestMatch) {
  const gpu::GpuModel& gpu = **gpu::FindGpuModel("A100-80GB");
  const auto on = [&](const TrainingSpeeds& speeds, std::string_view profile) {
    return speeds.SamplesPerSecond(gpu, *gpu.FindProfile(profile));
  };
  const auto file = ParseTraining(
      std::string(kHeader) + "m,1g,10\nm,1g.20gb,11\nm,3g.40gb,30\nm,3g,31\nm,98sm,70\n", "t.csv");
  ASSERT_TRUE(file) << file.error().message;
  const TrainingSpeeds& speeds = file->models.front();
  EXPECT_EQ(on(speeds, "1g.10gb"), 10);
  EXPECT_EQ(on(speeds, "1g.20gb"), 11);
  EXPECT_EQ(on(speeds, "3g.40gb"), 30);
  EXPECT_EQ(on(speeds, "2g.20gb"), std::nullopt);
  EXPECT_EQ(on(speeds, "1g.10gb+me"), std::nullopt);
  EXPECT_EQ(on(speeds, "7g.80gb"), 70);
}

TEST(TrainingFileTest, AnInstanceWithTooLittleMemoryTrainsNothing) {
  const gpu::GpuModel& gpu = **gpu::FindGpuModel("A100-80GB");
  const int available = *gpu.profile(*gpu.FindProfile("1g.10gb")).memory_mib;
  const auto speed = [&](int memory_mib) {
    const auto file = ParseTraining(
        "model,size,samples_per_s,memory_mib\nm,1g,10," + std::to_string(memory_mib) + "\n", "t");
    return file->models.front().SamplesPerSecond(gpu, *gpu.FindProfile("1g.10gb"));
  };
  EXPECT_EQ(speed(available), 10);
  EXPECT_EQ(speed(available + 1), std::nullopt);
}

TEST(TrainingFileTest, ErrorsNameLineValueAndWhatWouldBeRight) {
  EXPECT_EQ(ErrorOf(""), "t.csv: the file is empty; its first line names the columns");
  EXPECT_EQ(ErrorOf(kHeader), "t.csv:1: the header is followed by no measurements");
  EXPECT_EQ(ErrorOf("model,size\n"), "t.csv:1: a training file needs the column 'samples_per_s'");
  EXPECT_EQ(ErrorOf("model,size,samples_per_s,memory\n"),
            "t.csv:1: a training file has no column 'memory'; it may have model, size, "
            "samples_per_s, memory_mib, gpu or source");
  EXPECT_EQ(ErrorOfRow("m,1g,0\n"),
            "t.csv:2: samples_per_s: '0' is not a number from 1e-06 to 1000000000000");
  EXPECT_THAT(ErrorOfRow("m,1g,nan\n"), HasSubstr("samples_per_s: 'nan' is not a number"));
  EXPECT_THAT(ErrorOfRow("m,1g,\n"), HasSubstr("samples_per_s: '' is not a number"));
  EXPECT_THAT(ErrorOfRow(",1g,1\n"), StartsWith("t.csv:2: model: '' is not a name"));
  EXPECT_THAT(ErrorOfRow("m,1x,1\n"), StartsWith("t.csv:2: size: '1x' is not a partition"));
  EXPECT_EQ(ErrorOfRow("m,1g\n"), "t.csv:2: 2 fields, but the header has 3");
  EXPECT_EQ(ErrorOfRow("m,1g,4\nm,2g,5\nm,1g,6\n"), "t.csv:4: 'm' on 1g stands on line 2 already");
  EXPECT_THAT(ErrorOf("model,size,samples_per_s,memory_mib\nm,1g,1,-5\n"),
              HasSubstr("memory_mib: '-5' is not a number from 0"));
  EXPECT_THAT(ErrorOf("model,size,samples_per_s,source\nm,1g,1,a\nm,2g,1,b\n"),
              StartsWith("t.csv:3: source: 'b' is another than 'a' on line 2"));
}

}  // namespace
}  // namespace divvy::workload
