#include "device/simulator/state_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/simulator/gpu_spec.h"
#include "device/simulator/scenario.h"

namespace divvy::device::simulator {
namespace {

using ::testing::HasSubstr;

// A node with an instance, a compute instance and a process.
State Example() {
  auto state = ParseGpuSpec("H200-141GB+mig:2,A30-24GB");
  EXPECT_TRUE(state);
  EXPECT_TRUE(CreateWhole(*state, 0, "3g.71gb", 4));
  ProcessRequest request;
  request.start = 4;
  request.memory_mib = 12;
  EXPECT_TRUE(StartProcess(*state, request));
  state->faults = "nvmlInit@2=kill";
  state->gpus[2].compute_mode = nvml::kComputeExclusiveProcess;
  return *state;
}

// `text` with `from`, which must be there, made `to`.
std::string With(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(StateJsonTest, WhatIsWrittenReadsTheSame) {
  const State state = Example();
  const auto read = ParseState(FormatState(state));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, state);
  EXPECT_EQ(FormatState(*read), FormatState(state));
}

TEST(StateJsonTest, NamesThatAreNotUtf8AreRepaired) {
  State state = Example();
  state.gpus[0].processes[0].name = "\xff";
  EXPECT_TRUE(ParseState(FormatState(state)));
}

TEST(StateJsonTest, DamageIsNamed) {
  const std::string good = FormatState(Example());
  const struct {
    const char* from;
    const char* to;
    const char* problem;
  } kCases[] = {
      {"{", "[", "not JSON"},
      {"\"divvy_nvml_sim\": 1", "\"divvy_nvml_sim\": 2", "must be 1"},
      {"\"faults\": \"nvmlInit@2=kill\"", "\"faults\": \"nvmlInit@2\"", "nvmlInit@2"},
      {"\"gpus\": [", "\"more\": 1, \"gpus\": [", "unknown key 'more'"},
      {"\"model\": \"H200-141GB\"", "\"model\": \"H300\"", "gpus[0].model"},
      {"\"mig\": true", "\"mig\": 1", "gpus[0].mig"},
      {"\"mig\": true", "\"mig\": false", "has instances but mig is false"},
      {"\"profile\": \"3g.71gb\"", "\"profile\": \"3g.40gb\"", "has no '3g.40gb'"},
      {"\"start\": 4", "\"start\": -4", "instances[0].start"},
      {"\"id\": 2", "\"id\": 1", "instances[0].id must be 2"},
      {"\"slices\": 3", "\"slices\": 4", "does not allow"},
      {"\"serial\": 2", "\"serial\": 1", "serial 1"},
      {"\"serial\": 2", "\"serial\": 77", "serial 77"},
      {"\"uuid\": \"MIG-", "\"uuid\": \"GIM-", "GIM-"},
      {"\"gpu_instance\": 2", "\"gpu_instance\": 3", "process 1001"},
      {"\"kind\": \"compute\"", "\"kind\": \"toy\"", "kind"},
      {"\"exclusive-process\"", "\"default\"", "gpus[2].compute_mode"},
      {"\"pid\": 1001", "\"pid\": 99999999999", "pid"},
  };
  for (const auto& [from, to, problem] : kCases) {
    const auto read = ParseState(With(good, from, to));
    ASSERT_FALSE(read) << to;
    EXPECT_EQ(read.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(read.error().message, HasSubstr(problem));
  }
}

TEST(StateJsonTest, OverlapsAreRefused) {
  State state = Example();
  state.gpus[0].instances.push_back({13, 9, {6, gpu::ProfileIndex{0}}, {}});
  state.next_serial = 10;
  const auto read = ParseState(FormatState(state));
  ASSERT_FALSE(read);
  EXPECT_THAT(read.error().message, HasSubstr("overlaps"));
}

TEST(GpuSpecTest, CountsAndMigMode) {
  const auto state = ParseGpuSpec("h200+mig:3,A30-24GB");
  ASSERT_TRUE(state);
  ASSERT_EQ(state->gpus.size(), 4U);
  EXPECT_TRUE(state->gpus[2].mig && state->gpus[2].mig_pending);
  EXPECT_FALSE(state->gpus[3].mig);
  EXPECT_NE(state->gpus[0].uuid, state->gpus[1].uuid);
}

TEST(GpuSpecTest, WrongPartsAreNamed) {
  for (const char* text : {"", "H200-141GB:0", "H200-141GB:x", "H200-141GB:65",
                           "H200-141GB:", "A30,", "A30,,A30", "H200-141GB:40,A30:40", "Q5000"}) {
    EXPECT_FALSE(ParseGpuSpec(text)) << text;
  }
}

}  // namespace
}  // namespace divvy::device::simulator
