#include "control/request_counter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace divvy::control {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;

class RequestCounterTest : public ::testing::Test {
 protected:
  Result<std::optional<std::vector<double>>> Take(int slot, const std::string& text) {
    const auto metrics = ParseMetrics(text, "m.prom");
    EXPECT_TRUE(metrics) << metrics.error().message;
    return counter_.Take(slot, *metrics, "m.prom");
  }

  std::vector<double> Taken(int slot, const std::string& text) {
    const auto taken = Take(slot, text);
    EXPECT_TRUE(taken) << taken.error().message;
    if (!taken || !*taken) return {};
    return **taken;
  }

  std::string ErrorAt(int slot, const std::string& text) {
    const auto taken = Take(slot, text);
    return taken ? "it passed" : taken.error().message;
  }

  RequestCounter counter_{{"a", "b"}, "n"};
};

TEST_F(RequestCounterTest, TheFirstLookOnlyShowsWhereCountersStand) {
  const auto first = Take(0, "n{model=\"a\"} 100\nn{model=\"b\"} 7\n");
  ASSERT_TRUE(first);
  EXPECT_FALSE(*first);
  EXPECT_THAT(Taken(1, "n{model=\"a\"} 130\nn{model=\"b\"} 7\n"), ElementsAre(30, 0));
}

TEST_F(RequestCounterTest, WhatCameInSeveralSlotsIsSpreadOverThem) {
  Taken(0, "n{model=\"a\"} 0\nn{model=\"b\"} 0\n");
  EXPECT_THAT(Taken(4, "n{model=\"a\"} 10\nn{model=\"b\"} 4\n"),
              ElementsAre(DoubleEq(2.5), DoubleEq(1)));
}

TEST_F(RequestCounterTest, SeriesOfAModelAreAddedUpInAnyOrderOfLabels) {
  Taken(0, "n{model=\"a\",v=\"1\"} 5\nn{model=\"a\",v=\"2\"} 50\nn{model=\"b\"} 0\n");
  EXPECT_THAT(Taken(1, "n{v=\"2\",model=\"a\"} 52\nn{model=\"a\",v=\"1\"} 6\nn{model=\"b\"} 0\n"),
              ElementsAre(3, 0));
}

TEST_F(RequestCounterTest, ACounterThatFallsBeganAnew) {
  Taken(0, "n{model=\"a\"} 1000\nn{model=\"b\"} 5\n");
  EXPECT_THAT(Taken(1, "n{model=\"a\"} 12\nn{model=\"b\"} 6\n"), ElementsAre(12, 1));
  EXPECT_THAT(Taken(2, "n{model=\"a\"} 15\nn{model=\"b\"} 6\n"), ElementsAre(3, 0));
}

// One of two servers begins anew while the other counts on: their sum may even rise.
TEST_F(RequestCounterTest, EachSeriesBeginsAnewByItself) {
  Taken(0, "n{model=\"a\",v=\"1\"} 100\nn{model=\"a\",v=\"2\"} 100\nn{model=\"b\"} 0\n");
  EXPECT_THAT(Taken(1, "n{model=\"a\",v=\"1\"} 4\nn{model=\"a\",v=\"2\"} 300\nn{model=\"b\"} 0\n"),
              ElementsAre(204, 0));
}

TEST_F(RequestCounterTest, ANewSeriesCountsFromTheSecondTimeItIsSeen) {
  Taken(0, "n{model=\"a\"} 1\nn{model=\"b\"} 0\n");
  const std::string both = "n{model=\"a\"} 2\nn{model=\"b\"} 0\nn{model=\"a\",v=\"2\"} ";
  EXPECT_THAT(Taken(1, both + "9000\n"), ElementsAre(1, 0));
  EXPECT_THAT(Taken(2, both + "9003\n"), ElementsAre(3, 0));
}

TEST_F(RequestCounterTest, AMissingModelIsAnErrorThatLosesNothing) {
  Taken(0, "n{model=\"a\"} 1\nn{model=\"b\"} 0\n");
  EXPECT_EQ(ErrorAt(1, "n{model=\"a\"} 5\nother{model=\"b\"} 1\n"), "m.prom has no n of model 'b'");
  EXPECT_THAT(Taken(2, "n{model=\"a\"} 9\nn{model=\"b\"} 2\n"), ElementsAre(4, 1));
}

TEST_F(RequestCounterTest, OtherModelsAndMetricsAreNobodysBusiness) {
  Taken(0, "n{model=\"a\"} 1\nn{model=\"b\"} 0\nn{model=\"c\"} -1\nm{model=\"a\"} NaN\nn 3\n");
  EXPECT_THAT(Taken(1, "n{model=\"a\"} 2\nn{model=\"b\"} 0\n"), ElementsAre(1, 0));
}

TEST_F(RequestCounterTest, RefusesWhatIsNoCount) {
  EXPECT_EQ(ErrorAt(0, "n{model=\"b\"} 1\nn{model=\"a\"} NaN\n"),
            "m.prom:2: n of a is nan, which is no count");
  EXPECT_EQ(ErrorAt(0, "n{model=\"a\"} -3\n"), "m.prom:1: n of a is -3, which is no count");
  EXPECT_EQ(ErrorAt(0, "n{model=\"a\"} +Inf\n"), "m.prom:1: n of a is inf, which is no count");
  EXPECT_EQ(ErrorAt(0, "n{model=\"a\"} 1\nn{model=\"a\"} 1\n"),
            "m.prom:2: the same series of a again");
  EXPECT_EQ(ErrorAt(0, "# TYPE n gauge\nn{model=\"a\"} 1\n"),
            "m.prom: n is a gauge, not a counter");
}

}  // namespace
}  // namespace divvy::control
