#include "workload/profile_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/random.h"

namespace divvy::workload {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string ErrorOf(std::string_view text) {
  const auto file = ParseProfiles(text, "p.csv");
  if (file) return "no error";
  EXPECT_EQ(file.error().code, ErrorCode::kInvalidArgument);
  return file.error().message;
}

constexpr std::string_view kHeader = "model,partition,batch,latency_ms\n";

std::string ErrorOfRow(std::string_view row) {
  return ErrorOf(std::string(kHeader) + std::string(row));
}

void ExpectEqual(const ProfilePoint& a, const ProfilePoint& b) {
  EXPECT_EQ(a.batch, b.batch);
  EXPECT_EQ(a.latency_ms, b.latency_ms);
  EXPECT_EQ(a.p95_ms, b.p95_ms);
  EXPECT_EQ(a.utilization, b.utilization);
  EXPECT_EQ(a.memory_mib, b.memory_mib);
  EXPECT_EQ(a.p50_ms, b.p50_ms);
  EXPECT_EQ(a.p99_ms, b.p99_ms);
  EXPECT_EQ(a.error, b.error);
  EXPECT_EQ(a.power_w, b.power_w);
}

// All but the rows, which are those of the file.
void ExpectEqual(const std::vector<ModelProfile>& a, const std::vector<ModelProfile>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t m = 0; m < a.size(); ++m) {
    EXPECT_EQ(a[m].model, b[m].model);
    EXPECT_EQ(a[m].gpu, b[m].gpu);
    EXPECT_EQ(a[m].source, b[m].source);
    ASSERT_EQ(a[m].curves.size(), b[m].curves.size());
    for (std::size_t c = 0; c < a[m].curves.size(); ++c) {
      EXPECT_EQ(a[m].curves[c].size, b[m].curves[c].size);
      EXPECT_EQ(a[m].curves[c].processes, b[m].curves[c].processes);
      ASSERT_EQ(a[m].curves[c].points.size(), b[m].curves[c].points.size());
      for (std::size_t p = 0; p < a[m].curves[c].points.size(); ++p) {
        ExpectEqual(a[m].curves[c].points[p], b[m].curves[c].points[p]);
      }
    }
  }
}

TEST(ProfileFileTest, ColumnsMayStandInAnyOrder) {
  const auto file = ParseProfiles(
      "latency_ms,batch,model,partition,processes,source,gpu,p95_ms,utilization,memory_mib,power_w,"
      "p99_ms,p50_ms\n"
      "20,8,vit,3g,2,\"us, today\",A100-80GB,22,0.5,900,310,23,19\n"
      "4.5,1,vit,3g,,\"us, today\",A100-80GB,,,,,,\n"
      "9,4,vit,1g.10gb,1,\"us, today\",A100-80GB,,,,,,\n"
      "1,1,bert,7g,1,,,,,,,,\n",
      "p.csv");
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ(file->models.size(), 2U);
  EXPECT_EQ(file->models[0].model, "bert");
  EXPECT_EQ(file->models[0].gpu, "");
  const ModelProfile& vit = file->models[1];
  EXPECT_EQ(vit.source, "us, today");
  EXPECT_EQ(vit.gpu, "A100-80GB");
  ASSERT_EQ(vit.curves.size(), 3U);
  EXPECT_EQ(Describe(vit.curves[0].size), "3g");
  EXPECT_EQ(vit.curves[0].processes, 1);
  EXPECT_EQ(vit.curves[1].processes, 2);
  const ProfilePoint& point = vit.curves[1].points.front();
  EXPECT_EQ(point.batch, 8);
  EXPECT_EQ(point.latency_ms, 20);
  EXPECT_EQ(point.p95_ms, 22);
  EXPECT_EQ(point.utilization, 0.5);
  EXPECT_EQ(point.memory_mib, 900);
  EXPECT_EQ(point.p50_ms, 19);
  EXPECT_EQ(point.p99_ms, 23);
  EXPECT_EQ(point.power_w, 310);
  EXPECT_EQ(point.row, 2);
  EXPECT_EQ(vit.curves[0].points.front().p95_ms, std::nullopt);
  EXPECT_EQ(file->Find("vit"), &vit);
  EXPECT_EQ(file->Find("gpt"), nullptr);
}

TEST(ProfileFileTest, RowsOfACurveAreSortedByBatch) {
  const auto file = ParseProfiles(std::string(kHeader) + "m,1g,8,3\nm,1g,1,1\nm,1g,2,2\n", "p.csv");
  ASSERT_TRUE(file);
  const auto& points = file->models.front().curves.front().points;
  EXPECT_EQ(points[0].batch, 1);
  EXPECT_EQ(points[1].batch, 2);
  EXPECT_EQ(points[2].batch, 8);
}

TEST(ProfileFileTest, OneModelOnTwoGpusIsTwoProfiles) {
  const auto file = ParseProfiles(
      "model,partition,batch,latency_ms,gpu\nm,1g,1,2,H200-141GB\nm,1g,1,3,A100-80GB\n", "p.csv");
  ASSERT_TRUE(file);
  ASSERT_EQ(file->models.size(), 2U);
  EXPECT_EQ(file->Find("m")->gpu, "A100-80GB");
}

