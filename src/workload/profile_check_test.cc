#include "workload/profile_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace divvy::workload {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A curve with these throughputs at batches 1, 2, 4, ..; row i + 2 for point i.
ProfileCurve FromThroughputs(const std::vector<double>& throughputs) {
  ProfileCurve curve{.size = {.amount = 3}, .processes = 1};
  int batch = 1;
  int row = 2;
  for (const double throughput : throughputs) {
    curve.points.push_back({.batch = batch, .latency_ms = batch * 1e3 / throughput, .row = row++});
    batch *= 2;
  }
  return curve;
}

std::vector<Finding> Oddities(std::vector<ProfileCurve> curves) {
  return FindOddities({.model = "m", .gpu = {}, .source = {}, .curves = std::move(curves)});
}

TEST(OutliersTest, ALeapAfterTheCurveFlattenedIsOne) {
  EXPECT_THAT(Outliers(FromThroughputs({100, 200, 380, 400, 420, 720})), ElementsAre(5));
  EXPECT_THAT(Outliers(FromThroughputs({100, 200, 380, 400, 720, 420})), ElementsAre(4));
}

TEST(OutliersTest, GrowthIsNot) {
  EXPECT_THAT(Outliers(FromThroughputs({100, 200, 400, 800, 1600})), IsEmpty());
  EXPECT_THAT(Outliers(FromThroughputs({100, 190, 340, 500, 600, 620})), IsEmpty());
  EXPECT_THAT(Outliers(FromThroughputs({100, 110, 150})), IsEmpty());
  EXPECT_THAT(Outliers(FromThroughputs({100, 130, 250})), IsEmpty());  // Not flat yet.
  EXPECT_THAT(Outliers(FromThroughputs({100, 900})), IsEmpty());       // No trend to leave.
}

TEST(OutliersTest, ALeapThatTheNextPointConfirmsIsNot) {
  EXPECT_THAT(Outliers(FromThroughputs({100, 105, 200, 210, 215})), IsEmpty());
}

TEST(OutliersTest, TheTrendIsThatOfThePointsThatStand) {
  // After the outlier the curve is judged by what came before it: 430 is no fall
  // and 900 a leap again.
  EXPECT_THAT(Outliers(FromThroughputs({100, 200, 400, 410, 900, 430, 900, 440})),
              ElementsAre(4, 6));
}

TEST(OutliersTest, ManyDoublingsMayGrowManyTimes) {
  // 15 % for each of the five doublings from 2 to 64 is twice as much in all.
  ProfileCurve curve = FromThroughputs({100, 115});
  curve.points.push_back({.batch = 64, .latency_ms = 64 * 1e3 / 231});
  EXPECT_THAT(Outliers(curve), IsEmpty());
  curve.points.back().latency_ms = 64 * 1e3 / 340;
  EXPECT_THAT(Outliers(curve), ElementsAre(2));
}

TEST(FindOdditiesTest, NamesHolesFallsAndOutliersByRow) {
  ProfileCurve holey = FromThroughputs({100, 200, 400, 410});
  holey.points.erase(holey.points.begin() + 1, holey.points.begin() + 3);
  ProfileCurve falling = FromThroughputs({100, 300, 400, 410});
  falling.processes = 2;
  for (ProfilePoint& point : falling.points) point.row += 10;
  const auto findings = Oddities({holey, falling});
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].kind, Finding::Kind::kHole);
  EXPECT_EQ(findings[0].row, 5);
  EXPECT_EQ(findings[0].message,
            "m on 3g, 1 process, batch 8: batches 2, 4 are not measured since 1, as on other "
            "partitions; interpolated");
  EXPECT_EQ(findings[1].kind, Finding::Kind::kNotMonotone);
  EXPECT_EQ(findings[1].row, 13);
  EXPECT_EQ(findings[1].message,
            "m on 3g, 2 processes, batch 2: 6.667 ms, less than the 10 ms of batch 1; counted as "
            "that");
}

TEST(FindOdditiesTest, BatchesOutsideACurvesRangeAreNoHoles) {
  ProfileCurve shorter = FromThroughputs({100, 150, 200, 220});
  shorter.points.pop_back();
  shorter.points.erase(shorter.points.begin());
  EXPECT_THAT(Oddities({FromThroughputs({100, 150, 200, 220}), shorter}), IsEmpty());
}

TEST(FindOdditiesTest, OutliersAreNamedWithTheirLeap) {
  const auto findings = Oddities({FromThroughputs({100, 200, 400, 410, 800})});
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].kind, Finding::Kind::kOutlier);
  EXPECT_EQ(findings[0].message,
            "m on 3g, 1 process, batch 16: 800 items a second, 1.95 times that of batch 8, where "
            "the curve had flattened; likely a slip");
}

}  // namespace
}  // namespace divvy::workload
