#include "engine/synthetic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>

#include "engine/classify.h"
#include "engine/plugin.h"

namespace divvy::engine {
namespace {

using kserve::DataType;
using kserve::Tensor;
using ::testing::HasSubstr;

EngineConfig Config() {
  return {.model = "m",
          .max_batch = 8,
          .inputs = {{.name = "x", .type = DataType::kFp32, .shape = {2}}},
          .outputs = {{.name = "y", .type = DataType::kFp32, .shape = {2}}}};
}

std::string Bytes(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

Tensor Input(const std::string& bytes) {
  return {.name = "x", .shape = {static_cast<std::int64_t>(bytes.size() / 8), 2}, .bytes = bytes};
}

std::unique_ptr<SyntheticEngine> Synthetic(const EngineConfig& config, std::string_view latency) {
  return SyntheticEngine::Make(config, {LatencyTable::Parse(latency).value(), 0, 1}).value();
}

TEST(SyntheticTest, SaysThatItIsNoModel) {
  const auto engine = Synthetic(Config(), "");
  EXPECT_EQ(engine->description().metadata.platform, "divvy_synthetic");
  EXPECT_THAT(engine->description().parameters.at("divvy_synthetic"),
              HasSubstr("not a real model"));
  EXPECT_EQ(engine->description().metadata.inputs.front().shape, (kserve::Shape{-1, 2}));
}

TEST(SyntheticTest, AnItemsAnswerIsTheSameInEveryBatchAndOfEveryType) {
  EngineConfig config = Config();
  config.outputs.clear();
  for (int type = 0; type <= static_cast<int>(DataType::kBytes); ++type) {
    config.outputs.push_back(
        {.name = std::to_string(type), .type = static_cast<DataType>(type), .shape = {3, 50}});
  }
  const auto engine = Synthetic(config, "");
  const std::string one = Bytes({1, 2});
  const std::string three = Bytes({9, 9, 1, 2, 4, 4});
  const auto alone = engine->Run(std::vector{Input(one)}).value();
  const auto batch = engine->Run(std::vector{Input(three)}).value();
  ASSERT_EQ(alone.size(), config.outputs.size());
  for (std::size_t o = 0; o < alone.size(); ++o) {
    const Tensor& mine = alone[o].tensor;
    const Tensor& all = batch[o].tensor;
    EXPECT_EQ(all.shape, (kserve::Shape{3, 3, 50}));
    EXPECT_TRUE(kserve::CheckBytes(all.type, all.shape, all.bytes, all.name));
    EXPECT_EQ(all.bytes.substr(mine.bytes.size(), mine.bytes.size()), mine.bytes);
    EXPECT_NE(all.bytes.substr(0, mine.bytes.size()), mine.bytes);
  }
}

TEST(SyntheticTest, SaysHowLongItTakes) {
  const auto engine = Synthetic(Config(), "2000,4000");
  EXPECT_EQ(engine->held_back(), Duration(0));
  const std::string two = Bytes({1, 2, 3, 4});
  ASSERT_TRUE(engine->Run(std::vector{Input(two)}));
  EXPECT_EQ(engine->held_back(), std::chrono::milliseconds(4));
}

TEST(SyntheticTest, NeedsWholeDeclarations) {
  EngineConfig any_size = Config();
  any_size.outputs.front().shape = {-1};
  EngineConfig no_input = Config();
  no_input.inputs.clear();
  const LatencyTable none = LatencyTable::Parse("").value();
  EXPECT_THAT(SyntheticEngine::Make(any_size, {none, 0, 1}).error().message,
              HasSubstr("output 'y'"));
  EXPECT_THAT(SyntheticEngine::Make(no_input, {none, 0, 1}).error().message, HasSubstr("--input"));
}

TEST(PluginTest, RunsAnEngineWrittenInC) {
  const auto engine = PluginEngine::Make(TEST_ENGINE, Config());
  ASSERT_TRUE(engine) << engine.error().message;
  EXPECT_EQ((*engine)->description().metadata.platform, "test_double");
  EXPECT_EQ((*engine)->description().metadata.outputs.front().shape, (kserve::Shape{-1, 2}));
  const std::string x = Bytes({1, 2, 3, 4});
  const auto outputs = (*engine)->Run(std::vector{Input(x)});
  ASSERT_TRUE(outputs) << outputs.error().message;
  EXPECT_EQ(outputs->front().tensor.bytes, Bytes({2, 4, 6, 8}));
  EXPECT_EQ(outputs->front().tensor.shape, (kserve::Shape{2, 2}));
}

TEST(PluginTest, WhatAnEngineDoesWrongIsAnErrorThatNamesIt) {
  const struct {
    const char* fault;
    const char* error;
    ErrorCode code;
    bool made;
  } kCases[] = {
      {"create", "cannot read a.bin for m on cpu", ErrorCode::kInvalidArgument, false},
      {"describe", "an unknown type (99)", ErrorCode::kUnavailable, false},
      {"batch", "batches of 9 items where 8", ErrorCode::kUnavailable, false},
      {"input", "no such luck", ErrorCode::kInvalidArgument, true},
      {"failed", "no such luck", ErrorCode::kUnavailable, true},
      {"missing", "did not hand out 'y'", ErrorCode::kUnavailable, true},
      {"short", "'y' with 12 bytes", ErrorCode::kUnavailable, true},
      {"huge", "more than there are", ErrorCode::kUnavailable, true},
      {"name", "'z', which is no output", ErrorCode::kUnavailable, true},
      {"type", "type 8", ErrorCode::kUnavailable, true},
      {"twice", "'y' twice", ErrorCode::kUnavailable, true},
  };
  const std::string x = Bytes({1, 2, 3, 4});
  for (const auto& test : kCases) {
    EngineConfig config = Config();
    config.artifact = "a.bin";
    config.options["fault"] = test.fault;
    const auto engine = PluginEngine::Make(TEST_ENGINE, config);
    ASSERT_EQ(engine.has_value(), test.made) << test.fault;
    const Error error = engine ? (*engine)->Run(std::vector{Input(x)}).error() : engine.error();
    EXPECT_THAT(error.message, HasSubstr(test.error)) << test.fault;
    EXPECT_THAT(error.message, HasSubstr(TEST_ENGINE));
    EXPECT_EQ(error.code, test.code) << test.fault;
  }
}

TEST(PluginTest, LibrariesThatAreNoEngineOfOursAreRefused) {
  EXPECT_THAT(PluginEngine::Make("/nowhere/x.so", Config()).error().message,
              HasSubstr("/nowhere/x.so"));
  EXPECT_THAT(PluginEngine::Make("libc.so.6", Config()).error().message,
              HasSubstr("exports no function divvy_engine"));
  setenv("DIVVY_TEST_ENGINE_ABI", "999", 1);
  EXPECT_THAT(PluginEngine::Make(TEST_ENGINE, Config()).error().message,
              HasSubstr("speaks version 999 of divvy_engine.h, this worker 1"));
  unsetenv("DIVVY_TEST_ENGINE_ABI");
}

// "7:text" for each text of a tensor.
std::string Texts(const Tensor& tensor) {
  std::string all;
  for (std::size_t at = 0; at < tensor.bytes.size();) {
    std::uint32_t length = 0;
    std::memcpy(&length, tensor.bytes.data() + at, sizeof length);
    all += std::string(tensor.bytes.substr(at + 4, length)) + " ";
    at += 4 + length;
  }
  return all;
}

TEST(ClassifyTest, TheLargestOfEachItemComeFirst) {
  const std::string scores = Bytes({0.5F, 2, -1, NAN, 7, 7, 7, 1});
  const Output output = {.tensor = {.name = "y", .shape = {2, 4}, .bytes = scores}, .storage = {}};
  const auto top = Classify(output, 2, true);
  ASSERT_TRUE(top);
  EXPECT_EQ(Texts(top->tensor), "2.000000:1 0.500000:0 7.000000:0 7.000000:1 ");
  EXPECT_EQ(top->tensor.shape, (kserve::Shape{2, 2}));
  EXPECT_EQ(top->tensor.type, DataType::kBytes);
  const auto all = Classify(output, 99, false);
  EXPECT_EQ(all->tensor.shape, (kserve::Shape{8}));

  const std::string halves("\x00\x3c\x00\xc0\xff\x7b\x01\x00", 8);  // 1, -2, 65504, 2^-24.
  const Output small = {
      .tensor = {.name = "h", .type = DataType::kFp16, .shape = {1, 4}, .bytes = halves},
      .storage = {}};
  EXPECT_EQ(Texts(Classify(small, 4, true)->tensor),
            "65504.000000:2 1.000000:0 0.000000:3 -2.000000:1 ");
  Output texts = output;
  texts.tensor.type = DataType::kBytes;
  EXPECT_FALSE(Classify(texts, 2, true));
}

}  // namespace
}  // namespace divvy::engine