TEST(ProfileFileTest, ErrorsNameLineValueAndWhatWouldBeRight) {
  EXPECT_EQ(ErrorOf(""), "p.csv: the file is empty; its first line names the columns");
  EXPECT_EQ(ErrorOf(kHeader), "p.csv:1: the header is followed by no measurements");
  EXPECT_EQ(ErrorOf("model,partition,batch\n"),
            "p.csv:1: a profile file needs the column 'latency_ms'");
  EXPECT_EQ(ErrorOf("model,partition,batch,latency_ms,utilisation\n"),
            "p.csv:1: a profile file has no column 'utilisation'; did you mean 'utilization'?");
  EXPECT_EQ(ErrorOfRow("m,1g,1,nan\n"),
            "p.csv:2: latency_ms: 'nan' is not a number from 1e-06 to 1000000000");
  EXPECT_THAT(ErrorOfRow("m,1g,1,0\n"), HasSubstr("latency_ms: '0' is not a number from 1e-06"));
  EXPECT_THAT(ErrorOfRow("m,1g,1,-1\n"), HasSubstr("latency_ms: '-1' is not a number"));
  EXPECT_THAT(ErrorOfRow("m,1g,1,\n"), HasSubstr("latency_ms: '' is not a number"));
  EXPECT_EQ(ErrorOfRow("m,1g,0,1\n"), "p.csv:2: batch: '0' is not a whole number from 1 to 65536");
  EXPECT_THAT(ErrorOfRow("m,1g,70000,1\n"), HasSubstr("batch: '70000' is not a whole number"));
  EXPECT_THAT(ErrorOfRow(",1g,1,1\n"), StartsWith("p.csv:2: model: '' is not a name"));
  EXPECT_THAT(ErrorOfRow("m,1x,1,1\n"), StartsWith("p.csv:2: partition: '1x' is not a partition"));
  EXPECT_EQ(ErrorOfRow("m,1g,1\n"), "p.csv:2: 3 fields, but the header has 4");
  EXPECT_EQ(ErrorOfRow("m,1g,4,1\nm,2g,4,1\nm,1g,4,2\n"),
            "p.csv:4: 'm' on 1g with batch 4 and 1 process stands on line 2 already");
  EXPECT_EQ(ErrorOf("model,partition,batch,latency_ms,utilization\nm,1g,1,1,50\n"),
            "p.csv:2: utilization: '50' is not a number from 0 to 1");
  EXPECT_EQ(ErrorOf("model,partition,batch,latency_ms,processes\nm,1g,1,1,0\n"),
            "p.csv:2: processes: '0' is not a whole number from 1 to 1000");
  EXPECT_THAT(ErrorOf("model,partition,batch,latency_ms,memory_mib\nm,1g,1,1,-5\n"),
              HasSubstr("memory_mib: '-5' is not a number from 0"));
  EXPECT_THAT(ErrorOf("model,partition,batch,latency_ms,source\nm,1g,1,1,a\nm,1g,2,1,b\n"),
              StartsWith("p.csv:3: source: 'b' is another than 'a' on line 2"));
}

TEST(ProfileFileTest, FindingsCarryTheRowsOfTheFile) {
  const auto file = ParseProfiles(std::string(kHeader) +
                                      "a,1g,1,10\na,1g,2,9\n"
                                      "b,1g,4,1\nb,1g,1,1\nb,2g,1,1\nb,2g,2,1\nb,2g,4,1\n",
                                  "p.csv");
  ASSERT_TRUE(file);
  ASSERT_EQ(file->findings.size(), 2U);
  EXPECT_EQ(file->findings[0].kind, Finding::Kind::kNotMonotone);
  EXPECT_EQ(file->findings[0].row, 3);
  EXPECT_EQ(file->findings[1].kind, Finding::Kind::kHole);
  EXPECT_EQ(file->findings[1].row, 4);
  EXPECT_THAT(file->findings[1].message, HasSubstr("batch 2 is not measured since 1"));
}

TEST(ProfileFileTest, UnusedColumnsAreNotWritten) {
  const auto file = ParseProfiles(std::string(kHeader) + "m,1g,1,0.1\n", "p.csv");
  ASSERT_TRUE(file);
  EXPECT_EQ(FormatProfiles(file->models), std::string(kHeader) + "m,1g,1,0.1\n");
  EXPECT_EQ(FormatProfiles({}), kHeader);
}

TEST(ProfileFileTest, RandomProfilesReadBackEqual) {
  Random random(5);
  const auto maybe = [&](double value) {
    return random.Below(2) == 0 ? std::optional<double>() : std::optional(value);
  };
  constexpr std::string_view kSizes[] = {"1g", "3g", "7g.80gb", "1g.10gb+me", "60sm"};
  for (int round = 0; round < 40; ++round) {
    std::vector<ModelProfile> models;
    for (const char* name : {"a, \"quoted\"", "b", "c"}) {
      ModelProfile model{.model = name,
                         .gpu = "A100-80GB",
                         .source = "here, \"now\" " + std::string(900, 'x'),
                         .curves = {}};
      for (const std::string_view size : kSizes) {
        ProfileCurve curve{.size = *ParsePartitionSize(size),
                           .processes = 1 + static_cast<int>(random.Below(3))};
        for (int batch = 1; batch <= 16; batch *= 2) {
          curve.points.push_back({.batch = batch,
                                  .latency_ms = random.Exponential() + 1e-3,
                                  .p95_ms = maybe(random.Exponential() + 1e-3),
                                  .utilization = maybe(random.Uniform()),
                                  .memory_mib = maybe(1e4 * random.Uniform()),
                                  .p50_ms = maybe(random.Exponential() + 1e-3),
                                  .p99_ms = maybe(random.Exponential() + 1e-3),
                                  .error = maybe(random.Uniform()),
                                  .power_w = maybe(700 * random.Uniform())});
        }
        model.curves.push_back(std::move(curve));
      }
      std::ranges::sort(model.curves, {}, [](const ProfileCurve& c) { return c.size; });
      models.push_back(std::move(model));
    }
    const auto file = ParseProfiles(FormatProfiles(models), "p.csv");
    ASSERT_TRUE(file) << file.error().message;
    ExpectEqual(file->models, models);
  }
}

}  // namespace
}  // namespace divvy::workload
