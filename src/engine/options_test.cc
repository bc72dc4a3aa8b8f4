#include "engine/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/service_times.h"

namespace divvy::engine {
namespace {

using std::chrono::microseconds;
using ::testing::HasSubstr;

Result<Options> Parse(std::vector<std::string_view> more) {
  std::vector<std::string_view> words = {"--model",   "m",        "--engine",
                                         "synthetic", "--listen", "unix:/x"};
  words.insert(words.end(), more.begin(), more.end());
  return ParseOptions(words);
}

TEST(OptionsTest, ReadsAWholeLine) {
  const auto options = Parse({"--input",      "a:b:FP32:3,-1",
                              "--input",      "n:INT64:",
                              "--output",     "y:BYTES:1000",
                              "--max-batch",  "8",
                              "--device",     "cuda:0",
                              "--threads",    "2",
                              "--artifact",   "m.pt",
                              "--latency-us", "10,20",
                              "--spread",     "0.5",
                              "--seed",       "18446744073709551615",
                              "--parent-fd",  "7",
                              "--option",     "graphs=off=on",
                              "--describe"});
  ASSERT_TRUE(options) << options.error().message;
  const EngineConfig& config = options->config;
  const std::vector<kserve::TensorMetadata> inputs = {
      {.name = "a:b", .type = kserve::DataType::kFp32, .shape = {3, -1}},
      {.name = "n", .type = kserve::DataType::kInt64, .shape = {}}};
  EXPECT_EQ(config.inputs, inputs);
  EXPECT_EQ(config.outputs.at(0).type, kserve::DataType::kBytes);
  EXPECT_EQ(config.max_batch, 8);
  EXPECT_EQ(config.device, "cuda:0");
  EXPECT_EQ(config.threads, 2);
  EXPECT_EQ(config.artifact, "m.pt");
  EXPECT_EQ(config.options.at("graphs"), "off=on");
  EXPECT_EQ(options->seed, UINT64_MAX);
  EXPECT_EQ(options->spread, 0.5);
  EXPECT_EQ(options->parent_fd, 7);
  EXPECT_TRUE(options->describe);
}

TEST(OptionsTest, SlipsAreNamed) {
  const struct {
    std::vector<std::string_view> words;
    std::string_view error;
  } kCases[] = {
      {{"--max-bach", "3"},
       "'--max-bach' is no option of divvy-worker; did you mean '--max-batch'?"},
      {{"--max-batch"}, "--max-batch needs a value"},
      {{"--max-batch", "70000"}, "--max-batch '70000': must be a whole number from 0 to 65536"},
      {{"--input", "x"}, "type and dimensions are missing"},
      {{"--input", "x:FP32"}, "type or dimensions are missing"},
      {{"--input", "x:fp32:1"}, "there is no such type"},
      {{"--input", ":FP32:1"}, "the name is none"},
      {{"--input", "x:FP32:0"}, "dimensions are from 1, or -1"},
      {{"--input", "x:FP32:2,"}, "a dimension is missing at the end"},
      {{"--input", "x:FP32:2", "--input", "x:FP32:3"}, "'x' is declared twice"},
      {{"--option", "graphs"}, "write KEY=VALUE"},
      {{"--spread", "-1"}, "--spread '-1': must be a number from 0 to 2"},
      {{"--seed", "x"}, "--seed 'x'"},
      {{"--model", ""}, "--model '': must be a name"},
      {{"--engine", ""}, "--engine is missing"},
      {{"--listen", ""}, "--listen is missing"},
  };
  for (const auto& test : kCases) {
    const auto options = Parse(test.words);
    ASSERT_FALSE(options) << test.error;
    EXPECT_THAT(options.error().message, HasSubstr(test.error));
  }
  EXPECT_TRUE(Parse({"--help"})->help);
  for (const char* flag : {"--listen", "--describe", "--latency-us", "--parent-fd"}) {
    EXPECT_THAT(HelpText(), HasSubstr(flag));
  }
  auto options = Parse({"--latency-us", "5,x"});
  EXPECT_THAT(EngineMaker(*options).error().message, HasSubstr("--latency-us: 'x' is no time"));
}

TEST(LatencyTableTest, CountsBetweenLieOnStraightLines) {
  const struct {
    std::string_view text;
    int items;
    int us;
  } kCases[] = {
      {"", 3, 0},
      {"900", 1, 900},
      {"900", 5, 900},
      {"900,1400", 2, 1400},
      {"1:900,5:1700", 2, 1100},
      {"4:100,8:300", 1, 100},
      {"4:100,8:300", 9, 300},
      {"2:10,30", 3, 30},
  };
  for (const auto& test : kCases) {
    const auto table = LatencyTable::Parse(test.text);
    ASSERT_TRUE(table) << test.text;
    EXPECT_EQ(table->At(test.items), microseconds(test.us)) << test.text << " at " << test.items;
  }
  for (const char* text : {"x", "1,", ",1", "-5", "1:", ":5", "3:1,2:1", "0:5", "1:2:3", "1e99"}) {
    EXPECT_FALSE(LatencyTable::Parse(text)) << text;
  }
}

TEST(ServiceTimesTest, SpreadKeepsTheMeanAndIsASeedsOwn) {
  const LatencyTable table = LatencyTable::Parse("1000").value();
  ServiceTimes times(table, 0.5, 3);
  ServiceTimes again(table, 0.5, 3);
  constexpr int kDraws = 20000;
  double sum = 0;
  double logs = 0;
  for (int i = 0; i < kDraws; ++i) {
    const Duration drawn = times.Draw(1);
    ASSERT_EQ(drawn, again.Draw(1));
    sum += Milliseconds(drawn);
    const double log = std::log(Milliseconds(drawn)) + 0.125;
    logs += log * log;
  }
  EXPECT_NEAR(sum / kDraws, 1, 0.02);  // Over 5 standard errors.
  EXPECT_NEAR(std::sqrt(logs / kDraws), 0.5, 0.02);
  EXPECT_EQ(ServiceTimes(table, 0, 3).Draw(1), microseconds(1000));
}

}  // namespace
}  // namespace divvy::engine
