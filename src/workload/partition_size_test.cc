#include "workload/partition_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpu/catalogue.h"

namespace divvy::workload {
namespace {

using ::testing::HasSubstr;
using Unit = PartitionSize::Unit;

const gpu::MigProfile& Profile(std::string_view gpu, std::string_view name) {
  const gpu::GpuModel& model = **gpu::FindGpuModel(gpu);
  return model.profile(*model.FindProfile(name));
}

int Quality(std::string_view size, const gpu::MigProfile& profile) {
  return MatchQuality(*ParsePartitionSize(size), profile);
}

TEST(PartitionSizeTest, ReadsTheThreeForms) {
  EXPECT_EQ(*ParsePartitionSize("3g"), (PartitionSize{Unit::kSlices, 3}));
  EXPECT_EQ(*ParsePartitionSize("60sm"), (PartitionSize{Unit::kSms, 60}));
  EXPECT_EQ(*ParsePartitionSize("3g.40gb"), (PartitionSize{Unit::kProfile, 3, "3g.40gb"}));
}

TEST(PartitionSizeTest, EveryProfileOfTheCatalogueReadsBack) {
  for (const gpu::GpuModel& model : gpu::Catalogue()) {
    for (const gpu::MigProfile& profile : model.profiles) {
      const auto size = ParsePartitionSize(profile.name);
      ASSERT_TRUE(size) << profile.name;
      EXPECT_EQ(Describe(*size), profile.name);
      EXPECT_EQ(size->amount, profile.compute_slices) << profile.name;
      EXPECT_EQ(MatchQuality(*size, profile), 3);
    }
  }
  EXPECT_EQ(Describe(*ParsePartitionSize("7g")), "7g");
  EXPECT_EQ(Describe(*ParsePartitionSize("132sm")), "132sm");
}

TEST(PartitionSizeTest, RefusesAnythingElse) {
  for (const char* text : {"",
                           "g",
                           "3",
                           "0g",
                           "03g",
                           "65g",
                           "-1g",
                           "3G",
                           "3g.",
                           "3g.gb",
                           "3g.40",
                           "3g.40gb+",
                           "3g.40gbx",
                           "sm",
                           "0sm",
                           "5000sm",
                           "3.5g",
                           " 3g",
                           "3g ",
                           "99999999999g",
                           "1g.10gb+meeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee"}) {
    const auto size = ParsePartitionSize(text);
    ASSERT_FALSE(size) << text;
    EXPECT_EQ(size.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(size.error().message, HasSubstr("is not a partition: a MIG size such as 3g"));
  }
}

TEST(PartitionSizeTest, MatchesByNameThenSlicesThenSms) {
  const gpu::MigProfile& three = Profile("A100-80GB", "3g.40gb");
  EXPECT_EQ(Quality("3g.40gb", three), 3);
  EXPECT_EQ(Quality("3g", three), 2);
  EXPECT_EQ(Quality("42sm", three), 1);
  EXPECT_EQ(Quality("3g.20gb", three), 0);
  EXPECT_EQ(Quality("4g", three), 0);
  EXPECT_EQ(Quality("43sm", three), 0);
}

TEST(PartitionSizeTest, ProfilesWithExtrasAreMeasuredByNameOnly) {
  const gpu::MigProfile& media = Profile("A100-80GB", "1g.10gb+me");
  EXPECT_EQ(Quality("1g.10gb+me", media), 3);
  EXPECT_EQ(Quality("1g", media), 0);
  EXPECT_EQ(Quality("14sm", media), 0);
  EXPECT_EQ(Quality("1g", Profile("A100-80GB", "1g.20gb")), 2);
}

}  // namespace
}  // namespace divvy::workload
