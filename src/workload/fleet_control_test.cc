#include "workload/fleet_control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "workload/fleet.h"

namespace divvy::workload {
namespace {

using namespace std::chrono_literals;
using ::testing::StartsWith;

Result<Fleet> Parse(const std::string& rest) {
  return ParseFleet(
      "gpus: {kind: A100-80GB, count: 1}\n"
      "models: [{name: m, profile: p.csv, slo: 20ms, load: {rate: 1}}]\n" +
          rest,
      "f.yaml");
}

std::string ErrorOf(const std::string& control) {
  const auto fleet = Parse("control: " + control + "\n");
  return fleet ? "no error" : fleet.error().message;
}

TEST(FleetControlTest, ReadsEveryKey) {
  const auto fleet = Parse(R"(control:
  policy: paris
  slot: 500ms
  window: 100s
  every: 2s
  forecast: ewma
  quantile: 0.9
  season: 60s
  restart: {change: 100ms, start: 23s, prepared: 0.5}
  hysteresis: 0.1
)");
  ASSERT_TRUE(fleet) << fleet.error().message;
  const FleetControl& control = fleet->control;
  EXPECT_EQ(control.policy, "paris");
  EXPECT_EQ(control.policy_line, 4);
  EXPECT_EQ(control.slot, 500ms);
  EXPECT_EQ(control.window, 100s);
  EXPECT_EQ(control.every, 2s);
  EXPECT_EQ(control.forecast, "ewma");
  EXPECT_EQ(control.forecast_line, 8);
  EXPECT_EQ(control.quantile, 0.9);
  EXPECT_EQ(control.season, 60s);
  EXPECT_EQ(control.restart.change, 100ms);
  EXPECT_EQ(control.restart.start, 23s);
  EXPECT_EQ(control.restart.prepared, 0.5);
  EXPECT_EQ(control.hysteresis, 0.1);
}

TEST(FleetControlTest, WhatIsLeftOutHasItsDefault) {
  for (const char* rest : {"", "control: {}\n", "control: {restart: {}}\n"}) {
    const auto fleet = Parse(rest);
    ASSERT_TRUE(fleet) << fleet.error().message;
    const FleetControl& control = fleet->control;
    EXPECT_EQ(control.policy, "migrator");
    EXPECT_EQ(control.slot, 1s);
    EXPECT_EQ(control.window, 200s);
    EXPECT_EQ(control.every, 5s);
    EXPECT_EQ(control.forecast, "best");
    EXPECT_EQ(control.quantile, 0.8);
    EXPECT_EQ(control.season, 0s);
    EXPECT_EQ(control.restart.change, 300ms);
    EXPECT_EQ(control.restart.start, 5700ms);
    EXPECT_EQ(control.restart.prepared, 0.83);
    EXPECT_EQ(control.hysteresis, 0.02);
    EXPECT_EQ(control.policy_line, *rest == '\0' ? 0 : 3);
  }
}

TEST(FleetControlTest, TimesAreWholeNumbersOfSlots) {
  EXPECT_EQ(ErrorOf("{slot: 200ms, window: 1s, every: 200ms, season: 0s}"), "no error");
  EXPECT_EQ(ErrorOf("{slot: 3s, window: 10s, every: 3s}"),
            "f.yaml:3: window: 10s is not a whole number of slots of 3s, at most 10000");
  EXPECT_EQ(
      ErrorOf("{slot: 30ms}"),
      "f.yaml:3: window: 200s, the default, is not a whole number of slots of 30ms, at most 10000");
  EXPECT_EQ(
      ErrorOf("{slot: 10s}"),
      "f.yaml:3: every: 5s, the default, is not a whole number of slots of 10s, at most 10000");
  EXPECT_EQ(ErrorOf("{window: 10001s}"),
            "f.yaml:3: window: 10001s is not a whole number of slots of 1s, at most 10000");
  EXPECT_EQ(ErrorOf("{every: 1500ms}"),
            "f.yaml:3: every: 1500ms is not a whole number of slots of 1s, at most 10000");
  EXPECT_EQ(ErrorOf("{every: 1s,\n  season: 1500ms}"),
            "f.yaml:4: season: 1500ms is not a whole number of slots of 1s, at most 10000");
}

TEST(FleetControlTest, ErrorsNameLineValueAndWhatWouldBeRight) {
  EXPECT_THAT(ErrorOf("migrator"), StartsWith("f.yaml:3: control is a mapping with the keys"));
  EXPECT_EQ(ErrorOf("{polic: x}"), "f.yaml:3: control has no key 'polic'; did you mean 'policy'?");
  EXPECT_THAT(ErrorOf("{slot: 9ms}"), StartsWith("f.yaml:3: slot: '9ms' is not a time from 10ms"));
  EXPECT_THAT(ErrorOf("{slot: 2h}"), StartsWith("f.yaml:3: slot: '2h' is not a time from 10ms to "
                                                "1h with its unit"));
  EXPECT_THAT(ErrorOf("{window: 0s}"), StartsWith("f.yaml:3: window: '0s' is not a time"));
  EXPECT_EQ(ErrorOf("{quantile: 1}"),
            "f.yaml:3: quantile: '1' is not a number from 0.001 to 0.999");
  EXPECT_EQ(ErrorOf("{hysteresis: -0.1}"),
            "f.yaml:3: hysteresis: '-0.1' is not a number from 0 to 1");
  EXPECT_EQ(ErrorOf("{restart: {prepared: 83}}"),
            "f.yaml:3: prepared: '83' is not a number from 0 to 1");
  EXPECT_THAT(ErrorOf("{restart: {start: 5}}"), StartsWith("f.yaml:3: start: '5' is not a time"));
  EXPECT_EQ(ErrorOf("{restart: {stop: 5s}}"),
            "f.yaml:3: restart has no key 'stop'; it may have change, start or prepared");
  EXPECT_THAT(ErrorOf("{policy: [a]}"), StartsWith("f.yaml:3: policy: is a name, but here is"));
}

}  // namespace
}  // namespace divvy::workload
